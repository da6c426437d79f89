// counts.c - what ops cost on a GPU as the emulator counts it: launches, blocks, sectors of 32 bytes, and memory, by the
// public calls alone, so that two versions of tensor_cuda.cu can be compared (bench/results/gpu-counts.md)
//
//   counts              a line for each op: "name launches blocks loaded stored longest bytes"
//   counts counts.txt   the same as a table beside those lines of another version
//
// blocks: of the largest launch; longest: accesses of the busiest thread; bytes: of device memory beyond the operands,
// at the peak. A row "x backward" counts the backward pass alone.
#include "../../tensor_cuda.h"
#include "../../tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cusim_set(const char *what, long value);
void cusim_counted(long *five);

enum { COUNTS = 6, ROWS = 200 };
static const char *const titles[COUNTS] = {"launches", "blocks", "loaded", "stored", "longest", "bytes"};
static struct row_t { char name[64]; long n[COUNTS]; } old[ROWS];
static int olds, failed;
static int64_t used;

static void begin(void) {
    tensor_cuda_synchronize(TENSOR_CUDA);
    tensor_cuda_reset_peak_memory_stats(TENSOR_CUDA);
    used = tensor_cuda_memory_allocated(TENSOR_CUDA);
    cusim_set("reset", 0);
}
static void end(const char *name) {
    long n[COUNTS];
    int k, i;
    cusim_counted(n);
    n[COUNTS - 1] = (long)(tensor_cuda_max_memory_allocated(TENSOR_CUDA) - used);
    if (!tensor_ok()) {
        printf("%s: %s\n", name, tensor_error_text());
        tensor_clear_error();
        failed = 1;
        return;
    }
    for (k = 0; k < olds && strcmp(old[k].name, name); k++) { }
    printf(olds ? "| %s" : "%s", name);
    for (i = 0; i < COUNTS; i++) {
        if (!olds) {
            printf(" %ld", n[i]);
        } else if (k == olds) {
            printf(" | - / %ld", n[i]);
        } else if (old[k].n[i] == n[i]) {
            printf(" | %ld", n[i]);
        } else {
            printf(" | %ld / %ld", old[k].n[i], n[i]);
        }
    }
    printf(olds ? " |\n" : "\n");
    fflush(stdout);
}

static int dtype;
static tensor_t *made(tensor_t *x) { return tensor_to(tensor_to(x, dtype), TENSOR_CUDA); }
static tensor_t *image(void) { return made(tensor_randn(4, 16, 24, 24)); }
static tensor_t *matrix(int64_t rows, int64_t columns) { return made(tensor_randn(rows, columns)); }
static tensor_t *labels(int64_t n, int64_t below) { return tensor_to(tensor_randint(0, below, n), TENSOR_CUDA); }

static tensor_t *scale(void) { return tensor_requires_grad_(made(tensor_ones(16)), 1); }

// name: begins with _ for a row of f32 only. The operands are made before, the results go with the scope.
#define ROW(text, operands, call)                                                                            \
    if (dtype == TENSOR_F32 || text[0] != '_') {                                                             \
        tensor_scope_t scope_ = tensor_scope_begin();                                                        \
        tensor_t *x = NULL, *y = NULL, *z = NULL;                                                            \
        char name_[64];                                                                                      \
        snprintf(name_, sizeof name_, "%s%s", text + (text[0] == '_'), text[0] == '_' ? "" : suffix);        \
        operands;                                                                                            \
        begin();                                                                                             \
        (void)(call);                                                                                        \
        end(name_);                                                                                          \
        (void)x, (void)y, (void)z;                                                                           \
        tensor_scope_end(scope_);                                                                            \
    }
// The backward pass of the sum of an expression in x.
#define BACK(text, operands, expression)                                                                     \
    ROW(text, operands; tensor_requires_grad_(x, 1); z = tensor_sum(expression), tensor_backward(z))

static void rows(const char *suffix) {
    ROW("relu, channels last", x = tensor_channels_last(image()), tensor_relu(x))
    ROW("add, channels last", x = tensor_channels_last(image()), tensor_add(x, x))
    ROW("add by channel", x = image(); y = made(tensor_randn(1, 16, 1, 1)), tensor_add(x, y))
    ROW("add by channel, channels last", x = tensor_channels_last(image()); y = made(tensor_randn(1, 16, 1, 1)),
        tensor_add(x, y))
    ROW("mul [B,T,C] [B,1,C]", x = made(tensor_randn(8, 32, 128)); y = made(tensor_randn(8, 1, 128)), tensor_mul(x, y))
    ROW("masked_fill", x = matrix(64, 512); y = tensor_gt(x, tensor_zeros_like(x)), tensor_masked_fill(x, y, 0))
    ROW("where", x = matrix(64, 512); y = tensor_gt(x, tensor_zeros_like(x)), tensor_where(y, x, x))
    ROW("_add of i64", x = labels(32768, 9), tensor_add(x, x))
    ROW("_add of i64 and a row", x = tensor_reshape(labels(32768, 9), 64, 512); y = labels(512, 9), tensor_add(x, y))
    ROW("_add of f32 and bf16", x = matrix(64, 512); y = tensor_to(x, TENSOR_BF16), tensor_add(x, y))
    ROW("_where of f32 and bf16",
        x = matrix(64, 512); y = tensor_to(x, TENSOR_BF16); z = tensor_gt(x, tensor_zeros_like(x)), tensor_where(z, x, y))
    BACK("_mul backward, f32 by bf16", x = matrix(64, 512); y = tensor_to(x, TENSOR_BF16), tensor_mul(x, y))
    ROW("add by channel, planes of 7x7", x = made(tensor_randn(16, 32, 7, 7)); y = made(tensor_randn(32, 1, 1)),
        tensor_add(x, y))
    BACK("mul backward, planes of 7x7", x = made(tensor_randn(16, 32, 7, 7)); y = made(tensor_randn(32, 1, 1)),
         tensor_mul(x, y))
    ROW("add of rows from 1 on", x = matrix(64, 512),
        tensor_add(tensor_narrow(x, 1, 1, 511), tensor_narrow(x, 1, 0, 511)))
    BACK("gelu backward", x = matrix(64, 512), tensor_gelu(x))
    BACK("mul backward", x = matrix(64, 512); y = matrix(64, 512), tensor_mul(x, y))
    BACK("relu backward, channels last", x = tensor_channels_last(image()), tensor_relu(x))
    ROW("sum", x = matrix(1024, 1024), tensor_sum(x))
    ROW("mean", x = matrix(1024, 1024), tensor_mean(x))
    ROW("norm", x = matrix(256, 1024), tensor_norm(x))
    ROW("sum of columns [2048,256]", x = matrix(2048, 256), tensor_sum_dim(x, 0, 0))
    ROW("sum of channels", x = image(), tensor_sum_dim(tensor_transpose(tensor_reshape(x, 4, 16, 576), 1, 2), 1, 0))
    ROW("softmax of 1000", x = matrix(32, 1000), tensor_softmax(x, -1))
    ROW("layer_norm of 256", x = matrix(64, 256), tensor_layer_norm(x, 1))
    BACK("layer_norm backward", x = matrix(64, 256), tensor_layer_norm(x, 1))
    ROW("batch_norm", x = image(), tensor_batch_norm(x, NULL, NULL, .training = 1))
    BACK("batch_norm backward", x = image(), tensor_batch_norm(x, NULL, NULL, .training = 1))
    ROW("batch_norm of 4 large channels", x = made(tensor_randn(4, 4, 64, 64)),
        tensor_batch_norm(x, NULL, NULL, .training = 1))
    ROW("batch_norm, eval", x = image(); y = made(tensor_ones(16)), tensor_batch_norm(x, y, y, y, y))
    ROW("group_norm", x = image(), tensor_group_norm(x, 4))
    ROW("cross_entropy of 1001", x = matrix(64, 1001); y = labels(64, 1001), tensor_cross_entropy(x, y))
    BACK("cross_entropy backward", x = matrix(64, 1001); y = labels(64, 1001), tensor_cross_entropy(x, y))
    ROW("max_pool2d", x = image(), tensor_max_pool2d(x, 3, .stride = 2, .padding = 1))
    BACK("max_pool2d backward", x = image(), tensor_max_pool2d(x, 3, .stride = 2, .padding = 1))
    ROW("max_pool2d, channels last", x = tensor_channels_last(image()), tensor_max_pool2d(x, 3, .stride = 2, .padding = 1))
    ROW("avg_pool2d", x = image(), tensor_avg_pool2d(x, 2))
    ROW("dropout", x = matrix(64, 512), tensor_dropout(x, 0.3, 1))
    ROW("_rand of 32768", x = matrix(64, 512), tensor_rand_like(x))
    ROW("attention [1,2,128,32]", x = made(tensor_randn(1, 2, 128, 32)), tensor_scaled_dot_product_attention(x, x, x))
    BACK("attention backward", x = made(tensor_randn(1, 2, 128, 32)), tensor_scaled_dot_product_attention(x, x, x))
    ROW("attention with dropout", x = made(tensor_randn(1, 2, 128, 32)),
        tensor_scaled_dot_product_attention(x, x, x, .dropout_p = 0.2))
    ROW("_attention with a mask", x = made(tensor_randn(1, 2, 128, 32)); y = tensor_gt_scalar(made(tensor_randn(1, 1, 1, 128)), -1),
        tensor_scaled_dot_product_attention(x, x, x, y))
    BACK("attention backward, mask and dropout",
         x = made(tensor_randn(1, 2, 128, 32)); y = tensor_gt_scalar(made(tensor_randn(1, 1, 1, 128)), -1),
         tensor_scaled_dot_product_attention(x, x, x, y, .dropout_p = 0.2))
    ROW("attention of one query", x = made(tensor_randn(1, 2, 1, 32)); y = made(tensor_randn(1, 2, 128, 32)),
        tensor_scaled_dot_product_attention(x, y, y))
    BACK("embedding backward", x = matrix(100, 64); y = labels(512, 100), tensor_embedding(y, x))
    BACK("embedding backward, 4096 of 2 tokens", x = matrix(100, 16); y = labels(4096, 2), tensor_embedding(y, x))
    ROW("scatter_add into 3 of 4096", x = made(tensor_zeros(3)); y = labels(4096, 3); z = made(tensor_ones(4096)),
        tensor_scatter_add(x, 0, y, z))
    ROW("_sort of 20000", x = matrix(1, 20000), tensor_sort(x, 1, 0).values)
    ROW("_topk 16 of 20000", x = matrix(1, 20000), tensor_topk(x, 16, 1, 1, 1).values)
    ROW("_median of 20000", x = matrix(1, 20000), tensor_median(x))
    ROW("_cumsum of [64,1024]", x = matrix(64, 1024), tensor_cumsum(x, 1))
    ROW("_cumsum of 131072", x = matrix(1, 131072), tensor_cumsum(x, 1))
}

static void more_rows(const char *suffix) {
    ROW("batch_norm, eval, recorded", x = tensor_requires_grad_(image(), 1); y = scale(),
        tensor_batch_norm(x, tensor_detach(y), tensor_detach(y), y, y))
    BACK("batch_norm, eval, backward", x = image(); y = scale(),
         tensor_relu(tensor_batch_norm(x, tensor_detach(y), tensor_detach(y), y, y)))
    BACK("batch_norm, eval, backward, channels last", x = tensor_channels_last(image()); y = scale(),
         tensor_batch_norm(x, tensor_detach(y), tensor_detach(y), y, y))
    BACK("batch_norm, eval, backward, weights fixed", x = image(); y = made(tensor_ones(16)),
         tensor_relu(tensor_batch_norm(x, y, y, y, y)))
    BACK("group_norm backward", x = image(); y = scale(), tensor_group_norm(x, 4, y, y))
    ROW("group_norm, channels last", x = tensor_channels_last(image()), tensor_group_norm(x, 4))
    BACK("group_norm backward, channels last", x = tensor_channels_last(image()); y = scale(),
         tensor_group_norm(x, 4, y, y))
    ROW("group_norm of 16 channels, channels last", x = tensor_channels_last(image()), tensor_group_norm(x, 1))
    ROW("instance_norm, channels last", x = tensor_channels_last(image()), tensor_instance_norm(x))
    ROW("group_norm of 2 large groups", x = made(tensor_randn(2, 4, 64, 64)), tensor_group_norm(x, 1))
    ROW("conv2d, channels last", x = tensor_channels_last(image()); y = made(tensor_randn(16, 16, 3, 3)),
        tensor_conv2d(x, y, NULL, .padding = 1))
    BACK("conv2d backward, channels last",
         x = tensor_channels_last(image()); y = tensor_requires_grad_(made(tensor_randn(16, 16, 3, 3)), 1),
         tensor_conv2d(x, y, NULL, .padding = 1))
}

// Layers of a transformer: 8 steps, 4 items, 64 numbers, one head.
static void layers(const char *suffix) {
    static const char *const texts[4][2] = {{"encoder layer", "encoder layer backward"},
                                            {"encoder layer, eval", "encoder layer, eval, backward"},
                                            {"encoder layer, norm first", "encoder layer, norm first, backward"},
                                            {"encoder layer, norm first, eval", "encoder layer, norm first, eval, backward"}};
    int k;
    for (k = 0; k < 4; k++) {
        nn_module_t *m = nn_transformer_encoder_layer(64, 1, .feedforward = 64, .dropout = 0.1, .norm_first = k > 1);
        nn_to(m, dtype);
        nn_to(m, TENSOR_CUDA);
        if (k % 2) { nn_eval(m); }
        ROW(texts[k][0], x = made(tensor_randn(8, 4, 64)), nn_forward(m, x))
        BACK(texts[k][1], x = made(tensor_randn(8, 4, 64)), nn_forward(m, x))
        nn_free(m);
    }
}

static void networks(const char *suffix) {
    static const char *const texts[] = {"adam of 60 tensors", "adam of 148 tensors"};
    static const int counts[] = {30, 74};
    nn_module_t *m;
    nn_optimizer_t *opt;
    int k, i;
    for (i = 0; i < 2; i++) {
        m = nn_sequential();
        for (k = 0; k < counts[i]; k++) { nn_append(m, nn_linear(16, 16)); }
        nn_to(m, dtype);
        nn_to(m, TENSOR_CUDA);
        opt = nn_adam(m);
        for (k = 0; k < 2; k++) {
            tensor_backward(tensor_sum(nn_forward(m, matrix(4, 16)))), k ? 0 : nn_step(opt);
        }
        ROW(texts[i], x = matrix(1, 1), nn_step(opt))
        nn_optimizer_free(opt);
        nn_free(m);
    }
    m = nn_conv2d(16, 16, 3);
    nn_to(m, dtype);
    nn_to(m, TENSOR_CUDA);
    nn_channels_last(m);
    opt = nn_adafactor(m);
    for (k = 0; k < 2; k++) {
        tensor_backward(tensor_sum(nn_forward(m, tensor_channels_last(image())))), k ? 0 : nn_step(opt);
    }
    ROW("adafactor, channels last", x = matrix(1, 1), nn_step(opt))
    nn_optimizer_free(opt);
    nn_free(m);
}

// Calls that bring the kernels which no row above has, in layouts that they take: what each kernel moved is in
// tests/cuda/moved.txt.
static tensor_t *back(tensor_t *x, tensor_t *y) {
    tensor_backward(tensor_sum(tensor_mul(y, y)));
    return tensor_grad(x);
}
static tensor_t *leaf(tensor_t *x) { return tensor_requires_grad_(tensor_to(x, TENSOR_CUDA), 1); }
static void pointwise_kernels(void) {
    tensor_t *x = tensor_randn(64, 512), *turned = tensor_transpose(x, 0, 1), *whole = tensor_randint(0, 9, 64, 512), *y;
    tensor_contiguous(turned);
    tensor_to(x, TENSOR_BF16);
    tensor_to(tensor_contiguous(tensor_to(turned, TENSOR_F64)), TENSOR_F32);
    tensor_to(tensor_channels_last(tensor_reshape(x, 4, 8, 32, 32)), TENSOR_BF16);
    tensor_to(tensor_narrow(turned, 0, 1, 300), TENSOR_F16);
    tensor_add(x, tensor_transpose(tensor_randn(512, 64), 0, 1));
    tensor_mul(whole, whole);
    tensor_add_scalar(tensor_to(x, TENSOR_F64), 1);
    tensor_fill_(tensor_narrow(tensor_empty(64, 512), 1, 3, 400), 2);
    tensor_arange(0, 4096, 1, TENSOR_I64);
    tensor_tril(x, 0);
    y = leaf(tensor_to(x, TENSOR_F64));
    back(y, tensor_tanh(y));
    tensor_rand_like(tensor_to(x, TENSOR_F64));
    tensor_poisson(tensor_full(3, 64, 512));
    y = leaf(x);
    back(y, tensor_softmax(y, 1));
    tensor_logsumexp(x, 1, 0);
    tensor_var(x, 1);
    tensor_std(tensor_reshape(x, 1, 32768), 1);
    tensor_sum_dim(turned, 1, 0);
    tensor_amax_dim(turned, 0, 0);
}
static void order_kernels(void) {
    tensor_t *x = tensor_randn(64, 100), *wide = tensor_randn(4, 5000), *order = tensor_argsort(x, 1, 0), *few;
    tensor_argsort(wide, 1, 0);
    tensor_topk(wide, 2500, 1, 1, 0);
    tensor_topk(x, 5, 1, 1, 0);
    tensor_kthvalue(x, 3, 1, 0);
    tensor_mode(x, 1, 0);
    tensor_mode(wide, 1, 0);
    tensor_gather(x, 1, order);
    tensor_index_select(x, 1, tensor_select(order, 0, 0));
    tensor_index_select(x, 0, tensor_randint(0, 64, 32));
    tensor_take(x, order);
    tensor_put(x, order, x, 1);
    tensor_searchsorted(tensor_sort(x, 1, 0).values, x);
    tensor_nonzero(tensor_gt_scalar(x, 0));
    few = tensor_abs(tensor_add_scalar(x, 9));
    tensor_multinomial(few, 7);
    tensor_randperm(5000);
}
static void matrix_kernels(void) {
    tensor_t *a = tensor_randn(8, 12, 12), *b = tensor_matmul(a, tensor_mT(a));
    b = tensor_add(b, tensor_eye(12, 12));
    tensor_matmul(tensor_randn(64, 128), tensor_randn(128, 96));
    tensor_linalg_cholesky(b, 0);
    tensor_linalg_solve(a, tensor_randn(8, 12, 3));
    tensor_linalg_lu(a);
    tensor_linalg_eigh(b, 0);
    tensor_linalg_svd(a, 0);
}
static void network_kernels(void) {
    tensor_t *image = leaf(tensor_randn(4, 8, 16, 16)), *last = leaf(tensor_channels_last(tensor_randn(4, 8, 16, 16)));
    tensor_t *kernel = leaf(tensor_randn(8, 8, 3, 3)), *ones = tensor_ones(8), *large = leaf(tensor_randn(4, 4, 96, 96));
    tensor_t *scale = leaf(tensor_ones(8)), *x = leaf(tensor_randn(6, 4, 16)), *h = NULL, *c = NULL, *y;
    nn_module_t *net = nn_lstm(16, 16);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_graph_t *g;
    back(image, tensor_conv2d(image, kernel, ones, .padding = 1));
    back(last, tensor_conv2d(last, kernel, ones, .padding = 1));
    back(image, tensor_group_norm(image, 4, scale, scale));
    for (int64_t columns = 512; columns < 5000; columns += 2003) {
        tensor_t *rows = leaf(tensor_randn(16, columns)), *weight = leaf(tensor_ones(columns));
        back(rows, tensor_layer_norm(rows, 1, weight, weight));
        back(rows, tensor_rms_norm(rows, 1, weight));
    }
    back(last, tensor_max_pool2d(last, 2));
    back(last, tensor_avg_pool2d(last, 2));
    back(large, tensor_batch_norm(large, NULL, NULL, tensor_narrow(scale, 0, 0, 4), tensor_narrow(scale, 0, 0, 4),
                                  .training = 1));
    tensor_batch_norm(tensor_detach(last), ones, ones, ones, ones);
    back(image, tensor_im2col(image, 3));
    back(image, tensor_mse_loss(image, tensor_zeros_like(image)));
    y = leaf(tensor_log_softmax(tensor_randn(9, 2, 5), 2));
    tensor_backward(tensor_ctc_loss(y, tensor_ones_of(TENSOR_I64, 2, 3), tensor_full_of(TENSOR_I64, 9, 2),
                                    tensor_full_of(TENSOR_I64, 2, 2)));
    y = leaf(tensor_randn(1, 2, 1, 32));
    tensor_scaled_dot_product_attention(y, tensor_randn(1, 2, 200, 32), tensor_randn(1, 2, 200, 32));
    tensor_scatter_add(tensor_zeros(4, 100), 1, tensor_randint(0, 100, 4, 300), tensor_randn(4, 300));
    nn_to(net, TENSOR_CUDA);
    tensor_backward(tensor_sum(nn_lstm_forward(net, x, &h, &c)));
    nn_clip_grad_norm(opt, 1);
    nn_step(opt);
    tensor_capture_begin(TENSOR_CUDA);
    nn_step(opt);
    g = tensor_capture_end();
    tensor_graph_replay(g);
    tensor_graph_free(g);
    nn_optimizer_free(opt);
    nn_free(net);
}
static void others(void) {
    static void (*const all[])(void) = {pointwise_kernels, order_kernels, matrix_kernels, network_kernels};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_set_default_device(TENSOR_CUDA);
        tensor_manual_seed(2);
        all[k]();
        tensor_set_default_device(TENSOR_CPU);
        tensor_scope_end(scope);
        if (!tensor_ok()) {
            printf("others %d: %s\n", (int)k, tensor_error_text());
            tensor_clear_error();
            failed = 1;
        }
    }
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    char line[200];
    while (file && olds < ROWS && fgets(line, sizeof line, file)) {
        struct row_t *r = &old[olds];
        char *at = line + strcspn(line, "\n");
        int k, spaces = 0;
        while (at > line && spaces < COUNTS) { spaces += *--at == ' '; }
        *at = 0;
        snprintf(r->name, sizeof r->name, "%.63s", line);
        for (k = 0, at++; k < COUNTS; k++) { r->n[k] = strtol(at, &at, 10); }
        olds++;
    }
    if (file) { fclose(file); }
    if (olds) {
        int k;
        printf("| op");
        for (k = 0; k < COUNTS; k++) { printf(" | %s", titles[k]); }
        printf(" |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    }
    cusim_set("shuffle", 0);                    // the counts stay
    cusim_set("sms", 132);                      // an H200's
    if (tensor_cuda_init()) { return 1; }
    for (dtype = TENSOR_F32; dtype <= TENSOR_BF16; dtype += TENSOR_BF16 - TENSOR_F32) {
        const char *suffix = dtype == TENSOR_F32 ? "" : ", bf16";
        tensor_manual_seed(1);
        rows(suffix);
        networks(suffix);
        more_rows(suffix);
        layers(suffix);
    }
    others();
    if (tensor_cuda_fallbacks()) {
        printf("%d calls ran on the CPU\n", (int)tensor_cuda_fallbacks());
        failed = 1;
    }
    tensor_shutdown();
    return tensor_cuda_shutdown() || failed;
}

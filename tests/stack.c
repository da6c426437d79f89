// stack.c - bytes of stack that a thread needs for each family of calls, on each instruction set
//
//   stack           no family needs more than its limit below
//   stack print     the table of docs/stack.md (make stack-usage)
//
// A thread runs the calls on a stack that was painted before; the deepest byte that changed is its depth,
// less that of a thread that does nothing. So this is what ran, libc included, and not the sum over a graph
// of calls: most calls here go through tables of kernels, and the deepest path of such a graph is one that no
// program takes. Where a limit is in the way, -fstack-usage says whose frame it is.
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE // pthread_attr_setstack
#endif
#include "test.h"
#include <pthread.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

enum { ROOM = 1 << 20, PAINT = 0xA5, KB = 1024 };

// ---- families ----

static void nothing(void) {}
static void creation(void) {
    tensor_zeros(4, 5), tensor_arange(0, 9, 1, TENSOR_F32), tensor_eye(4, 4), tensor_full(2, 300, 300);
    tensor_from(((float[]){1, 2, 3}), TENSOR_F32, 3);
}
static void random_numbers(void) {
    tensor_randn(100, 100), tensor_rand(7), tensor_randint(0, 9, 50), tensor_randperm(100);
    tensor_multinomial(tensor_ones(4), 1), tensor_dropout(tensor_ones(50), 0.5, 1);
}
static void views(void) {
    tensor_t *x = tensor_randn(4, 6);
    tensor_reshape(tensor_transpose(x, 0, 1), 3, 8), tensor_permute(x, 1, 0), tensor_at(x, "1:, ::2");
    tensor_expand(tensor_unsqueeze(x, 0), 3, 4, 6), tensor_contiguous(tensor_mT(x));
}
static void pointwise(void) {
    tensor_t *x = tensor_randn(40, 60), *row = tensor_randn(60), *h = tensor_to(x, TENSOR_F16);
    tensor_add(x, row), tensor_exp(x), tensor_gelu(x), tensor_mul(tensor_mT(x), tensor_mT(x)), tensor_tanh(h);
    tensor_where(tensor_gt_scalar(x, 0), x, tensor_neg(x)), tensor_pow_scalar(x, 2.5), tensor_add_(x, row);
    tensor_lgamma(tensor_to(x, TENSOR_F64)), tensor_to(x, TENSOR_I8);
}
static void reductions(void) {
    tensor_t *x = tensor_randn(40, 600);
    tensor_sum(x), tensor_mean_dim(x, 0, 0), tensor_var_dim(x, 1, 1, 0), tensor_argmax(x),
        tensor_cumsum(x, 1);
    tensor_softmax(x, 1), tensor_log_softmax(x, 0), tensor_logsumexp(x, 1, 0), tensor_max_dim(x, 0, 0);
    tensor_layer_norm(x, 1), tensor_norm(x), tensor_std(tensor_to(x, TENSOR_BF16), 1);
}
static void sorting(void) {
    tensor_t *x = tensor_randn(5, 3000);
    tensor_sort(x, 1, 0), tensor_topk(x, 10, 1, 1, 1), tensor_unique(tensor_round(x), NULL, NULL),
        tensor_median(x);
    tensor_sort(tensor_randn(3, 9), 1, 1);
}
static void indexing(void) {
    tensor_t *x = tensor_randn(20, 30), *i = tensor_randint(0, 20, 7);
    tensor_index_select(x, 0, i), tensor_cat(0, x, x), tensor_stack(0, x, x), tensor_nonzero(x),
        tensor_roll(x, 3, 0);
    tensor_gather(x, 0, tensor_zeros_of(TENSOR_I64, 2, 30)), tensor_embedding(i, x), tensor_flip(x, 0);
    tensor_einsum("ij,kj->ik", x, x), tensor_rearrange(x, "(a b) c -> a (b c)", .a = 4);
}
static void products(void) {
    tensor_t *x = tensor_randn(20, 30), *big = tensor_randn(300, 300), *b = tensor_randn(3, 20, 30);
    tensor_matmul(x, tensor_mT(x)), tensor_matmul(big, big), tensor_bmm(b, tensor_mT(b)),
        tensor_linear(x, x, NULL);
    tensor_matmul(tensor_select(big, 0, 1), big),
        tensor_matmul(tensor_to(big, TENSOR_BF16), tensor_to(big, TENSOR_BF16));
    tensor_matmul(tensor_to(big, TENSOR_F64), tensor_to(big, TENSOR_F64)),
        tensor_matmul(tensor_randn(700, 3), tensor_randn(3, 5));
    tensor_matmul(tensor_ones_of(TENSOR_I32, 20, 20), tensor_ones_of(TENSOR_I32, 20, 20));
}
static void linear_algebra(void) {
    tensor_t *x = tensor_randn(20, 20), *s = tensor_add(tensor_matmul(x, tensor_mT(x)), tensor_eye(20, 20));
    tensor_linalg_inv(s), tensor_linalg_svd(x, 0), tensor_linalg_eigh(s, 0), tensor_linalg_qr(x, "reduced");
    tensor_linalg_cholesky(s, 0), tensor_linalg_solve(s, x), tensor_linalg_det(s), tensor_linalg_pinv(x);
    tensor_linalg_matrix_exp(tensor_mul_scalar(x, 0.1)), tensor_linalg_norm(x, "2", NULL, 0, 0);
}
static void convolution(void) {
    tensor_t *x = tensor_randn(2, 3, 12, 12), *w = tensor_randn(5, 3, 3, 3),
             *wide = tensor_randn(2, 32, 20, 20);
    tensor_conv2d(x, w), tensor_conv2d(wide, tensor_randn(32, 32, 3, 3), NULL, .padding = 1);
    tensor_conv2d(wide, tensor_randn(32, 32, 5, 5), NULL, .stride = 2),
        tensor_conv1d(tensor_randn(2, 3, 50), tensor_randn(4, 3, 7));
    tensor_conv3d(tensor_randn(1, 2, 5, 6, 7), tensor_randn(3, 2, 3, 3, 3)),
        tensor_conv_transpose2d(x, tensor_randn(3, 4, 3, 3));
    tensor_conv2d(wide, tensor_randn(32, 1, 3, 3), NULL, .groups = 32);
}
static void pooling(void) {
    tensor_t *x = tensor_randn(2, 3, 12, 12);
    tensor_max_pool2d(x, 2), tensor_avg_pool2d(x, 3),
        tensor_interpolate(x, .scale_factor = 2, .mode = TENSOR_BICUBIC);
    tensor_adaptive_avg_pool2d(x, 3, 3), tensor_batch_norm(x, NULL, NULL, .training = 1),
        tensor_group_norm(x, 3);
}
static void attention(void) {
    tensor_t *q = tensor_randn(2, 4, 40, 16);
    tensor_scaled_dot_product_attention(q, q, q),
        tensor_scaled_dot_product_attention(q, q, q, NULL, .is_causal = 1);
}
static void losses(void) {
    tensor_t *x = tensor_randn(20, 10), *k = tensor_randint(0, 10, 20);
    tensor_cross_entropy(x, k), tensor_mse_loss(x, x), tensor_nll_loss(x, k);
    tensor_binary_cross_entropy_with_logits(x, tensor_sigmoid(x)), tensor_smooth_l1_loss(x, x);
}
static void texts(void) {
    char text[100];
    tensor_to_string(tensor_randn(30, 30), text, sizeof text);
    tensor_add(tensor_ones(2), tensor_ones(3)), tensor_clear_error(), tensor_memory_report(text, sizeof text);
}
static void backward_core(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(20, 20), 1),
             *y = tensor_softmax(tensor_matmul(x, tensor_exp(x)), 1), *g;
    y = tensor_sum(tensor_square(y));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
    tensor_backward(tensor_sum(tensor_square(g)));
}
static void backward_convolution(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(2, 16, 12, 12), 1),
             *w = tensor_requires_grad_(tensor_randn(16, 16, 3, 3), 1);
    tensor_backward(tensor_sum(tensor_max_pool2d(tensor_conv2d(x, w, NULL, .padding = 1), 2)));
}

// Nets, made in the main thread; their threads only use them.
enum { MLP, CONVNET, RECURRENT, TRANSFORMER, NETS };
static nn_module_t *nets[NETS];
static tensor_t *inputs[NETS];
static nn_optimizer_t *optimizers[NETS];
static void make_nets(void) {
    int k;
    nets[MLP] = nn_sequential(nn_linear(16, 64), nn_relu(), nn_dropout(0.1), nn_linear(64, 10));
    inputs[MLP] = tensor_keep(tensor_randn(8, 16));
    nets[CONVNET] =
        nn_sequential(nn_conv2d(3, 16, 3, .padding = 1), nn_batch_norm2d(16), nn_relu(), nn_max_pool2d(2),
                      nn_conv2d(16, 32, 3, .padding = 1), nn_relu(), nn_flatten(), nn_linear(32 * 36, 10));
    inputs[CONVNET] = tensor_keep(tensor_randn(2, 3, 12, 12));
    nets[RECURRENT] = nn_lstm(8, 12, .layers = 2);
    inputs[RECURRENT] = tensor_keep(tensor_randn(6, 2, 8));
    nets[TRANSFORMER] = nn_transformer_encoder_layer(16, 4, .feedforward = 32);
    inputs[TRANSFORMER] = tensor_keep(tensor_randn(6, 2, 16));
    for (k = 0; k < NETS; k++) { optimizers[k] = nn_adamw(nets[k]); }
}
static void infer(int k) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    nn_eval(nets[k]);
    nn_forward(nets[k], inputs[k]);
    nn_train(nets[k]);
    tensor_scope_end(s);
}
static void train_step(int k) {
    tensor_t *loss = tensor_mean(tensor_square(nn_forward(nets[k], inputs[k])));
    nn_zero_grad(optimizers[k]);
    tensor_backward(loss);
    nn_clip_grad_norm(optimizers[k], 1);
    nn_step(optimizers[k]);
}
static void infer_mlp(void) {
    infer(MLP);
}
static void infer_convnet(void) {
    infer(CONVNET);
}
static void infer_recurrent(void) {
    infer(RECURRENT);
}
static void infer_transformer(void) {
    infer(TRANSFORMER);
}
static void train_mlp(void) {
    train_step(MLP);
}
static void train_convnet(void) {
    train_step(CONVNET);
}
static void train_recurrent(void) {
    train_step(RECURRENT);
}
static void train_transformer(void) {
    train_step(TRANSFORMER);
}
static void layers(void) {
    nn_module_t *m = nn_sequential(nn_linear(4, 4), nn_conv2d(2, 3, 3), nn_lstm(3, 4)), *copy = nn_clone(m);
    nn_free(copy);
    nn_free(m);
}
static void other_optimizers(void) {
    nn_module_t *m = nn_linear(6, 4, .no_bias = 1);
    nn_optimizer_t *o[3];
    int k;
    o[0] = nn_muon(m), o[1] = nn_sgd(m, .lr = 0.1), o[2] = nn_rmsprop(m);
    for (k = 0; k < 3; k++) {
        nn_zero_grad(o[k]);
        tensor_backward(tensor_sum(tensor_square(nn_forward(m, tensor_ones(2, 6)))));
        nn_step(o[k]);
        nn_optimizer_free(o[k]);
    }
    nn_free(m);
}
static void files(void) {
    const char *path = "stack.safetensors";
    int64_t step = 0;
    nn_save_checkpoint(path, nets[CONVNET], optimizers[CONVNET], 1);
    nn_load_checkpoint(path, nets[CONVNET], optimizers[CONVNET], &step);
    nn_load(path, nets[CONVNET], .partial = 1);
    remove(path);
}

// limit: bytes, of any instruction set, at -O2; see docs/stack.md.
static const struct family_t {
    const char *name, *what;
    void (*run)(void);
    int limit;
} families[] = {
    {"creation", "zeros, arange, eye, from", creation, 24 * KB},
    {"random", "randn, randint, multinomial, dropout", random_numbers, 24 * KB},
    {"views", "reshape, permute, at, contiguous", views, 24 * KB},
    {"pointwise", "add, exp, where, pow, casts", pointwise, 24 * KB},
    {"reductions", "sum, var, argmax, softmax, norms", reductions, 24 * KB},
    {"sorting", "sort, topk, unique, median", sorting, 24 * KB},
    {"indexing", "gather, cat, embedding, einsum, rearrange", indexing, 24 * KB},
    {"products", "matmul of f32, f64, bf16, i32", products, 24 * KB},
    {"linear algebra", "svd, eigh, qr, inv, solve, matrix_exp", linear_algebra, 24 * KB},
    {"convolution", "conv1d, 2d, 3d, transposed, grouped", convolution, 24 * KB},
    {"pooling", "pools, interpolate, batch and group norm", pooling, 24 * KB},
    {"attention", "scaled_dot_product_attention", attention, 24 * KB},
    {"losses", "cross_entropy, mse_loss, smooth_l1_loss", losses, 24 * KB},
    {"texts", "to_string, errors, memory_report", texts, 24 * KB},
    {"backward", "of softmax, matmul, exp, twice", backward_core, 24 * KB},
    {"backward of convolution", "conv2d, max_pool2d", backward_convolution, 24 * KB},
    {"making layers", "linear, conv2d, lstm, clone", layers, 24 * KB},
    {"inference, linear net", "nn_sequential", infer_mlp, 16 * KB},
    {"inference, convolutional net", "nn_sequential", infer_convnet, 16 * KB},
    {"inference, recurrent net", "two layers of LSTM", infer_recurrent, 16 * KB},
    {"inference, transformer layer", "encoder layer", infer_transformer, 16 * KB},
    {"training step, linear net", "with AdamW and clipping", train_mlp, 24 * KB},
    {"training step, convolutional net", "with AdamW and clipping", train_convnet, 24 * KB},
    {"training step, recurrent net", "with AdamW and clipping", train_recurrent, 24 * KB},
    {"training step, transformer layer", "with AdamW and clipping", train_transformer, 24 * KB},
    {"other optimizers", "Muon, SGD, RMSprop", other_optimizers, 24 * KB},
    {"files", "checkpoints saved and loaded", files, 24 * KB},
};
enum { FAMILIES = (int)(sizeof families / sizeof families[0]) };

// ---- measuring ----

#ifdef __linux__
static unsigned char *room; // of a stack; the page below it may not be touched
static void *run_family(void *family) {
    const struct family_t *f = (const struct family_t *)family;
    if (f) {
        tensor_scope_t s = tensor_scope_begin();
        f->run();
        tensor_scope_end(s);
        CHECK_OK();
        tensor_thread_end();
    } else {
        nothing();
    }
    return NULL;
}
// Bytes that a thread used of its stack.
static long depth_of(const struct family_t *f) {
    pthread_attr_t attributes;
    pthread_t thread;
    long k;
    memset(room, PAINT, ROOM);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, room, ROOM) != 0 ||
        pthread_create(&thread, &attributes, run_family, (void *)(uintptr_t)f) != 0) {
        return -1;
    }
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    for (k = 0; k < ROOM && room[k] == PAINT; k++) {}
    return ROOM - k;
}
static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon"};
enum { ISAS = 5 };
static long depths[FAMILIES][ISAS];

static void measure(void) {
    long base;
    int i, k;
    room =
        (unsigned char *)mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == (unsigned char *)MAP_FAILED || mprotect(room, 4096, PROT_NONE)) { exit(1); }
    room += 4096;
    base = depth_of(NULL);
    for (i = 0; i < ISAS; i++) {
        if (tensor_set_isa(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        for (k = 0; k < FAMILIES; k++) {
            tensor_scope_t s = tensor_scope_begin();
            families[k].run(); // what is made once is there
            tensor_scope_end(s);
            depths[k][i] = depth_of(&families[k]) - base;
        }
    }
    tensor_set_isa(NULL);
}
static void limits(void) {
    int i, k;
    measure();
    for (k = 0; k < FAMILIES; k++) {
        for (i = 0; i < ISAS; i++) {
            CHECK_MSG(depths[k][i] <= families[k].limit, "%s on %s takes %ld bytes of stack, over %d",
                      families[k].name, isas[i], depths[k][i], families[k].limit);
        }
    }
}
static void print_table(void) {
    int i, k;
    measure();
    printf("# Stack\n\nBytes of stack that a thread needs for each family of calls, without what an empty "
           "thread needs, as "
           "`make\nstack-usage` measures them: the calls run in a thread on a painted stack (gcc, -O2, one "
           "thread).\n\n");
    printf("| calls | such as |");
    for (i = 0; i < ISAS; i++) {
        if (depths[0][i]) { printf(" %s |", isas[i]); }
    }
    printf("\n|---|---|");
    for (i = 0; i < ISAS; i++) {
        if (depths[0][i]) { printf("---:|"); }
    }
    for (k = 0; k < FAMILIES; k++) {
        printf("\n| %s | %s |", families[k].name, families[k].what);
        for (i = 0; i < ISAS; i++) {
            if (depths[0][i]) { printf(" %ld |", depths[k][i]); }
        }
    }
    printf("\n\nProducts of matrices whose columns must be copied (a linear layer over more than two rows) "
           "take 8 KB more on "
           "avx512\nif 65 to 128 terms are summed, elementwise operations of more than four operands of f64 "
           "or eight of f32 "
           "11 KB more.\nA sanitizer's build and one without optimisation take several times as much.\n");
}
#endif

int main(int argc, char **argv) {
    int k;
    make_nets();
    for (k = 0; k < NETS; k++) { // what an optimizer keeps is there
        tensor_scope_t s = tensor_scope_begin();
        train_step(k);
        tensor_scope_end(s);
    }
#ifndef __linux__
    (void)argc, (void)argv;
    printf("skipped 1 test of stacks: not Linux\n");
#else
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        print_table();
        return 0;
    }
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    RUN(limits);
#else
    printf("skipped 1 test of stacks: sanitizers and builds without optimisation have larger frames\n");
#endif
#endif
    return test_report();
}

// fashion_mnist.c - the accuracy that small networks reach on Fashion-MNIST, and what the loader costs
//
//   fashion_mnist cnn|mlp EPOCHS SEED WORKERS      with DATA=folder of the four files, unpacked
//
// Every picture is flipped or not and, for the CNN, moved by up to two pixels, by kit/transforms.h on the
// loader's workers. Output: a line per epoch, then the accuracy in percent of the last epoch and the share of
// the time of training, in percent, in which the network did not wait for the loader. make fashion-proof
// judges the accuracy.
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE // clock_gettime
#endif
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIT_IDX_IMPLEMENTATION
#include "../examples/kit/idx.h"
#define KIT_TRANSFORMS_IMPLEMENTATION
#include "../examples/kit/transforms.h"

enum { SIDE = 28, BATCH = 64, TESTED = 1000 };

typedef struct pictures_t {
    tensor_t *x, *y; // u8 [N, SIDE, SIDE], [N]
    int reach;       // pixels by which a picture is moved at most
} pictures_t;

static tensor_t *read_file(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s-ubyte", getenv("DATA") ? getenv("DATA") : "build/fashion-mnist", name);
    return kit_read_idx(path);
}

// Bytes [N, 1, SIDE, SIDE] -> mean 0 and deviation 1 over the pictures of Fashion-MNIST.
static tensor_t *levels(tensor_t *bytes) {
    const double mean = 0.2860, std = 0.3530;
    return kit_normalize(tensor_div_scalar(tensor_to(bytes, TENSOR_F32), 255), &mean, &std);
}

// A batch, on a worker. What is drawn comes from the first item's generator, which is the thread's here.
static int augmented(void *user, nn_item_t *items, int64_t n, tensor_t **x, tensor_t **y) {
    const pictures_t *p = (const pictures_t *)user;
    int64_t chosen[BATCH];
    for (int64_t i = 0; i < n; i++) {
        chosen[i] = items[i].index;
    }
    tensor_t *at = tensor_from(chosen, TENSOR_I64, n);
    tensor_t *bytes = tensor_unsqueeze(tensor_index_select(p->x, 0, at), 1);
    if (p->reach > 0) {
        bytes = kit_random_crop(NULL, bytes, SIDE, SIDE, p->reach);
    }
    *x = levels(kit_random_horizontal_flip(NULL, bytes, 0.5));
    *y = tensor_to(tensor_index_select(p->y, 0, at), TENSOR_I64);
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double accuracy(nn_module_t *net, tensor_t *x, tensor_t *y) {
    double right = 0;
    int64_t n = tensor_size(x, 0);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_eval(net);
    for (int64_t i = 0; i < n; i += TESTED, tensor_scope_reset(scope)) {
        tensor_t *part = levels(tensor_unsqueeze(tensor_narrow(x, 0, i, TESTED), 1));
        tensor_t *said = tensor_argmax_dim(nn_forward(net, part), 1, 0);
        tensor_t *truth = tensor_to(tensor_narrow(y, 0, i, TESTED), TENSOR_I64);
        right += tensor_item(tensor_sum(tensor_eq(said, truth)));
    }
    nn_train(net);
    tensor_scope_end(scope);
    return 100 * right / (double)n;
}

int main(int argc, char **argv) {
    int cnn = argc < 2 || strcmp(argv[1], "mlp") != 0, epochs = argc > 2 ? atoi(argv[2]) : 15;
    tensor_manual_seed(argc > 3 ? (uint64_t)atoi(argv[3]) : 1);
    tensor_t *x = read_file("train-images-idx3"), *y = read_file("train-labels-idx1");
    tensor_t *test_x = read_file("t10k-images-idx3"), *test_y = read_file("t10k-labels-idx1");
    if (!tensor_ok()) { return 2; }

    nn_module_t *net;
    if (cnn) {
        net = nn_sequential(nn_conv2d(1, 16, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                            nn_conv2d(16, 32, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                            nn_conv2d(32, 64, 3, .padding = 1), nn_relu(), nn_flatten(),
                            nn_linear(64 * 49, 128), nn_relu(), nn_dropout(0.3), nn_linear(128, 10));
    } else {
        net = nn_sequential(nn_flatten(), nn_linear(SIDE * SIDE, 256), nn_relu(),
                            nn_linear(256, 128), nn_relu(), nn_linear(128, 10));
    }
    nn_optimizer_t *opt = nn_adam(net);
    pictures_t pictures = {x, y, cnn ? 2 : 0};
    nn_dataset_t set;
    memset((void *)&set, 0, sizeof set);
    set.len = tensor_size(x, 0);
    set.collate = augmented;
    set.user = &pictures;
    nn_data_loader_t *batches = nn_data_loader(set, .batch_size = BATCH, .shuffle = 1, .drop_last = 1,
                                               .num_workers = argc > 4 ? atoi(argv[4]) : 2);
    int64_t steps = nn_num_batches(batches) * epochs, step = 0;
    double waited = 0, begin = now(), reached = 0, tested = 0;
    for (int epoch = 1; epoch <= epochs && tensor_ok(); epoch++) {
        tensor_scope_t scope = tensor_scope_begin();
        double sum = 0;
        for (;; tensor_scope_reset(scope)) {
            nn_batch_t b;
            double before = now();
            int more = nn_next(batches, &b);
            waited += now() - before;
            if (!more) { break; }
            double part = (double)step++ / (double)steps; // a fifth of the way up, then down to 0
            nn_set_lr(opt, 0.002 * (part < 0.2 ? 0.1 + 4.5 * part : (1 - part) / 0.8));
            tensor_t *loss = tensor_cross_entropy(nn_forward(net, b.x), b.y);
            nn_zero_grad(opt);
            tensor_backward(loss);
            nn_step(opt);
            sum += tensor_item(loss);
        }
        tensor_scope_end(scope);
        double before = now();
        reached = accuracy(net, test_x, test_y);
        tested += now() - before;
        printf("epoch %d   loss %.4f   accuracy %.2f %%   %.0f s\n", epoch,
               sum / (double)nn_num_batches(batches), reached, now() - begin);
        fflush(stdout);
    }
    printf("%.2f\n%.2f\n", reached, 100 * (1 - waited / (now() - begin - tested)));
    return tensor_shutdown() != 0;
}

// fashion.c - a small convolutional network on Fashion-MNIST: 60,000 pictures of 28 x 28 to learn, 10,000 to
// test. Debian and Ubuntu have them as the package dataset-fashion-mnist.
//
// Build: make fashion                       (DATA=folder EPOCHS=3 THREADS=2, given to make or as environment)
// Output: a progress bar, and after each epoch the loss and the share of test pictures named correctly.
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, TEST_BATCH = 1000 };

static tensor_t *read_file(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s-ubyte", getenv("DATA") ? getenv("DATA") : "build/fashion-mnist", name);
    tensor_t *t = nn_read_idx(path);
    if (!tensor_ok())
        fprintf(stderr, "fashion: cannot read %s\n"
                        "  get the files:  apt-get install dataset-fashion-mnist   then   make fashion\n"
                        "  or give the folder where they are:              make fashion DATA=folder\n", path);
    return t;
}

// Bytes [N, 28, 28] -> [N, 1, 28, 28], mean 0 and deviation 1 over the training pictures.
static tensor_t *pictures(tensor_t *bytes) {
    tensor_t *x = tensor_div_scalar(tensor_to(bytes, TENSOR_F32), 255);
    return tensor_unsqueeze(tensor_div_scalar(tensor_sub_scalar(x, 0.2860), 0.3530), 1);
}

// Per cent of the test pictures whose largest output is the right one.
static double accuracy(nn_module_t *net, tensor_t *x, tensor_t *y) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_data_loader_t *batches = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = TEST_BATCH);
    nn_batch_t b;
    double right = 0;
    nn_eval(net);
    for (; nn_next(batches, &b); tensor_scope_reset(scope)) {
        tensor_t *hit = tensor_eq(tensor_argmax_dim(nn_forward(net, pictures(b.x)), 1, 0), b.y);
        right += tensor_item(tensor_sum(hit));
    }
    nn_train(net);
    nn_data_loader_free(batches);
    tensor_scope_end(scope);
    return 100 * right / (double)tensor_size(x, 0);
}

int main(void) {
    int epochs = getenv("EPOCHS") ? atoi(getenv("EPOCHS")) : 3;
    tensor_set_num_threads(getenv("THREADS") ? atoi(getenv("THREADS")) : tensor_num_processors());
    tensor_t *train_x = read_file("train-images-idx3"), *train_y = read_file("train-labels-idx1");
    tensor_t *test_x = read_file("t10k-images-idx3"), *test_y = read_file("t10k-labels-idx1");
    if (!tensor_ok()) return tensor_shutdown();

    tensor_manual_seed(1);
    nn_module_t *net = nn_sequential(
        nn_conv2d(1, 16, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
        nn_conv2d(16, 32, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
        nn_flatten(), nn_linear(32 * 7 * 7, 128), nn_relu(), nn_linear(128, 10));
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.02, .momentum = 0.9);
    nn_data_loader_t *batches = nn_data_loader(nn_tensor_dataset(train_x, tensor_to(train_y, TENSOR_I64)),
                                               .batch_size = BATCH, .shuffle = 1, .drop_last = 1);

    tensor_scope_t scope = tensor_scope_begin();
    for (int epoch = 1; epoch <= epochs && tensor_ok(); epoch++) {
        nn_progress_t bar = nn_progress_begin("pictures", nn_num_batches(batches) * BATCH, 0);
        double sum = 0;
        nn_batch_t b;
        for (; nn_next(batches, &b); tensor_scope_reset(scope)) {
            tensor_t *loss = tensor_cross_entropy(nn_forward(net, pictures(b.x)), b.y);
            nn_zero_grad(opt);
            tensor_backward(loss);
            nn_step(opt);
            sum += tensor_item(loss);
            nn_progress(&bar, (b.index + 1) * BATCH, NULL);
        }
        printf("epoch %d   loss %.4f   test accuracy %.2f %%\n", epoch, sum / (double)nn_num_batches(batches),
               accuracy(net, test_x, test_y));
    }
    tensor_scope_end(scope);
    return tensor_shutdown();
}

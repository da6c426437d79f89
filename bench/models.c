// models.c [threads] - training steps (forward, loss, backward, optimizer) and inferences of small nets.
#include "bench.h"

#include "tensor_nn.h"

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
} job_t;

static void train(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_cross_entropy(nn_forward(j->net, j->x), j->y);
        nn_zero_grad(j->opt);
        tensor_backward(loss);
        nn_step(j->opt);
    }
    tensor_scope_end(scope);
}
static void infer(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        (void)tensor_item_i64(tensor_argmax(nn_forward(j->net, j->x)));
    }
    tensor_scope_end(scope);
}
static void row(const char *name, job_t *j, void (*fn)(void *arg, long repeats)) {
    bench_row(name, 1e6 * bench_median(fn, j), "us");
}

static nn_module_t *mlp(void) {
    return nn_sequential(nn_linear(784, 512), nn_relu(), nn_linear(512, 256), nn_relu(), nn_linear(256, 10));
}
static nn_module_t *cnn(void) {
    return nn_sequential(nn_conv2d(1, 16, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                         nn_conv2d(16, 32, 5, .padding = 2), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                         nn_linear(1568, 128), nn_relu(), nn_linear(128, 10));
}

int main(int argc, char **argv) {
    job_t j;
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    tensor_scope_t scope = tensor_scope_begin();

    j.net = nn_sequential(nn_linear(8, 64), nn_relu(), nn_linear(64, 64), nn_relu(), nn_linear(64, 4));
    j.opt = nn_adam(j.net);
    j.x = tensor_randn(1, 8);
    row("rl_act", &j, infer);
    j.x = tensor_randn(32, 8);
    j.y = tensor_randint(0, 4, 32);
    row("rl_train_32", &j, train);

    j.net = mlp();
    j.opt = nn_adam(j.net);
    j.x = tensor_randn(1, 784);
    row("mlp_infer_1", &j, infer);
    for (int batch = 1; batch <= 128; batch = batch == 1 ? 32 : batch * 4) {
        char name[32];
        j.x = tensor_randn(batch, 784);
        j.y = tensor_randint(0, 10, batch);
        snprintf(name, sizeof name, "mlp_train_%d", batch);
        row(name, &j, train);
    }

    j.net = cnn();
    j.opt = nn_sgd(j.net, .lr = 0.02, .momentum = 0.9);
    j.x = tensor_randn(1, 1, 28, 28);
    j.y = tensor_randint(0, 10, 1);
    row("cnn_infer_1", &j, infer);
    row("cnn_train_1", &j, train);
    j.x = tensor_randn(64, 1, 28, 28);
    j.y = tensor_randint(0, 10, 64);
    row("cnn_train_64", &j, train);
    tensor_scope_end(scope);
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

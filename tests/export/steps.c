// steps.c - writes captured steps as C files into the folder argv[1], for tests/export.sh, and tests what
// cannot be written
#define TENSOR_BACKEND
#include "tensor_nn.h"
#define KIT_EXPORT_C_IMPLEMENTATION
#include "kit/export_c.h"

#include "../test.h"

#include <pthread.h>

enum { ITEMS = 6, MOST = 24 };

typedef tensor_t *(*loss_t)(tensor_t *y, tensor_t *target);

static const char *folder;
static tensor_t *seen;                  // the tensor that the file gives back
static int with_grads = 1;              // beside it, the gradients of all parameters
static int replays = 5;
static int squeezed;                    // in the least memory that it can be planned for

static void file_name(char *to, size_t room, const char *name) {
    snprintf(to, room, "%s/%s.c", folder, name);
}

// Writes what the parameters are by now: the exported file's are the same after the same steps.
static void write_parameters(const char *name, nn_module_t *net) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    FILE *f = fopen(path, "wb");
    tensor_t *list[MOST];
    int64_t n = nn_parameters(net, list, MOST);
    CHECK(f != NULL && n <= MOST);
    for (int64_t i = 0; i < n && f; i++) {
        tensor_t *w = tensor_detach(list[i]);
        size_t bytes = (size_t)tensor_numel(w) * 4;
        CHECK(fwrite(&bytes, sizeof bytes, 1, f) == 1 && fwrite(tensor_data(w), 1, bytes, f) == bytes);
    }
    CHECK(f && fclose(f) == 0);
}

// Plans a step for the least memory, which the error of a smaller budget names.
static void squeeze(tensor_graph_t *g) {
    const int64_t calls = tensor_graph_info(g).calls;
    CHECK(tensor_graph_set_memory_budget(g, 1) == TENSOR_ERR_OUT_OF_MEMORY);
    const char *least = strstr(tensor_error_text(), " take ");
    const uint64_t bytes = least ? strtoull(least + 6, NULL, 10) : 0;
    tensor_clear_error();
    CHECK(bytes < tensor_graph_info(g).packed_bytes && tensor_graph_set_memory_budget(g, bytes) == 0);
    CHECK(tensor_graph_info(g).calls > calls);
}

// Writes one step of training.   -> code
static int train(const char *name, nn_module_t *net, nn_optimizer_t *o, tensor_t *x, tensor_t *target,
                 loss_t loss, double clip) {
    tensor_graph_t *g = NULL;
    for (int i = 0; i < 2; i++) {
        if (i) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        tensor_scope_t scope = tensor_scope_begin();
        nn_zero_grad(o);
        tensor_t *l = loss(nn_forward(net, x), target);
        tensor_backward(l);
        if (clip > 0) { nn_clip_grad_norm(o, clip); }
        nn_step(o);
        if (!with_grads) { nn_zero_grad(o); }       // they are temporaries, or the optimizer makes them
        seen = tensor_scope_return(scope, tensor_detach(l));
        if (i) { g = tensor_capture_end(); }
    }
    CHECK_OK();
    if (squeezed) { squeeze(g); }
    char path[300];
    file_name(path, sizeof path, name);
    tensor_t *in[2] = {x, target}, *out[MOST] = {seen};
    const char *const names[] = {"x", "target"};
    tensor_t *parameters[MOST];
    int n = 1, count = with_grads ? nn_parameters(net, parameters, MOST - 1) : 0;
    CHECK(count < MOST);
    for (int i = 0; i < count; i++) { out[n++] = tensor_grad(parameters[i]); }
    kit_export_t e = {name, in, 2, names, out, n, NULL, 0, replays};
    int code = tensor_graph_export_c(g, path, &e);
    write_parameters(name, net);
    tensor_graph_free(g);
    nn_optimizer_free(o);
    nn_free(net);
    return code;
}

typedef tensor_t *(*forward_t)(nn_module_t *net, tensor_t *x);

// Writes a forward.   -> code
static int infer(const char *name, nn_module_t *net, tensor_t *x, forward_t forward, int int8) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scope_t inner = tensor_scope_begin();
    tensor_t *y = tensor_scope_return(inner, forward(net, x));
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    char path[300];
    file_name(path, sizeof path, name);
    tensor_t *in[1] = {x}, *out[1] = {y};
    kit_export_t e = {name, in, 1, NULL, out, 1, NULL, int8, 1};
    int code = tensor_graph_export_c(g, path, &e);
    tensor_graph_free(g);
    tensor_scope_end(scope);
    nn_free(net);
    return code;
}

// ---- training

static tensor_t *entropy(tensor_t *y, tensor_t *target) { return tensor_cross_entropy(y, target); }
static tensor_t *smooth_entropy(tensor_t *y, tensor_t *target) {
    return tensor_cross_entropy(y, target, .label_smoothing = 0.1);
}
static tensor_t *likelihood(tensor_t *y, tensor_t *target) { return tensor_nll_loss(y, target); }
static tensor_t *squares(tensor_t *y, tensor_t *target) { return tensor_mse_loss(y, target); }
static tensor_t *all_squares(tensor_t *y, tensor_t *target) {
    return tensor_mse_loss(y, target, .reduction = TENSOR_SUM);
}
static tensor_t *hubers(tensor_t *y, tensor_t *target) { return tensor_huber_loss(y, target, .delta = 0.5); }
static tensor_t *bits(tensor_t *y, tensor_t *target) {
    return tensor_binary_cross_entropy_with_logits(y, tensor_sigmoid(target));
}
static tensor_t *by_hand(tensor_t *y, tensor_t *target) {
    tensor_t *d = tensor_sub(y, target);
    return tensor_add(tensor_mean(tensor_abs(d)), tensor_mul_scalar(tensor_sum(tensor_square(d)), 0.01));
}

static nn_module_t *net(nn_module_t *activation, nn_module_t *last) {
    nn_module_t *m =
        nn_sequential(nn_linear(8, 16), activation, nn_linear(16, 12), nn_tanh(), nn_linear(12, 4));
    if (last) { nn_append(m, last); }
    return m;
}

static void trainings(void) {
    tensor_t *x = tensor_randn(ITEMS, 8), *k = tensor_randint(0, 4, ITEMS), *t = tensor_randn(ITEMS, 4);
    nn_module_t *m = net(nn_relu(), NULL);
    CHECK(train("sgd", m, nn_sgd(m, .lr = 0.05), x, k, entropy, 0) == 0);
    m = net(nn_gelu(), NULL);
    CHECK(train("momentum", m, nn_sgd(m, .lr = 0.05, .momentum = 0.9, .weight_decay = 0.01), x, t, squares,
                0) == 0);
    m = net(nn_silu(), NULL);
    CHECK(train("nesterov", m, nn_sgd(m, .lr = 0.05, .momentum = 0.9, .nesterov = 1), x, t, all_squares,
                0.5) == 0);
    m = nn_sequential(nn_linear(8, 16), nn_relu(), nn_dropout(0.2), nn_linear(16, 4));
    CHECK(train("adam", m, nn_adam(m, .lr = 0.01), x, k, entropy, 0.5) == 0);
    m = net(nn_sigmoid(), NULL);
    CHECK(train("adamw", m, nn_adamw(m, .lr = 0.01, .weight_decay = 0.1), x, t, hubers, 0) == 0);
    m = net(nn_gelu_tanh(), NULL);
    CHECK(train("amsgrad", m, nn_adam(m, .lr = 0.01, .amsgrad = 1), x, t, bits, 0) == 0);
    with_grads = 0;
    m = net(nn_gelu(), NULL);
    CHECK(train("one", m, nn_adam(m, .lr = 0.01), tensor_randn(1, 8), tensor_randint(0, 4, 1), entropy,
                0) == 0);
    with_grads = 1;
    m = net(nn_leaky_relu(0.1), nn_log_softmax(1));
    CHECK(train("likelihood", m, nn_sgd(m, .lr = 0.1), x, k, likelihood, 0) == 0);
    m = net(nn_softplus(1, 20), NULL);
    CHECK(train("smoothed", m, nn_sgd(m, .lr = 0.1), x, k, smooth_entropy, 0) == 0);
    m = net(nn_elu(1), NULL);
    CHECK(train("by_hand", m, nn_sgd(m, .lr = 0.1), x, t, by_hand, 0) == 0);
    m = nn_sequential(nn_linear(196, 32), nn_relu(), nn_linear(32, 10));
    with_grads = 0;
    CHECK(train("digits_train", m, nn_sgd(m, .lr = 0.1), tensor_rand(16, 196), tensor_randint(0, 10, 16),
                entropy, 0) == 0);
    with_grads = 1;
}

// ---- images

static nn_module_t *one_layer(nn_module_t *layer, int64_t features) {
    return nn_sequential(layer, nn_flatten(), nn_linear(features, 4));
}

static void image_trainings(void) {
    tensor_t *k = tensor_randint(0, 4, 3), *t = tensor_randn(3, 4);
    tensor_t *x = tensor_randn(3, 1, 28, 28), *colours = tensor_randn(3, 4, 9, 11),
             *line = tensor_randn(3, 4, 30);
    nn_module_t *m = nn_sequential(nn_conv2d(1, 4, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                                   nn_conv2d(4, 6, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                                   nn_flatten(), nn_linear(6 * 7 * 7, 16), nn_relu(), nn_linear(16, 4));
    CHECK(train("cnn", m, nn_sgd(m, .lr = 0.05, .momentum = 0.9), x, k, entropy, 0) == 0);
    // strides, groups, dilation; one channel to one; no bias
    m = nn_sequential(nn_conv2d(4, 6, 3, .stride = 2, .padding = 1, .groups = 2), nn_tanh(),
                      nn_conv2d(6, 6, 3, .padding = 1, .groups = 6), nn_flatten(), nn_linear(6 * 5 * 6, 4));
    CHECK(train("groups", m, nn_sgd(m, .lr = 0.05), colours, t, squares, 0) == 0);
    m = nn_sequential(nn_conv2d(4, 8, 1), nn_relu(), nn_conv2d(8, 5, 3, .dilation = 2, .no_bias = 1),
                      nn_flatten(), nn_linear(5 * 5 * 7, 4));
    CHECK(train("dilated", m, nn_adam(m, .lr = 0.01), colours, k, entropy, 0) == 0);
    m = nn_sequential(nn_conv1d(4, 8, 9, .padding = 4), nn_relu(), nn_max_pool1d(3),
                      nn_conv1d(8, 6, 3, .stride = 2), nn_relu(), nn_avg_pool1d(2), nn_flatten(),
                      nn_linear(12, 4));
    CHECK(train("conv1d", m, nn_sgd(m, .lr = 0.05), line, t, squares, 0) == 0);
    m = nn_sequential(nn_conv2d(4, 6, 3, .padding = 1), nn_batch_norm2d(6), nn_relu(),
                      nn_avg_pool2d(3, .stride = 2, .padding = 1), nn_group_norm(3, 6),
                      nn_max_pool2d(3, .stride = 2, .padding = 1), nn_adaptive_avg_pool2d(2, 2), nn_flatten(),
                      nn_linear(24, 4));
    CHECK(train("norms", m, nn_sgd(m, .lr = 0.05), colours, k, entropy, 0) == 0);
    m = nn_sequential(nn_linear(8, 12), nn_batch_norm1d(12), nn_relu(), nn_linear(12, 4));
    CHECK(train("norm1d", m, nn_sgd(m, .lr = 0.05), tensor_randn(ITEMS, 8), tensor_randn(ITEMS, 4), squares,
                0) == 0);
    m = one_layer(nn_conv2d(4, 3, 4, .stride = 3, .no_bias = 1), 18);
    CHECK(train("strided", m, nn_sgd(m, .lr = 0.05), colours, t, squares, 0) == 0);
    m = one_layer(nn_conv_transpose2d(4, 3, 3, .stride = 2, .padding = 1), 3 * 17 * 21);
    CHECK(train("transposed", m, nn_sgd(m, .lr = 0.01), colours, t, squares, 0) == 0);
}

// Steps with calls that are computed a second time.
static void squeezed_trainings(void) {
    squeezed = 1;
    nn_module_t *m = nn_sequential(nn_conv2d(4, 6, 3, .padding = 1), nn_batch_norm2d(6), nn_relu(),
                                   nn_conv2d(6, 6, 3, .padding = 1), nn_group_norm(3, 6), nn_silu(),
                                   nn_conv2d(6, 6, 3, .padding = 1), nn_batch_norm2d(6), nn_relu(),
                                   nn_avg_pool2d(3), nn_flatten(), nn_linear(54, 4));
    CHECK(train("squeezed_cnn", m, nn_sgd(m, .lr = 0.05, .momentum = 0.9), tensor_randn(3, 4, 9, 11),
                tensor_randint(0, 4, 3), entropy, 0) == 0);
    m = nn_sequential(nn_linear(8, 64), nn_gelu(), nn_layer_norm(64), nn_linear(64, 60), nn_tanh(),
                      nn_dropout(0.2), nn_linear(60, 32), nn_silu(), nn_linear(32, 4));
    CHECK(train("squeezed_mlp", m, nn_adam(m, .lr = 0.01), tensor_randn(ITEMS, 8), tensor_randn(ITEMS, 4),
                squares, 0.5) == 0);
    squeezed = 0;
}

// The net of examples/fashion.c.
static nn_module_t *fashion(void) {
    return nn_sequential(nn_conv2d(1, 16, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                         nn_conv2d(16, 32, 5, .padding = 2), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                         nn_linear(32 * 7 * 7, 128), nn_relu(), nn_linear(128, 10));
}

// Shapes whose sums the library cuts: parts of the batch, blocks of pixels, chains of a product.
static void large_trainings(void) {
    replays = 1;
    nn_module_t *l = nn_linear(3, 7);
    CHECK(train("many_labels", l, nn_sgd(l, .lr = 0.1), tensor_randn(900, 3), tensor_randint(0, 7, 900),
                smooth_entropy, 0) == 0);
    l = nn_linear(2, 5);
    CHECK(train("many_squares", l, nn_sgd(l, .lr = 0.1), tensor_randn(1000, 2), tensor_randn(1000, 5),
                squares, 0) == 0);
    tensor_t *x = tensor_randn(10, 2, 28, 26), *t = tensor_randn(10, 4), *wide = tensor_randn(1, 40, 20, 60);
    nn_module_t *m = nn_sequential(nn_conv2d(2, 3, 3, .padding = 1), nn_relu(),
                                   nn_conv2d(3, 5, 5, .stride = 2), nn_flatten(), nn_linear(5 * 12 * 11, 4));
    CHECK(train("batch", m, nn_sgd(m, .lr = 0.001), x, t, squares, 0) == 0);
    m = nn_sequential(nn_conv2d(40, 36, 3, .stride = 2, .padding = 1), nn_tanh(), nn_conv2d(36, 40, 1),
                      nn_relu(), nn_max_pool2d(5), nn_flatten(), nn_linear(40 * 2 * 6, 4));
    CHECK(train("blocks", m, nn_sgd(m, .lr = 0.001), wide, tensor_randn(1, 4), squares, 0) == 0);
    m = nn_sequential(nn_conv2d(40, 4, 5), nn_tanh(), nn_conv2d(4, 6, 3, .stride = 3), nn_flatten(),
                      nn_linear(6 * 5 * 18, 4));
    CHECK(train("chains", m, nn_sgd(m, .lr = 0.001), wide, tensor_randn(1, 4), squares, 0) == 0);
    // dot products of more than 1024 terms; outputs in vectors: for some images, for a part of the lines
    m = nn_linear(1500, 6);
    CHECK(train("dots", m, nn_sgd(m, .lr = 0.001), tensor_randn(3, 1500), tensor_randn(3, 6), squares, 0)
          == 0);
    m = one_layer(nn_conv2d(8, 12, 3, .stride = 2), 12 * 4 * 3);
    CHECK(train("gathered", m, nn_sgd(m, .lr = 0.001), tensor_randn(19, 8, 9, 7), tensor_randn(19, 4),
                squares, 0) == 0);
    m = nn_sequential(nn_conv2d(32, 8, 3, .padding = 4, .dilation = 4), nn_relu(), nn_max_pool2d(4),
                      nn_flatten(), nn_linear(8 * 7 * 15, 4));
    CHECK(train("banded", m, nn_sgd(m, .lr = 0.001), tensor_randn(1, 32, 28, 60), tensor_randn(1, 4), squares,
                0) == 0);
    replays = 5;
    with_grads = 0;
    m = fashion();
    CHECK(train("fashion_train", m, nn_sgd(m, .lr = 0.02, .momentum = 0.9), tensor_randn(16, 1, 28, 28),
                tensor_randint(0, 10, 16), entropy, 0) == 0);
    with_grads = 1;
}

// ---- sequences

// A layer between an embedding and a classifier of each step.
static tensor_t *every_step(tensor_t *y, tensor_t *target) {
    return tensor_cross_entropy(tensor_reshape(y, -1, tensor_size(y, -1)), tensor_flatten(target, 0, -1));
}
static tensor_t *picked(tensor_t *y, tensor_t *target) {
    tensor_t *rows = tensor_gather(tensor_log_softmax(y, -1), -1, tensor_unsqueeze(target, -1));
    return tensor_neg(tensor_mean(tensor_index_select(rows, 0, tensor_select(target, 1, 0))));
}

// y has queries, keys and values side by side.
static tensor_t *attended(tensor_t *y, tensor_t *target, int causal, tensor_t *mask, double p) {
    tensor_t *part[3];
    for (int i = 0; i < 3; i++) { part[i] = tensor_narrow(y, -1, 4 * i, 4); }
    tensor_t *z = tensor_scaled_dot_product_attention(part[0], part[1], part[2], mask, .is_causal = causal,
                                                    .dropout_p = p);
    return tensor_mse_loss(z, target);
}
static tensor_t *all_seen(tensor_t *y, tensor_t *target) {
    return attended(y, target, 0, NULL, 0);
}
static tensor_t *past_seen(tensor_t *y, tensor_t *target) {
    return attended(y, target, 1, NULL, 0);
}
static tensor_t *some_seen(tensor_t *y, tensor_t *target) {
    return attended(y, target, 0, tensor_unsqueeze(tensor_gt_scalar(tensor_select(target, 2, 0), -1), 1), 0.2);
}
static tensor_t *some_more_seen(tensor_t *y, tensor_t *target) {
    return attended(y, target, 0, tensor_unsqueeze(tensor_select(target, 2, 1), 2), 0);
}

enum { WORDS = 11, WIDTH = 8, STEPS = 5 };

static nn_module_t *text_net(nn_module_t *layer) {
    return nn_sequential(nn_embedding(WORDS, WIDTH), layer, nn_linear(WIDTH, 3));
}

static void sequence_trainings(void) {
    tensor_t *words = tensor_randint(0, WORDS, 3, STEPS), *k = tensor_randint(0, 3, 3, STEPS);
    nn_module_t *m = text_net(nn_layer_norm(WIDTH));
    CHECK(train("layer_norm", m, nn_adam(m, .lr = 0.01), words, k, every_step, 0) == 0);
    m = text_net(nn_rms_norm(WIDTH));
    CHECK(train("rms_norm", m, nn_sgd(m, .lr = 0.1), words, k, picked, 0) == 0);
    m = text_net(nn_transformer_encoder_layer(WIDTH, 2, .feedforward = 16, .batch_first = 1));
    CHECK(train("transformer", m, nn_adamw(m, .lr = 0.01), words, k, every_step, 1) == 0);
    m = text_net(nn_lstm(WIDTH, WIDTH, .batch_first = 1));
    CHECK(train("lstm", m, nn_sgd(m, .lr = 0.1), words, k, every_step, 0) == 0);
    m = text_net(nn_gru(WIDTH, WIDTH, .batch_first = 1, .layers = 2));
    CHECK(train("gru", m, nn_sgd(m, .lr = 0.1), words, k, every_step, 0.5) == 0);
    m = text_net(nn_lstm(WIDTH, WIDTH / 2, .batch_first = 1, .bidirectional = 1));
    CHECK(train("both_ways", m, nn_adam(m, .lr = 0.01), words, k, every_step, 0) == 0);
    tensor_t *longer = tensor_randn(2, 70, 6), *z = tensor_randn(2, 70, 4);
    m = nn_linear(6, 12);
    CHECK(train("attention", m, nn_sgd(m, .lr = 0.1), longer, z, all_seen, 0) == 0);
    m = nn_linear(6, 12);
    CHECK(train("causal", m, nn_sgd(m, .lr = 0.1), longer, z, past_seen, 0) == 0);
    m = nn_linear(6, 12);
    CHECK(train("masked", m, nn_sgd(m, .lr = 0.1), longer, z, some_seen, 0) == 0);
    m = nn_linear(6, 12);
    CHECK(train("added_mask", m, nn_sgd(m, .lr = 0.1), longer, z, some_more_seen, 0) == 0);
    // more gates than a chain of a product is long
    replays = 1;
    m = nn_sequential(nn_lstm(5, 130, .batch_first = 1), nn_linear(130, 3));
    CHECK(train("gates", m, nn_sgd(m, .lr = 0.1), tensor_randn(2, 3, 5), tensor_randint(0, 3, 2, 3),
                every_step, 0) == 0);
    replays = 5;
    // rows of a table with very many indices
    m = nn_sequential(nn_embedding(2, 4), nn_linear(4, 3));
    CHECK(train("table", m, nn_sgd(m, .lr = 0.1), tensor_randint(0, 2, 40, 15), tensor_randint(0, 3, 40, 15),
                every_step, 0) == 0);
    m = text_net(nn_rnn(WIDTH, WIDTH, .no_bias = 1));
    CHECK(train("rnn", m, nn_sgd(m, .lr = 0.1), words, k, every_step, 0) == 0);
}

// ---- inference

static tensor_t *plain(nn_module_t *m, tensor_t *x) { return nn_forward(m, x); }
static tensor_t *sums(nn_module_t *m, tensor_t *x) {
    tensor_t *y = nn_forward(m, x);
    tensor_t *rows = tensor_add(tensor_sum_dim(y, 1, 1), tensor_amax_dim(y, 1, 1));
    tensor_t *columns = tensor_mean_dim(y, 0, 1);
    return tensor_add(tensor_matmul(tensor_transpose(y, 0, 1), y), tensor_mul(columns, tensor_mean(rows)));
}

// Seven dims that no loop joins.
static tensor_t *dims(nn_module_t *m, tensor_t *x) {
    tensor_t *y = tensor_permute(nn_forward(m, x), 6, 4, 2, 0, 5, 3, 1);
    tensor_t *z = tensor_add(y, tensor_reshape(tensor_arange(0, 10, 1, TENSOR_F32), 1, 5, 1, 1, 1, 2, 1));
    return tensor_add(tensor_sum_dim(tensor_sum_dim(z, 5, 0), 2, 0),
                      tensor_sum_dim(tensor_sum_dim(z, 5, 0), 2, 0));
}

static tensor_t *scaled(nn_module_t *m, tensor_t *x) { return tensor_mul_scalar(nn_forward(m, x), 0.5); }

static void inferences(void) {
    const float signs[4] = {1, -0.0f, NAN, -INFINITY};
    CHECK(infer("signs", nn_identity(), tensor_from(signs, TENSOR_F32, 4), scaled, 0) == 0);
    CHECK(infer("dims", nn_relu(), tensor_randn(2, 3, 4, 2, 5, 2, 3), dims, 0) == 0);
    CHECK(infer("softmax", nn_eval(net(nn_relu(), nn_softmax(1))), tensor_randn(ITEMS, 8), plain, 0) == 0);
    CHECK(infer("sums", nn_eval(net(nn_hardtanh(-1, 1), NULL)), tensor_randn(ITEMS, 8), sums, 0) == 0);
    CHECK(infer("one", nn_eval(net(nn_gelu(), nn_log_softmax(-1))), tensor_randn(8), plain, 0) == 0);
    nn_module_t *m = nn_sequential(nn_linear(196, 32), nn_relu(), nn_linear(32, 10));
    nn_module_t *small = nn_clone(m);
    tensor_t *x = tensor_rand(1, 196);
    CHECK(infer("digits", nn_eval(m), x, plain, 0) == 0);
    CHECK(infer("digits8", nn_eval(small), x, plain, 1) == 0);
}

// A token's way through a small GPT: a mask made by hand, heads by views.
static tensor_t *masked(nn_module_t *m, tensor_t *x) {
    tensor_t *y = nn_forward(m, x), *heads = tensor_permute(tensor_reshape(y, 2, STEPS, 2, 4), 0, 2, 1, 3);
    tensor_t *scores = tensor_matmul(heads, tensor_transpose(heads, -1, -2));
    tensor_t *unseen = tensor_eq_scalar(tensor_tril(tensor_ones(STEPS, STEPS), 0), 0);
    scores = tensor_softmax(tensor_masked_fill(scores, unseen, -INFINITY), -1);
    tensor_t *z = tensor_permute(tensor_matmul(scores, heads), 0, 2, 1, 3);
    tensor_t *last = tensor_index_select(tensor_reshape(z, 2, STEPS, 8), 1,
                                         tensor_arange(STEPS - 1, STEPS, 1, TENSOR_I64));
    return tensor_cat(1, tensor_reshape(z, 2, STEPS, 8), last);
}

// Three linears whose weights are parts of one memory; some of its rows are larger than the others.
static tensor_t *crossed(nn_module_t *m, tensor_t *x) {
    tensor_t *memory = tensor_mul_scalar(x, -0.5);
    return nn_multihead_attention_forward(m, x, memory, tensor_add(memory, x));
}

static void sequence_inferences(void) {
    tensor_t *words = tensor_randint(0, WORDS, 2, STEPS);
    nn_module_t *m =
        nn_sequential(nn_embedding(WORDS, WIDTH), nn_lstm(WIDTH, 6, .batch_first = 1), nn_linear(6, 3));
    nn_module_t *bytes = nn_clone(m);
    CHECK(infer("lstm_run", nn_eval(m), words, plain, 0) == 0);
    CHECK(infer("lstm8", nn_eval(bytes), words, plain, 1) == 0);
    m = nn_sequential(nn_embedding(WORDS, WIDTH),
                      nn_transformer_encoder_layer(WIDTH, 2, .feedforward = 16, .gelu = 1, .batch_first = 1,
                                                   .norm_first = 1));
    CHECK(infer("encoder", nn_eval(m), words, plain, 0) == 0);
    m = nn_multihead_attention(8, 2, .batch_first = 1);
    tensor_mul_scalar_(tensor_detach(tensor_narrow(nn_get(m, "in_proj_weight"), 0, 8, 4)), 20);
    CHECK(infer("crossed8", nn_eval(m), tensor_randn(2, STEPS, 8), crossed, 1) == 0);
    m = nn_sequential(nn_embedding(WORDS, WIDTH), nn_layer_norm(WIDTH));
    CHECK(infer("gpt", nn_eval(m), tensor_randint(0, 2, 2, STEPS), masked, 0) == 0);
}

static void image_inferences(void) {
    tensor_t *x = tensor_randn(1, 1, 28, 28), *colours = tensor_randn(2, 4, 9, 11);
    nn_module_t *m = fashion(), *bytes = nn_clone(m);
    CHECK(infer("fashion", nn_eval(m), x, plain, 0) == 0);
    CHECK(infer("fashion8", nn_eval(bytes), x, plain, 1) == 0);
    m = nn_sequential(nn_conv2d(4, 6, 3, .padding = 1), nn_batch_norm2d(6), nn_relu(), nn_avg_pool2d(7),
                      nn_adaptive_avg_pool2d(1, 1), nn_flatten());
    CHECK(infer("normed", nn_eval(m), colours, plain, 0) == 0);
    m = nn_sequential(nn_max_pool2d(3, .stride = 2, .dilation = 2), nn_adaptive_avg_pool2d(2, 3),
                      nn_flatten());
    CHECK(infer("pools", nn_eval(m), colours, plain, 0) == 0);
}

// ---- what cannot be written

static int is_there(const char *name) {
    char path[300];
    file_name(path, sizeof path, name);
    FILE *f = fopen(path, "r");
    if (f) { fclose(f); }
    return f != NULL;
}

// A step that leaves nothing but a state; an input without elements, and an output.
static void empties(void) {
    tensor_t *x = tensor_zeros(0, 3), *y = tensor_randn(2, 3), *sum = tensor_zeros(2, 3);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scope_t inner = tensor_scope_begin();
    tensor_add_(sum, tensor_cat(0, x, y));
    tensor_t *z = tensor_scope_return(inner, tensor_exp(x));
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    char path[300];
    tensor_t *in[2] = {y, x};
    kit_export_t e = {"stateful", in, 1, NULL, NULL, 0, NULL, 0, 2};
    file_name(path, sizeof path, e.name);
    CHECK(tensor_graph_export_c(g, path, &e) == 0);
    CHECK_OK();
    kit_export_t f = {"empty", in, 2, NULL, &z, 1, NULL, 0, 2};
    file_name(path, sizeof path, f.name);
    CHECK(tensor_graph_export_c(g, path, &f) == 0);
    CHECK_OK();
    tensor_graph_free(g);
}

// A step of a net and an optimizer that another thread has made, and one with two steps of an optimizer.
static nn_module_t *others_net;
static nn_optimizer_t *others_opt;
static tensor_t *others_x, *others_y;

static tensor_t *others_step(void) {
    nn_zero_grad(others_opt);
    tensor_t *loss = tensor_mse_loss(nn_forward(others_net, others_x), others_y);
    tensor_backward(loss);
    nn_step(others_opt);
    return loss;
}

static void *others_make(void *arg) {
    (void)arg;
    tensor_manual_seed(1);
    others_net = nn_sequential(nn_linear(4, 8), nn_batch_norm1d(8), nn_relu(), nn_linear(8, 2));
    others_opt = nn_adam(others_net, .lr = 0.01);
    others_x = tensor_keep(tensor_randn(16, 4));
    others_y = tensor_keep(tensor_randn(16, 2));
    tensor_scope_t scope = tensor_scope_begin();
    others_step();
    tensor_scope_end(scope);
    return NULL;
}

// -> code;  twice: 2 = in its second step the last layer is frozen
static int others_train(const char *name, int elsewhere, int twice) {
    pthread_t thread;
    if (elsewhere) {
        CHECK(pthread_create(&thread, NULL, others_make, NULL) == 0 && pthread_join(thread, NULL) == 0);
    } else {
        others_make(NULL);
    }
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    if (twice) { others_step(); }
    if (twice == 2) { CHECK(nn_requires_grad_(nn_get_child(others_net, "3"), 0) != NULL); }
    tensor_t *loss = others_step();
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    char path[300];
    file_name(path, sizeof path, name);
    tensor_t *in[2] = {others_x, others_y};
    kit_export_t e = {name, in, 2, NULL, &loss, 1, NULL, 0, twice == 2 ? 0 : 5};
    int code = tensor_graph_export_c(g, path, &e);
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
    tensor_free(others_x);
    tensor_free(others_y);
    nn_optimizer_free(others_opt);
    nn_free(others_net);
    return code;
}

static void others(void) {
    CHECK(others_train("of_another_thread", 1, 0) == 0);
    CHECK(others_train("two_steps", 0, 1) == 0);
    CHECK_OK();
    CHECK(others_train("unequal_steps", 0, 2) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: step: not all parameters are stepped equally often");
    CHECK(!is_there("unequal_steps"));
}

// A graph whose weights have been freed, and one with a step under way.
static void unfit(void) {
    for (int freed = 0; freed < 2; freed++) {
        nn_module_t *net = nn_linear(4, 2);
        tensor_t *x = tensor_randn(8, 4);
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = tensor_exp(nn_forward(net, x));
        tensor_graph_t *g = tensor_capture_end();
        char path[300];
        file_name(path, sizeof path, "unfit");
        kit_export_t e = {"unfit", &x, 1, NULL, &y, 1, NULL, 0, 0};
        if (freed) {
            nn_free(net);
            CHECK(tensor_graph_info(g).lost == 1);
            CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_OWNER);
            CHECK_ERROR(TENSOR_ERR_OWNER, "export_c: a tensor of the step was freed since the capture");
        } else {
            CHECK(tensor_graph_resume(g, 0) == 0 && tensor_graph_info(g).begun == 1);
            CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
            CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: a step is under way");
            nn_free(net);
        }
        CHECK(!is_there("unfit") && tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
}

// A step that adds to an older gradient and drops it would add to it in the file again and again.
static void older_gradient(void) {
    for (int back = 0; back < 2; back++) {
        nn_module_t *net = nn_linear(2, 1, .no_bias = 1);
        nn_optimizer_t *o = nn_sgd(net, .lr = 0.1);
        tensor_t *w = nn_get(net, "weight"), *x = tensor_ones(3, 2);
        tensor_backward(tensor_mean(nn_forward(net, x)));
        CHECK(nn_step(o) == 0);
        tensor_t *older = tensor_keep(tensor_grad(w));
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *loss = tensor_mean(nn_forward(net, x));
        tensor_backward(loss);
        CHECK(nn_step(o) == 0 && nn_zero_grad(o) == 0);
        loss = tensor_scope_return(scope, tensor_detach(loss));
        tensor_graph_t *g = tensor_capture_end();
        if (back) { tensor_set_grad(w, older); }
        char path[300];
        file_name(path, sizeof path, "older");
        kit_export_t e = {"older", &x, 1, NULL, &loss, 1, NULL, 0, 0};
        CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: backward adds to a gradient that is older than the step");
        CHECK(tensor_graph_info(g).once == 1 && tensor_graph_free(g) == 0);
        nn_optimizer_free(o);
        nn_free(net);
        tensor_free(older);
    }
}

static void refused(void) {
    nn_module_t *m = nn_sequential(nn_conv3d(1, 2, 3), nn_relu());
    CHECK(infer("conv", nn_eval(m), tensor_randn(1, 1, 5, 5, 5), plain, 0) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: conv3d: export_c.h does not know this op (steps.c:");
    CHECK(!is_there("conv"));
    m = nn_linear(3, 4);
    CHECK(train("rmsprop", m, nn_rmsprop(m), tensor_randn(2, 3), tensor_randn(2, 4), squares, 0)
          == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                "export_c: step: export_c.h knows SGD, Adam and AdamW alone (steps.c:");
    m = nn_linear(3, 4);
    CHECK(nn_to(m, TENSOR_F64) == 0);
    CHECK(infer("wide", m, tensor_to(tensor_randn(2, 3), TENSOR_F64), plain, 0) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c.h knows products of f32 alone");
    tensor_t *lengths = tensor_full_of(TENSOR_I64, 3, 2), *classes = tensor_ones_of(TENSOR_I64, 2, 2);
    tensor_t *logits = tensor_randn(3, 2, 5), *targets = tensor_full_of(TENSOR_I64, 2, 2);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *loss = tensor_ctc_loss(tensor_log_softmax(logits, -1), classes, lengths, targets);
    tensor_graph_t *ctc = tensor_capture_end();
    char path[300];
    file_name(path, sizeof path, "ctc");
    kit_export_t unknown = {"ctc", &logits, 1, NULL, &loss, 1, NULL, 0, 0};
    CHECK(tensor_graph_export_c(ctc, path, &unknown) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: ctc_loss: export_c.h does not know this op (steps.c:");
    CHECK(tensor_set_realtime(1) == 0);
    CHECK(tensor_graph_export_c(ctc, path, &unknown) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: a file is written, in real time (tensor_set_realtime) at steps.c:");
    CHECK(tensor_set_realtime(0) == 0);
    CHECK(tensor_graph_free(ctc) == 0);
    const char *before = folder;
    folder = "no/such/folder";
    CHECK(infer("there", nn_linear(3, 4), tensor_randn(2, 3), plain, 0) == TENSOR_ERR_IO);
    folder = before;
    CHECK_ERROR(TENSOR_ERR_IO, "export_c: no/such/folder/there.c: cannot be written: No such file");

    tensor_t *x = tensor_ones(4), *other = tensor_ones(4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_exp(x);
    tensor_graph_t *g = tensor_capture_end();
    kit_export_t e = {"none", &other, 1, NULL, &y, 1, NULL, 0, 0};
    file_name(path, sizeof path, "none");
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                "input 0 is not older than the capture, or not read by the step at steps.c:");
    e.inputs = &x;
    e.outputs = &x;
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "output 0 was not made by the step at steps.c:");
    e.outputs = &y;
    e.name = "two words";
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: \"two words\" cannot be a name in C at steps.c:");
    e.name = "none";
    const char *const twice[2] = {"x", "x"};
    tensor_t *const two[2] = {x, x};
    e.inputs = two;
    e.ninputs = 2;
    e.input_names = twice;
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "export_c: inputs 0 and 1 have one name, \"x\"");
    e.inputs = NULL;
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "export_c: the list of inputs or outputs is NULL");
    e.ninputs = -1;
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "export_c: ninputs, noutputs and replays are 0 or more");
    e.inputs = &x;
    e.ninputs = 1;
    e.input_names = NULL;
    CHECK(tensor_graph_export_c(NULL, path, &e) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "export_c: the graph is NULL");
    CHECK(!is_there("none") && tensor_graph_export_c(g, path, &e) == 0 && is_there("none"));
    remove(path);
    tensor_graph_free(g);
}

// ---- odd steps

// Writes what one call makes of x.   -> code
static int one(const char *name, tensor_t *x, tensor_t *(*forward)(tensor_t *x)) {
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *y = tensor_scope_return(scope, forward(x));
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    char path[300];
    file_name(path, sizeof path, name);
    kit_export_t e = {name, &x, 1, NULL, &y, 1, NULL, 0, 2};
    int code = tensor_graph_export_c(g, path, &e);
    tensor_graph_free(g);
    return code;
}

static tensor_t *turned;                // a constant that is read from its end

static tensor_t *add_turned(tensor_t *x) { return tensor_add(x, tensor_clone(tensor_flip(turned, 0))); }
static tensor_t *to_bytes(tensor_t *x) { return tensor_to(tensor_mul_scalar(x, 2), TENSOR_U8); }
static tensor_t *to_ints(tensor_t *x) { return tensor_to(tensor_mul_scalar(x, 2), TENSOR_I32); }
static tensor_t *to_longs(tensor_t *x) { return tensor_to(tensor_mul_scalar(x, 2), TENSOR_I64); }
static tensor_t *mean_of(tensor_t *x) { return tensor_mean(x); }
static tensor_t *softmax_of(tensor_t *x) { return tensor_softmax(x, -1); }
static tensor_t *logsumexp_of(tensor_t *x) { return tensor_logsumexp(x, -1, 0); }
static tensor_t *means_of(tensor_t *x) { return tensor_mean_dim(x, -1, 0); }
static tensor_t *to_no_columns(tensor_t *x) { return tensor_sum(tensor_matmul(x, tensor_zeros(5000, 0))); }
static tensor_t *and_many(tensor_t *x) {
    int64_t many = INT64_C(9007199254740993);               // no double
    return tensor_add(x, tensor_from(&many, TENSOR_I64, 1));
}

static void odd_steps(void) {
    float numbers[] = {-1.5f, 300.7f, -0.2f, 1e10f, -1e20f, NAN, INFINITY, 127.25f};
    tensor_t *x = tensor_from(numbers, TENSOR_F32, 8);
    turned = tensor_randn(8);
    CHECK(one("turned", x, add_turned) == 0);
    CHECK(one("to_bytes", x, to_bytes) == 0);
    CHECK(one("to_ints", x, to_ints) == 0);
    CHECK(one("to_longs", x, to_longs) == 0);
    CHECK(one("many", tensor_ones_of(TENSOR_I64, 3), and_many) == 0);
    x = tensor_zeros(3, 0);
    CHECK(one("mean_of_none", x, mean_of) == 0);
    CHECK(one("means_of_none", x, means_of) == 0);
    CHECK(one("softmax_of_none", x, softmax_of) == 0);
    CHECK(one("logsumexp_of_none", x, logsumexp_of) == 0);
    CHECK(one("no_columns", tensor_zeros(2, 5000), to_no_columns) == 0);
    CHECK_OK();
}

// Two tensors over one memory of the program would be two arrays; bytes of floats would be floats.
static void other_memory(void) {
    float memory[12] = {1, 2, 3};
    tensor_t *a = tensor_wrap(memory, TENSOR_F32, 8), *b = tensor_wrap(memory + 4, TENSOR_F32, 8);
    tensor_t *x = tensor_randn(4);
    char path[300];
    file_name(path, sizeof path, "other");
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_add_scalar_(a, 100);
    tensor_t *y = tensor_mul_scalar(b, 2), *z = tensor_exp(x);
    tensor_graph_t *g = tensor_capture_end();
    kit_export_t e = {"other", NULL, 0, NULL, &y, 1, NULL, 0, 0};
    CHECK(tensor_graph_export_c(g, path, &e) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "two tensors of the step lie over one memory of the program");
    tensor_graph_free(g);
    tensor_free(a);
    tensor_free(b);

    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    z = tensor_exp(x);
    g = tensor_capture_end();
    tensor_t *bytes = tensor_view_dtype(x, TENSOR_U8), *ints = tensor_view_dtype(z, TENSOR_I32);
    kit_export_t f = {"other", &bytes, 1, NULL, &z, 1, NULL, 0, 1};
    CHECK(tensor_graph_export_c(g, path, &f) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "input 0 is u8, the step has it as f32");
    f.inputs = &x;
    f.outputs = &ints;
    CHECK(tensor_graph_export_c(g, path, &f) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "output 0 is i32, the step has it as f32");
    CHECK(!is_there("other"));
    tensor_graph_free(g);
}

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : ".";
    tensor_manual_seed(5);
    RUN(trainings);
    RUN(image_trainings);
    RUN(squeezed_trainings);
    RUN(large_trainings);
    RUN(sequence_trainings);
    RUN(inferences);
    RUN(image_inferences);
    RUN(sequence_inferences);
    RUN(empties);
    RUN(others);
    RUN(unfit);
    RUN(older_gradient);
    RUN(refused);
    RUN(odd_steps);
    RUN(other_memory);
    return test_report();
}

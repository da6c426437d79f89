// nets.c [threads] [row] - training steps and batch-1 inferences of whole networks: GPT of 6 x 384, an LSTM
// language model, NCF, ResNet-18.
//
//   nets 2              all rows, on two threads
//   nets 1 lstm_train   that one
// "row_rss" is the peak of the process's memory when the row has run alone.
#include "nets.h"

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt, *more;                 // more: NULL, or of the tables
    tensor_t *x, *y, *h, *c;
    double clip;
    int binary, half;                           // half: autocast to bf16
} job_t;
static void train(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_scope_t cast = j->half ? tensor_scope_begin_autocast(TENSOR_BF16) : tensor_scope_begin();
        tensor_t *y = nn_forward(j->net, j->x), *loss;
        if (j->binary) {
            loss = tensor_binary_cross_entropy_with_logits(y, j->y);
        } else {
            loss = tensor_cross_entropy(tensor_ndim(y) > 2 ? tensor_flatten(y, 0, 1) : y, j->y);
        }
        loss = tensor_scope_return(cast, loss);
        nn_zero_grad(j->opt);
        if (j->more) { nn_zero_grad(j->more); }
        tensor_backward(loss);
        if (j->clip > 0) { nn_clip_grad_norm(j->opt, j->clip); }
        nn_step(j->opt);
        if (j->more) { nn_step(j->more); }
    }
    tensor_scope_end(scope);
}
static void infer(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) { nn_forward(j->net, j->x); }
    tensor_scope_end(scope);
}
static void step(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_t *h = j->h, *c = j->c;
        tensor_keep(h);
        tensor_keep(c);
        nn_lstm_forward(j->net, j->x, &h, &c);
        tensor_free(h);
        tensor_free(c);
    }
    tensor_scope_end(scope);
}

static const char *only;
static void row(const char *name, job_t *j, void (*fn)(void *arg, long repeats)) {
    char text[256];
    long peak = 0;
    FILE *f;
    bench_row(name, 1e6 * bench_median(fn, j), "us");
    f = only ? fopen("/proc/self/status", "r") : NULL;
    if (!f) { return; }
    while (fgets(text, sizeof text, f)) { sscanf(text, "VmHWM: %ld kB", &peak); }
    fclose(f);
    snprintf(text, sizeof text, "%s_rss", name);
    bench_row(text, (double)peak / 1024, "MB");
}
static int wanted(const char *name) { return tensor_ok() && (!only || strcmp(only, name) == 0); }

static void gpt_token(const char *name, int layers, int heads, int width, int context) {
    static gpt_t g[2];
    static int used;
    job_t j = {0};
    gpt_t *net = &g[used++];
    gpt_init(net, layers, heads, width, context, 65);
    nn_eval(&net->base);
    gpt_remember(net, context);
    j.net = &net->base;
    j.x = tensor_zeros_of(TENSOR_I64, 1, 1);
    row(name, &j, infer);
}

int main(int argc, char **argv) {
    job_t j;
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    only = argc > 2 ? argv[2] : NULL;
    tensor_scope_t scope = tensor_scope_begin();
    for (int sparse = 0; sparse < 2; sparse++) {
        static const char *const names[12] = {
            "mf_user_embed.weight", "mf_item_embed.weight", "mlp_user_embed.weight", "mlp_item_embed.weight",
            "mlp.0.weight", "mlp.0.bias", "mlp.1.weight", "mlp.1.bias", "mlp.2.weight", "mlp.2.bias",
            "final.weight", "final.bias"};
        tensor_t *parts[12];                    // tables, then the rest
        if (!wanted(sparse ? "ncf_sparse_train" : "ncf_train")) { continue; }
        memset(&j, 0, sizeof j);
        j.net = ncf(sparse);
        for (int i = 0; i < 12; i++) { parts[i] = nn_get(j.net, names[i]); }
        j.opt = sparse ? nn_adam(.list = parts + 4, .count = 8) : nn_adam(j.net);
        if (sparse) { j.more = nn_sparse_adam(.list = parts, .count = 4); }
        j.x = tensor_stack(0, tensor_randint(0, 6040, 2048), tensor_randint(0, 3706, 2048));
        j.y = tensor_round(tensor_rand(2048));
        j.binary = 1;
        row(sparse ? "ncf_sparse_train" : "ncf_train", &j, train);
    }
    if (wanted("lstm_train")) {
        memset(&j, 0, sizeof j);
        j.net = lstm_lm_new(10000, 200, 2, 0);
        j.opt = nn_sgd(j.net, .lr = 1);
        j.x = tensor_randint(0, 10000, 35, 20);
        j.y = tensor_randint(0, 10000, 700);
        j.clip = 5;
        row("lstm_train", &j, train);
    }
    if (wanted("resnet18_train")) {
        memset(&j, 0, sizeof j);
        j.net = resnet_new(18, 10, 1, 1);
        j.opt = nn_sgd(j.net, .lr = 0.1, .momentum = 0.9);
        j.x = tensor_randn(32, 3, 32, 32);
        j.y = tensor_randint(0, 10, 32);
        row("resnet18_train", &j, train);
    }
    for (int half = 0; half < 2; half++) {
        static gpt_t g;
        const char *name = half ? "gpt_baby_autocast" : "gpt_baby_train";
        if (!wanted(name)) { continue; }
        memset(&j, 0, sizeof j);
        gpt_init(&g, 6, 6, 384, 256, 65);
        j.net = &g.base;
        j.opt = nn_adamw(j.net);
        j.x = tensor_randint(0, 65, 8, 256);
        j.y = tensor_randint(0, 65, 2048);
        j.half = half;
        row(name, &j, train);
    }
    if (wanted("lstm_step")) {
        memset(&j, 0, sizeof j);
        j.net = nn_eval(nn_lstm(200, 200, .layers = 2));
        j.x = tensor_randn(1, 1, 200);
        j.h = tensor_zeros(2, 1, 200);
        j.c = tensor_zeros(2, 1, 200);
        row("lstm_step", &j, step);
    }
    if (wanted("gpt_tiny_token")) { gpt_token("gpt_tiny_token", 4, 4, 128, 64); }
    if (wanted("gpt_baby_token")) { gpt_token("gpt_baby_token", 6, 6, 384, 256); }
    if (wanted("resnet18_infer")) {
        memset(&j, 0, sizeof j);
        j.net = nn_eval(resnet_new(18, 1000, 1, 0));
        j.x = tensor_randn(1, 3, 224, 224);
        row("resnet18_infer", &j, infer);
    }
    tensor_scope_end(scope);
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

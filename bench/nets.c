// nets.c [threads] [row] - training steps and batch-1 inferences of whole networks: GPT of 6 x 384, an LSTM
// language model, NCF, ResNet-18.
//
//   nets 2              all rows, on two threads
//   nets 1 lstm_train   that one
// "row_rss" is the peak of the process's memory when the row has run alone.
#include "bench.h"

#include <string.h>

#include "tensor_nn.h"

typedef struct block_t { nn_module_t base, *qkv, *out, *mlp; } block_t;
typedef struct gpt_t {
    nn_module_t base, *token, *place, *norm;
    block_t block[12];
    int layers, heads, width;
    tensor_t *keys[12], *values[12];            // of earlier tokens; NULL = training
} gpt_t;

static tensor_t *attention(gpt_t *g, block_t *b, int layer, tensor_t *x) {
    int64_t n = tensor_size(x, 0), t = tensor_size(x, 1);
    tensor_t *h = tensor_reshape(nn_forward(b->qkv, x), n, t, 3, g->heads, g->width / g->heads), *k, *v;
    h = tensor_permute(h, 2, 0, 3, 1, 4);
    k = tensor_select(h, 0, 1);
    v = tensor_select(h, 0, 2);
    if (g->keys[layer]) {
        k = tensor_cat(2, g->keys[layer], k);
        v = tensor_cat(2, g->values[layer], v);
    }
    h = tensor_scaled_dot_product_attention(tensor_select(h, 0, 0), k, v, .is_causal = !g->keys[layer]);
    x = tensor_add(x, nn_forward(b->out, tensor_reshape(tensor_transpose(h, 1, 2), n, t, g->width)));
    return tensor_add(x, nn_forward(b->mlp, x));
}
static tensor_t *gpt_forward(nn_module_t *m, tensor_t *tokens) {
    gpt_t *g = (gpt_t *)m;
    int64_t before = g->keys[0] ? tensor_size(g->keys[0], 2) : 0;
    tensor_t *place = tensor_arange((double)before, (double)(before + tensor_size(tokens, 1)), 1, TENSOR_I64);
    tensor_t *x = tensor_add(nn_forward(g->token, tokens), nn_forward(g->place, place));
    for (int i = 0; i < g->layers; i++) x = attention(g, &g->block[i], i, x);
    return tensor_linear(nn_forward(g->norm, x), nn_get(g->token, "weight"), NULL);
}
static nn_module_t *plain(int64_t in, int64_t out) { return nn_linear(in, out, .no_bias = 1); }
static void gpt_init(gpt_t *g, int layers, int heads, int width, int context, int vocabulary) {
    char name[16];
    memset(g, 0, sizeof *g);
    nn_module_init(&g->base, "Gpt", gpt_forward, NULL);
    g->layers = layers;
    g->heads = heads;
    g->width = width;
    g->token = nn_child(&g->base, "token", nn_embedding(vocabulary, width));
    g->place = nn_child(&g->base, "place", nn_embedding(context, width));
    for (int i = 0; i < layers; i++) {
        block_t *b = &g->block[i];
        nn_module_init(&b->base, "Block", NULL, NULL);
        b->qkv = nn_child(&b->base, "qkv", nn_sequential(nn_layer_norm(width), plain(width, 3 * width)));
        b->out = nn_child(&b->base, "out", plain(width, width));
        b->mlp = nn_sequential(nn_layer_norm(width), plain(width, 4 * width), nn_gelu(),
                               plain(4 * width, width));
        nn_child(&b->base, "mlp", b->mlp);
        snprintf(name, sizeof name, "block%d", i);
        nn_child(&g->base, name, &b->base);
    }
    g->norm = nn_child(&g->base, "norm", nn_layer_norm(width));
    nn_init_normal_(nn_get(g->token, "weight"), 0, 0.02);
}

typedef struct lm_t { nn_module_t base, *embedding, *lstm, *out; } lm_t;
static tensor_t *lm_forward(nn_module_t *m, tensor_t *x) {
    lm_t *lm = (lm_t *)m;
    return nn_forward(lm->out, nn_forward(lm->lstm, nn_forward(lm->embedding, x)));
}

typedef struct ncf_t { nn_module_t base, *gmf[2], *mlp[2], *net, *out; } ncf_t;
// x [2, N]: users, items
static tensor_t *ncf_forward(nn_module_t *m, tensor_t *x) {
    ncf_t *f = (ncf_t *)m;
    tensor_t *u = tensor_select(x, 0, 0), *i = tensor_select(x, 0, 1);
    tensor_t *g = tensor_mul(nn_forward(f->gmf[0], u), nn_forward(f->gmf[1], i));
    tensor_t *h = nn_forward(f->net, tensor_cat(1, nn_forward(f->mlp[0], u), nn_forward(f->mlp[1], i)));
    return tensor_squeeze(nn_forward(f->out, tensor_cat(1, g, h)), 1);
}

typedef struct basic_t { nn_module_t base, *net, *shortcut; } basic_t;
static tensor_t *basic_forward(nn_module_t *m, tensor_t *x) {
    basic_t *b = (basic_t *)m;
    tensor_t *y = nn_forward(b->net, x);
    return tensor_relu(tensor_add(y, b->shortcut ? nn_forward(b->shortcut, x) : x));
}
static nn_module_t *conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = 1);
}
static nn_module_t *resnet18(int classes, int large) {
    static basic_t blocks[2][8];
    nn_module_t *net = large ? nn_sequential(conv(3, 64, 7, 2), nn_batch_norm2d(64), nn_relu(),
                                             nn_max_pool2d(3, .stride = 2, .padding = 1))
                             : nn_sequential(conv(3, 64, 3, 1), nn_batch_norm2d(64), nn_relu());
    int64_t in = 64;
    for (int i = 0; i < 8; i++) {
        basic_t *b = &blocks[large][i];
        int64_t out = (int64_t)64 << i / 2, stride = i % 2 == 0 && i ? 2 : 1;
        memset(b, 0, sizeof *b);
        nn_module_init(&b->base, "BasicBlock", basic_forward, NULL);
        b->net = nn_child(&b->base, "net", nn_sequential(conv(in, out, 3, stride), nn_batch_norm2d(out),
                                                         nn_relu(),
                                                         conv(out, out, 3, 1), nn_batch_norm2d(out)));
        if (in != out)
            b->shortcut = nn_child(&b->base, "shortcut", nn_sequential(conv(in, out, 1, stride),
                                                                       nn_batch_norm2d(out)));
        nn_append(net, &b->base);
        in = out;
    }
    nn_append(net, nn_adaptive_avg_pool2d(1, 1));
    nn_append(net, nn_flatten());
    return nn_append(net, nn_linear(512, classes));
}

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt, *more;                 // more: NULL, or of the tables
    tensor_t *x, *y, *h, *c;
    double clip;
    int binary;
} job_t;
static void train(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_t *y = nn_forward(j->net, j->x), *loss;
        if (j->binary) loss = tensor_binary_cross_entropy_with_logits(y, j->y);
        else loss = tensor_cross_entropy(tensor_ndim(y) > 2 ? tensor_flatten(y, 0, 1) : y, j->y);
        nn_zero_grad(j->opt);
        if (j->more) nn_zero_grad(j->more);
        tensor_backward(loss);
        if (j->clip > 0) nn_clip_grad_norm(j->opt, j->clip);
        nn_step(j->opt);
        if (j->more) nn_step(j->more);
    }
    tensor_scope_end(scope);
}
static void infer(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) nn_forward(j->net, j->x);
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
    if (!f) return;
    while (fgets(text, sizeof text, f)) sscanf(text, "VmHWM: %ld kB", &peak);
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
    for (int i = 0; i < layers; i++) {
        net->keys[i] = tensor_randn(1, heads, context - 1, width / heads);
        net->values[i] = tensor_randn(1, heads, context - 1, width / heads);
    }
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
        static ncf_t nets[2];
        ncf_t *f = &nets[sparse];
        tensor_t *tables[4], *rest[8];
        if (!wanted(sparse ? "ncf_sparse_train" : "ncf_train")) continue;
        memset(&j, 0, sizeof j);
        nn_module_init(&f->base, "Ncf", ncf_forward, NULL);
        for (int i = 0; i < 2; i++) {
            int64_t n = i ? 3706 : 6040;
            f->gmf[i] = nn_child(&f->base, i ? "gmf_item" : "gmf_user", nn_embedding(n, 64, .sparse =
                    sparse));
            f->mlp[i] = nn_child(&f->base, i ? "mlp_item" : "mlp_user", nn_embedding(n, 64, .sparse =
                    sparse));
            tables[2 * i] = nn_get(f->gmf[i], "weight");
            tables[2 * i + 1] = nn_get(f->mlp[i], "weight");
        }
        f->net = nn_child(&f->base, "net", nn_sequential(nn_linear(128, 64), nn_relu(), nn_linear(64, 32),
                                                         nn_relu(),
                                                         nn_linear(32, 16)));
        f->out = nn_child(&f->base, "out", nn_linear(80, 1));
        j.net = &f->base;
        for (int i = 0; i < 8; i++) {
            static const char *const names[6] = {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight",
                                                 "4.bias"};
            rest[i] = i < 6 ? nn_get(f->net, names[i]) : nn_get(f->out, i == 6 ? "weight" : "bias");
        }
        j.opt = sparse ? nn_adam(.list = rest, .count = 8) : nn_adam(j.net);
        if (sparse) j.more = nn_sparse_adam(.list = tables, .count = 4);
        j.x = tensor_stack(0, tensor_randint(0, 6040, 2048), tensor_randint(0, 3706, 2048));
        j.y = tensor_round(tensor_rand(2048));
        j.binary = 1;
        row(sparse ? "ncf_sparse_train" : "ncf_train", &j, train);
    }
    if (wanted("lstm_train")) {
        static lm_t lm;
        memset(&j, 0, sizeof j);
        nn_module_init(&lm.base, "Lm", lm_forward, NULL);
        lm.embedding = nn_child(&lm.base, "embedding", nn_embedding(10000, 200));
        lm.lstm = nn_child(&lm.base, "lstm", nn_lstm(200, 200, .layers = 2));
        lm.out = nn_child(&lm.base, "out", nn_linear(200, 10000));
        j.net = &lm.base;
        j.opt = nn_sgd(j.net, .lr = 1);
        j.x = tensor_randint(0, 10000, 35, 20);
        j.y = tensor_randint(0, 10000, 700);
        j.clip = 5;
        row("lstm_train", &j, train);
    }
    if (wanted("resnet18_train")) {
        memset(&j, 0, sizeof j);
        j.net = resnet18(10, 0);
        j.opt = nn_sgd(j.net, .lr = 0.1, .momentum = 0.9);
        j.x = tensor_randn(32, 3, 32, 32);
        j.y = tensor_randint(0, 10, 32);
        row("resnet18_train", &j, train);
    }
    if (wanted("gpt_baby_train")) {
        static gpt_t g;
        memset(&j, 0, sizeof j);
        gpt_init(&g, 6, 6, 384, 256, 65);
        j.net = &g.base;
        j.opt = nn_adamw(j.net);
        j.x = tensor_randint(0, 65, 8, 256);
        j.y = tensor_randint(0, 65, 2048);
        row("gpt_baby_train", &j, train);
    }
    if (wanted("lstm_step")) {
        memset(&j, 0, sizeof j);
        j.net = nn_eval(nn_lstm(200, 200, .layers = 2));
        j.x = tensor_randn(1, 1, 200);
        j.h = tensor_zeros(2, 1, 200);
        j.c = tensor_zeros(2, 1, 200);
        row("lstm_step", &j, step);
    }
    if (wanted("gpt_tiny_token")) gpt_token("gpt_tiny_token", 4, 4, 128, 64);
    if (wanted("gpt_baby_token")) gpt_token("gpt_baby_token", 6, 6, 384, 256);
    if (wanted("resnet18_infer")) {
        memset(&j, 0, sizeof j);
        j.net = nn_eval(resnet18(1000, 1));
        j.x = tensor_randn(1, 3, 224, 224);
        row("resnet18_infer", &j, infer);
    }
    tensor_scope_end(scope);
    if (!tensor_ok()) fprintf(stderr, "%s\n", tensor_error_text());
    return tensor_shutdown();
}

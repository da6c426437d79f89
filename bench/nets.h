// nets.h - the networks that nets.c trains on the CPU and gpu.c on a GPU: GPT, an LSTM language model, NCF,
// ResNets.
#ifndef BENCH_NETS_H
#define BENCH_NETS_H

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
BENCH_FN void gpt_init(gpt_t *g, int layers, int heads, int width, int context, int vocabulary) {
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
BENCH_FN tensor_t *lm_forward(nn_module_t *m, tensor_t *x) {
    lm_t *lm = (lm_t *)m;
    return nn_forward(lm->out, nn_forward(lm->lstm, nn_forward(lm->embedding, x)));
}

BENCH_FN void lm_init(lm_t *lm, int64_t words, int64_t width) {
    nn_module_init(&lm->base, "Lm", lm_forward, NULL);
    lm->embedding = nn_child(&lm->base, "embedding", nn_embedding(words, width));
    lm->lstm = nn_child(&lm->base, "lstm", nn_lstm(width, width, .layers = 2));
    lm->out = nn_child(&lm->base, "out", nn_linear(width, words));
}

typedef struct ncf_t { nn_module_t base, *gmf[2], *mlp[2], *net, *out; } ncf_t;
// x [2, N]: users, items
BENCH_FN tensor_t *ncf_forward(nn_module_t *m, tensor_t *x) {
    ncf_t *f = (ncf_t *)m;
    tensor_t *u = tensor_select(x, 0, 0), *i = tensor_select(x, 0, 1);
    tensor_t *g = tensor_mul(nn_forward(f->gmf[0], u), nn_forward(f->gmf[1], i));
    tensor_t *h = nn_forward(f->net, tensor_cat(1, nn_forward(f->mlp[0], u), nn_forward(f->mlp[1], i)));
    return tensor_squeeze(nn_forward(f->out, tensor_cat(1, g, h)), 1);
}

BENCH_FN void ncf_init(ncf_t *f, int sparse) {
    nn_module_init(&f->base, "Ncf", ncf_forward, NULL);
    for (int i = 0; i < 2; i++) {
        int64_t n = i ? 3706 : 6040;
        f->gmf[i] = nn_child(&f->base, i ? "gmf_item" : "gmf_user", nn_embedding(n, 64, .sparse = sparse));
        f->mlp[i] = nn_child(&f->base, i ? "mlp_item" : "mlp_user", nn_embedding(n, 64, .sparse = sparse));
    }
    f->net = nn_child(&f->base, "net", nn_sequential(nn_linear(128, 64), nn_relu(), nn_linear(64, 32),
                                                     nn_relu(), nn_linear(32, 16)));
    f->out = nn_child(&f->base, "out", nn_linear(80, 1));
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
static void residual(nn_module_t *net, basic_t *b, int64_t in, int64_t out, int64_t stride,
                     nn_module_t *body) {
    memset(b, 0, sizeof *b);
    nn_module_init(&b->base, "Residual", basic_forward, NULL);
    b->net = nn_child(&b->base, "net", body);
    if (in != out)
        b->shortcut = nn_child(&b->base, "shortcut", nn_sequential(conv(in, out, 1, stride),
                                                                   nn_batch_norm2d(out)));
    nn_append(net, &b->base);
}
static nn_module_t *head(nn_module_t *net, int64_t width, int classes) {
    nn_append(net, nn_adaptive_avg_pool2d(1, 1));
    nn_append(net, nn_flatten());
    return nn_append(net, nn_linear(width, classes));
}
BENCH_FN nn_module_t *resnet18(int classes, int large) {
    static basic_t blocks[2][8];
    nn_module_t *net = large ? nn_sequential(conv(3, 64, 7, 2), nn_batch_norm2d(64), nn_relu(),
                                             nn_max_pool2d(3, .stride = 2, .padding = 1))
                             : nn_sequential(conv(3, 64, 3, 1), nn_batch_norm2d(64), nn_relu());
    int64_t in = 64;
    for (int i = 0; i < 8; i++) {
        int64_t out = (int64_t)64 << i / 2, stride = i % 2 == 0 && i ? 2 : 1;
        residual(net, &blocks[large][i], in, out, stride,
                 nn_sequential(conv(in, out, 3, stride), nn_batch_norm2d(out), nn_relu(),
                               conv(out, out, 3, 1),
                               nn_batch_norm2d(out)));
        in = out;
    }
    return head(net, 512, classes);
}
// thin: what widths are divided by, for a trial.
BENCH_FN nn_module_t *resnet50(int classes, int64_t thin) {
    static basic_t blocks[16];
    static const int counts[4] = {3, 4, 6, 3};
    int64_t in = 64 / thin;
    nn_module_t *net = nn_sequential(conv(3, in, 7, 2), nn_batch_norm2d(in), nn_relu(),
                                     nn_max_pool2d(3, .stride = 2, .padding = 1));
    for (int stage = 0, n = 0; stage < 4; stage++) {
        for (int i = 0; i < counts[stage]; i++, n++) {
            int64_t mid = (64 << stage) / thin, stride = stage && !i ? 2 : 1;
            residual(net, &blocks[n], in, 4 * mid, stride,
                     nn_sequential(conv(in, mid, 1, 1), nn_batch_norm2d(mid), nn_relu(),
                                   conv(mid, mid, 3, stride),
                                   nn_batch_norm2d(mid), nn_relu(), conv(mid, 4 * mid, 1, 1),
                                   nn_batch_norm2d(4 * mid)));
            in = 4 * mid;
        }
    }
    return head(net, in, classes);
}

#endif

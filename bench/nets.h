// nets.h - the networks that nets.c trains on the CPU and gpu.c on a GPU: a GPT, and of examples/models an
// LSTM language model, NCF, ResNets.
#ifndef BENCH_NETS_H
#define BENCH_NETS_H

#include "bench.h"

#include <string.h>

#include "../examples/models/lstm_lm.h"
#include "../examples/models/ncf.h"
#include "../examples/models/resnet.h"

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
    for (int i = 0; i < g->layers; i++) { x = attention(g, &g->block[i], i, x); }
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

// The keys and values of the tokens that a context has but for its last.
BENCH_FN void gpt_remember(gpt_t *g, int context) {
    const int64_t size = g->width / g->heads;
    for (int i = 0; i < g->layers; i++) {
        g->keys[i] = tensor_randn(1, g->heads, context - 1, size);
        g->values[i] = tensor_randn(1, g->heads, context - 1, size);
    }
}

// NCF on MovieLens-1M's numbers of users and films.
BENCH_FN nn_module_t *ncf(int sparse) {
    static const int64_t widths[] = {128, 64, 32, 16};
    return ncf_new(6040, 3706, 64, widths, 4, sparse);
}

#endif

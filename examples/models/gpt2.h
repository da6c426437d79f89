// gpt2.h - GPT-2 (Radford et al. 2019), published as safetensors with the names of transformers' GPT2Model;
// the smallest has 12 layers of 768 with 12 heads, 124 million parameters
//
//   nn_module_t *net = gpt2_new(gpt2_small());           x [N, T] i64; gpt2_text.h reads its file and writes
// texts
#ifndef GPT2_H
#define GPT2_H

#include "model.h"

enum { GPT2_MOST = 48 };            // layers

typedef struct gpt2_config_t {
    int64_t words, context, width, heads;
    int layers;
    double dropout;
} gpt2_config_t;

MODEL_FN gpt2_config_t gpt2_small(void) {
    gpt2_config_t c = {50257, 1024, 768, 12, 12, 0.1};
    return c;
}

// transformers' Conv1D: x weight + bias with a weight [in, out].
typedef struct gpt2_linear_t {
    nn_module_t base;
    tensor_t *weight, *bias;
} gpt2_linear_t;

static tensor_t *gpt2_linear_forward(nn_module_t *m, tensor_t *x) {
    gpt2_linear_t *self = (gpt2_linear_t *)m;
    const int64_t n = tensor_size(x, 0), t = tensor_size(x, 1);
    tensor_t *y = tensor_addmm(self->bias, tensor_flatten(x, 0, 1), self->weight, 1, 1);
    return tensor_reshape(y, n, t, tensor_size(y, 1));
}

static nn_module_t *gpt2_linear(int64_t in, int64_t out, double deviation) {
    gpt2_linear_t *self = (gpt2_linear_t *)model_new(sizeof *self, "Conv1D", gpt2_linear_forward);
    if (!self) { return NULL; }
    self->weight = nn_parameter(&self->base, "weight", tensor_empty(in, out));
    self->bias = nn_parameter(&self->base, "bias", tensor_zeros(out));
    nn_init_normal_(self->weight, 0, deviation);
    return &self->base;
}

typedef struct gpt2_block_t {
    nn_module_t base, *ln_1, *c_attn, *attn_proj, *ln_2, *c_fc, *mlp_proj, *drop;
    tensor_t *keys, *values;        // [N, heads, T, width / heads] of the words before, NULL = none
} gpt2_block_t;

// Forgets the words of the calls before.
static void gpt2_block_forget(gpt2_block_t *b) {
    if (b->keys) { tensor_free(b->keys); }
    if (b->values) { tensor_free(b->values); }
    b->keys = b->values = NULL;
}

static void gpt2_block_free(nn_module_t *m) {
    gpt2_block_forget((gpt2_block_t *)m);
    free(m);
}

typedef struct gpt2_t {
    nn_module_t base, *wte, *wpe, *drop, *ln_f;
    gpt2_block_t *h[GPT2_MOST];
    gpt2_config_t config;
    int remembers;                  // 1 = a call goes on behind the words of the calls before
} gpt2_t;

static tensor_t *gpt2_attention(gpt2_t *g, gpt2_block_t *b, tensor_t *x) {
    const int64_t n = tensor_size(x, 0), t = tensor_size(x, 1), heads = g->config.heads;
    tensor_t *h = tensor_reshape(nn_forward(b->c_attn, x), n, t, 3, heads, g->config.width / heads);
    h = tensor_permute(h, 2, 0, 3, 1, 4);
    tensor_t *q = tensor_select(h, 0, 0), *k = tensor_select(h, 0, 1), *v = tensor_select(h, 0, 2);
    const int first = !b->keys;
    if (g->remembers) {
        tensor_set(&b->keys, first ? tensor_clone(k) : tensor_cat(2, b->keys, k));
        tensor_set(&b->values, first ? tensor_clone(v) : tensor_cat(2, b->values, v));
        k = b->keys;
        v = b->values;
    }
    // A word looks at itself and at those before it; behind the words of other calls that is a mask.
    const int64_t all = tensor_size(k, 2);
    tensor_t *mask = NULL;
    if (!first && t > 1) { mask = tensor_tril(tensor_ones_of(TENSOR_BOOL, t, all), all - t); }
    const double p = g->base.training ? g->config.dropout : 0;
    h = tensor_scaled_dot_product_attention(q, k, v, .attn_mask = mask, .is_causal = first, .dropout_p = p);
    h = tensor_reshape(tensor_transpose(h, 1, 2), n, t, g->config.width);
    return nn_forward(b->drop, nn_forward(b->attn_proj, h));
}

static tensor_t *gpt2_forward(nn_module_t *m, tensor_t *words) {
    gpt2_t *g = (gpt2_t *)m;
    const int64_t before = g->h[0]->keys ? tensor_size(g->h[0]->keys, 2) : 0, t = tensor_size(words, 1);
    tensor_t *place = tensor_arange((double)before, (double)(before + t), 1, TENSOR_I64);
    tensor_t *x = tensor_add(nn_forward(g->wte, words), nn_forward(g->wpe, place));
    x = nn_forward(g->drop, x);
    for (int i = 0; i < g->config.layers; i++) {
        gpt2_block_t *b = g->h[i];
        x = tensor_add(x, gpt2_attention(g, b, nn_forward(b->ln_1, x)));
        tensor_t *weight = tensor_T(nn_get(b->c_fc, "weight"));     // [in, out] there
        tensor_t *h = tensor_linear_gelu_tanh(nn_forward(b->ln_2, x), weight, nn_get(b->c_fc, "bias"));
        x = tensor_add(x, nn_forward(b->drop, nn_forward(b->mlp_proj, h)));
    }
    return tensor_linear(nn_forward(g->ln_f, x), nn_get(g->wte, "weight"), NULL);
}

// Forgets the words of the calls before.
MODEL_FN void gpt2_forget(nn_module_t *m) {
    gpt2_t *g = (gpt2_t *)m;
    for (int i = 0; i < g->config.layers; i++) { gpt2_block_forget(g->h[i]); }
}

static nn_module_t *gpt2_block(const gpt2_config_t *c) {
    const double deep = 0.02 / sqrt(2.0 * c->layers);
    gpt2_block_t *b = (gpt2_block_t *)model_new_with(sizeof *b, "GPT2Block", NULL, gpt2_block_free);
    nn_module_t *attn = model_new(sizeof *attn, "GPT2Attention", NULL);
    nn_module_t *mlp = model_new(sizeof *mlp, "GPT2MLP", NULL);
    if (!b || !attn || !mlp) { return NULL; }
    b->ln_1 = nn_child(&b->base, "ln_1", nn_layer_norm(c->width));
    b->c_attn = nn_child(attn, "c_attn", gpt2_linear(c->width, 3 * c->width, 0.02));
    b->attn_proj = nn_child(attn, "c_proj", gpt2_linear(c->width, c->width, deep));
    nn_child(&b->base, "attn", attn);
    b->ln_2 = nn_child(&b->base, "ln_2", nn_layer_norm(c->width));
    b->c_fc = nn_child(mlp, "c_fc", gpt2_linear(c->width, 4 * c->width, 0.02));
    b->mlp_proj = nn_child(mlp, "c_proj", gpt2_linear(4 * c->width, c->width, deep));
    nn_child(&b->base, "mlp", mlp);
    b->drop = nn_child(&b->base, "dropout", nn_dropout(c->dropout));
    return &b->base;
}

//   -> module, x [N, T] i64, y [N, T, words] logits;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *gpt2_new(gpt2_config_t c) {
    if (c.layers < 1 || c.layers > GPT2_MOST || c.heads < 1 || c.width % c.heads) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "gpt2_new: layers are 1 to 48, the width some for each head");
        return NULL;
    }
    gpt2_t *g = (gpt2_t *)model_new(sizeof *g, "GPT2Model", gpt2_forward);
    nn_module_t *h = model_new(sizeof *h, "ModuleList", NULL);
    if (!g || !h) { return NULL; }
    g->config = c;
    g->wte = nn_child(&g->base, "wte", nn_embedding(c.words, c.width));
    g->wpe = nn_child(&g->base, "wpe", nn_embedding(c.context, c.width));
    g->drop = nn_child(&g->base, "drop", nn_dropout(c.dropout));
    for (int i = 0; i < c.layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        g->h[i] = (gpt2_block_t *)nn_child(h, name, gpt2_block(&c));
        if (!g->h[i]) { return NULL; }
    }
    nn_child(&g->base, "h", h);
    g->ln_f = nn_child(&g->base, "ln_f", nn_layer_norm(c.width));
    nn_init_normal_(nn_get(g->wte, "weight"), 0, 0.02);
    nn_init_normal_(nn_get(g->wpe, "weight"), 0, 0.02);
    return &g->base;
}

#endif

// vit.h - vision transformer (Dosovitskiy et al. 2020), torchvision's VisionTransformer; vit_tiny: 12 layers
// of 192 with 3 heads, patches of 16 x 16 (DeiT-tiny's sizes)
//
//   nn_module_t *net = vit_tiny_new(224, 1000, 1, 0);    x [N, 3, 224, 224]
#ifndef VIT_H
#define VIT_H

#include "model.h"

typedef struct vit_block_t {
    nn_module_t base, *ln_1, *attention, *dropout, *ln_2, *mlp;
} vit_block_t;

static tensor_t *vit_block_forward(nn_module_t *m, tensor_t *x) {
    vit_block_t *self = (vit_block_t *)m;
    tensor_t *h = nn_forward(self->ln_1, x);
    h = nn_multihead_attention_forward(self->attention, h, h, h);
    x = tensor_add(x, nn_forward(self->dropout, h));
    return tensor_add(x, nn_forward(self->mlp, nn_forward(self->ln_2, x)));
}

static void vit_init_mlp(nn_module_t *mlp) {
    nn_named_list_t all = nn_named_parameters(mlp);
    for (int64_t i = 0; i < all.count; i++) {
        if (tensor_ndim(all.item[i].tensor) == 2) {
            nn_init_xavier_uniform_(all.item[i].tensor, 1);
        } else {
            nn_init_normal_(all.item[i].tensor, 0, 1e-6);
        }
    }
}

static nn_module_t *vit_block(int64_t width, int64_t heads, int64_t hidden, double dropout) {
    vit_block_t *self = (vit_block_t *)model_new(sizeof *self, "EncoderBlock", vit_block_forward);
    if (!self) { return NULL; }
    self->ln_1 = nn_child(&self->base, "ln_1", nn_layer_norm(width, .eps = 1e-6));
    self->attention = nn_child(&self->base, "self_attention",
                               nn_multihead_attention(width, heads, .batch_first = 1));
    self->dropout = nn_child(&self->base, "dropout", nn_dropout(dropout));
    self->ln_2 = nn_child(&self->base, "ln_2", nn_layer_norm(width, .eps = 1e-6));
    self->mlp = nn_child(&self->base, "mlp",
                         nn_sequential(nn_linear(width, hidden), nn_gelu(), nn_dropout(dropout),
                                       nn_linear(hidden, width), nn_dropout(dropout)));
    vit_init_mlp(self->mlp);
    return &self->base;
}

enum { VIT_MOST = 32 };             // layers

typedef struct vit_encoder_t {
    nn_module_t base, *dropout, *layer[VIT_MOST], *ln;
    tensor_t *place;                // [1, 1 + patches, width]
    int count;
} vit_encoder_t;

static tensor_t *vit_encoder_forward(nn_module_t *m, tensor_t *x) {
    vit_encoder_t *self = (vit_encoder_t *)m;
    x = nn_forward(self->dropout, tensor_add(x, self->place));
    for (int i = 0; i < self->count; i++) { x = nn_forward(self->layer[i], x); }
    return nn_forward(self->ln, x);
}

static nn_module_t *vit_encoder(int64_t patches, int count, int64_t heads, int64_t width, int64_t hidden,
                                double dropout) {
    vit_encoder_t *self = (vit_encoder_t *)model_new(sizeof *self, "Encoder", vit_encoder_forward);
    nn_module_t *layers = model_new(sizeof *layers, "Sequential", NULL);
    if (!self || !layers) { return NULL; }
    self->place = nn_parameter(&self->base, "pos_embedding", tensor_empty(1, 1 + patches, width));
    nn_init_normal_(self->place, 0, 0.02);
    self->dropout = nn_child(&self->base, "dropout", nn_dropout(dropout));
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "encoder_layer_%d", i);
        self->layer[self->count++] = nn_child(layers, name, vit_block(width, heads, hidden, dropout));
    }
    nn_child(&self->base, "layers", layers);
    self->ln = nn_child(&self->base, "ln", nn_layer_norm(width, .eps = 1e-6));
    return &self->base;
}

typedef struct vit_t {
    nn_module_t base, *patches, *encoder, *heads;
    tensor_t *token;                // [1, 1, width]
} vit_t;

static tensor_t *vit_forward(nn_module_t *m, tensor_t *x) {
    vit_t *self = (vit_t *)m;
    tensor_t *p = tensor_transpose(tensor_flatten(nn_forward(self->patches, x), 2, 3), 1, 2);
    tensor_t *token = tensor_expand(self->token, tensor_size(x, 0), 1, tensor_size(p, 2));
    p = nn_forward(self->encoder, tensor_cat(1, token, p));
    return nn_forward(self->heads, tensor_select(p, 1, 0));
}

//   side    of the images, a multiple of patch
//   count   layers, at most VIT_MOST
//   -> module, x [N, 3, side, side], y [N, classes];  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *vit_new(int64_t side, int64_t patch, int count, int64_t heads, int64_t width,
                              int64_t hidden, int64_t classes, double dropout) {
    if (count < 1 || count > VIT_MOST || patch < 1 || side % patch) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "vit_new: layers are 1 to 32, patches divide the side");
        return NULL;
    }
    vit_t *self = (vit_t *)model_new(sizeof *self, "VisionTransformer", vit_forward);
    if (!self) { return NULL; }
    self->token = nn_parameter(&self->base, "class_token", tensor_zeros(1, 1, width));
    self->patches = nn_child(&self->base, "conv_proj", nn_conv2d(3, width, patch, .stride = patch));
    tensor_t *weight = nn_get(&self->base, "conv_proj.weight");
    nn_init_trunc_normal_(weight, 0, sqrt(1.0 / (double)(3 * patch * patch)), -2, 2);
    nn_init_zeros_(nn_get(&self->base, "conv_proj.bias"));
    const int64_t patches = (side / patch) * (side / patch);
    self->encoder = nn_child(&self->base, "encoder",
                             vit_encoder(patches, count, heads, width, hidden, dropout));
    nn_module_t *heads_of = model_new(sizeof *heads_of, "Sequential", NULL);
    if (!heads_of) { return NULL; }
    self->heads = nn_child(heads_of, "head", nn_linear(width, classes));
    nn_child(&self->base, "heads", heads_of);
    nn_init_zeros_(nn_get(heads_of, "head.weight"));
    nn_init_zeros_(nn_get(heads_of, "head.bias"));
    return &self->base;
}

//   -> as vit_new
MODEL_FN nn_module_t *vit_tiny_new(int64_t side, int64_t classes, int64_t thin, double dropout) {
    return vit_new(side, 16, 12, 3, 192 / thin, 768 / thin, classes, dropout);
}

#endif

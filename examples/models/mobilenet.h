// mobilenet.h - MobileNet v2 (Sandler et al. 2018), torchvision's mobilenet_v2
//
//   nn_module_t *net = mobilenet_v2_new(1000, 1, 0.2);   x [N, 3, 224, 224]
#ifndef MOBILENET_H
#define MOBILENET_H

#include "model.h"

static nn_module_t *mobilenet_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
    return nn_sequential(nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .groups = groups,
                                   .no_bias = 1),
                         nn_batch_norm2d(out), nn_relu6());
}

typedef struct mobilenet_block_t {
    nn_module_t base, *conv;
    int adds;                                   // its input to its output
} mobilenet_block_t;

static tensor_t *mobilenet_block_forward(nn_module_t *m, tensor_t *x) {
    mobilenet_block_t *self = (mobilenet_block_t *)m;
    tensor_t *y = nn_forward(self->conv, x);
    return self->adds ? tensor_add(x, y) : y;
}

// expand: how many times as many channels are inside
static nn_module_t *mobilenet_block(int64_t in, int64_t out, int64_t stride, int64_t expand) {
    mobilenet_block_t *self =
        (mobilenet_block_t *)model_new(sizeof *self, "InvertedResidual", mobilenet_block_forward);
    const int64_t inside = in * expand;
    if (!self) { return NULL; }
    nn_module_t *conv = nn_sequential_n(NULL, 0);
    if (expand != 1) { nn_append(conv, mobilenet_conv(in, inside, 1, 1, 1)); }
    nn_append(conv, mobilenet_conv(inside, inside, 3, stride, inside));
    nn_append(conv, nn_conv2d(inside, out, 1, .no_bias = 1));
    nn_append(conv, nn_batch_norm2d(out));
    self->conv = nn_child(&self->base, "conv", conv);
    self->adds = stride == 1 && in == out;
    return &self->base;
}

//   thin     divides the channels, which are multiples of 8
//   dropout  probability
//   -> module, x [N, 3, H, W], y [N, classes];  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *mobilenet_v2_new(int64_t classes, int64_t thin, double dropout) {
    static const int64_t stages[7][4] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2},
                                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int64_t in = 32 / thin;
    nn_module_t *features = nn_sequential(mobilenet_conv(3, in, 3, 2, 1));
    for (int stage = 0; stage < 7; stage++) {
        const int64_t expand = stages[stage][0], out = stages[stage][1] / thin;
        for (int64_t i = 0; i < stages[stage][2]; i++) {
            nn_append(features, mobilenet_block(in, out, i ? 1 : stages[stage][3], expand));
            in = out;
        }
    }
    nn_append(features, mobilenet_conv(in, 1280 / thin, 1, 1, 1));
    nn_module_t *classifier = nn_sequential(nn_dropout(dropout), nn_linear(1280 / thin, classes));
    nn_module_t *net = model_images("MobileNetV2", features, 1, classifier);
    model_init_images(net, 0.01);
    return net;
}

#endif

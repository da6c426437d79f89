// resnet.h - ResNet-18 and ResNet-50 (He et al. 2015), torchvision's resnet18 and resnet50 (stride in the
// 3x3)
//
//   nn_module_t *net = resnet_new(50, 1000, 1, 0);       x [N, 3, 224, 224]
#ifndef RESNET_H
#define RESNET_H

#include "model.h"

typedef struct resnet_block_t {
    nn_module_t base, *conv[3], *norm[3], *downsample;
    int count;                                  // of convolutions: 2, in a bottleneck 3
} resnet_block_t;

static tensor_t *resnet_block_forward(nn_module_t *m, tensor_t *x) {
    resnet_block_t *self = (resnet_block_t *)m;
    tensor_t *y = x;
    for (int i = 0; i < self->count; i++) {
        y = nn_forward(self->norm[i], nn_forward(self->conv[i], y));
        if (i + 1 < self->count) { tensor_relu_(y); }
    }
    return tensor_relu_(tensor_add_(y, self->downsample ? nn_forward(self->downsample, x) : x));
}

static nn_module_t *resnet_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = 1);
}

static void resnet_add(resnet_block_t *self, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    char name[16];
    const int i = self->count++;
    snprintf(name, sizeof name, "conv%d", i + 1);
    self->conv[i] = nn_child(&self->base, name, resnet_conv(in, out, kernel, stride));
    snprintf(name, sizeof name, "bn%d", i + 1);
    self->norm[i] = nn_child(&self->base, name, nn_batch_norm2d(out));
}

// width: of the inner convolutions. A bottleneck leaves 4 times as many channels.
static nn_module_t *resnet_block(int bottleneck, int64_t in, int64_t width, int64_t stride) {
    const char *kind = bottleneck ? "Bottleneck" : "BasicBlock";
    resnet_block_t *self = (resnet_block_t *)model_new(sizeof *self, kind, resnet_block_forward);
    const int64_t out = bottleneck ? 4 * width : width;
    if (!self) { return NULL; }
    if (bottleneck) {
        resnet_add(self, in, width, 1, 1);
        resnet_add(self, width, width, 3, stride);
        resnet_add(self, width, out, 1, 1);
    } else {
        resnet_add(self, in, width, 3, stride);
        resnet_add(self, width, out, 3, 1);
    }
    if (stride != 1 || in != out) {
        nn_module_t *shortcut = nn_sequential(resnet_conv(in, out, 1, stride), nn_batch_norm2d(out));
        self->downsample = nn_child(&self->base, "downsample", shortcut);
    }
    return &self->base;
}

typedef struct resnet_t {
    nn_module_t base, *conv1, *bn1, *pool, *layer[4], *average, *fc;
} resnet_t;

static tensor_t *resnet_forward(nn_module_t *m, tensor_t *x) {
    resnet_t *self = (resnet_t *)m;
    x = tensor_relu_(nn_forward(self->bn1, nn_forward(self->conv1, x)));
    if (self->pool) { x = nn_forward(self->pool, x); }
    for (int i = 0; i < 4; i++) { x = nn_forward(self->layer[i], x); }
    return nn_forward(self->fc, tensor_flatten(nn_forward(self->average, x), 1, -1));
}

//   depth   18 or 50
//   small   1 = for images of 32 x 32: the first convolution is 3x3 without stride, and no pool follows
//   -> module, x [N, 3, H, W], y [N, classes];  errors SHAPE (also: another depth), OUT_OF_MEMORY
MODEL_FN nn_module_t *resnet_new(int depth, int64_t classes, int64_t thin, int small) {
    static const int counts[2][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}};
    const int bottleneck = depth == 50;
    int64_t in = 64 / thin;
    if (depth != 18 && depth != 50) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "resnet_new: depth is neither 18 nor 50");
        return NULL;
    }
    resnet_t *self = (resnet_t *)model_new(sizeof *self, "ResNet", resnet_forward);
    if (!self) { return NULL; }
    self->conv1 = nn_child(&self->base, "conv1", resnet_conv(3, in, small ? 3 : 7, small ? 1 : 2));
    self->bn1 = nn_child(&self->base, "bn1", nn_batch_norm2d(in));
    if (!small) {
        self->pool = nn_child(&self->base, "maxpool", nn_max_pool2d(3, .stride = 2, .padding = 1));
    }
    for (int stage = 0; stage < 4; stage++) {
        const int64_t width = (64 << stage) / thin;
        char name[16];
        nn_module_t *blocks = nn_sequential_n(NULL, 0);
        for (int i = 0; i < counts[bottleneck][stage]; i++) {
            nn_append(blocks, resnet_block(bottleneck, in, width, stage && !i ? 2 : 1));
            in = bottleneck ? 4 * width : width;
        }
        snprintf(name, sizeof name, "layer%d", stage + 1);
        self->layer[stage] = nn_child(&self->base, name, blocks);
    }
    self->average = nn_child(&self->base, "avgpool", nn_adaptive_avg_pool2d(1, 1));
    self->fc = nn_child(&self->base, "fc", nn_linear(in, classes));
    model_init_images(&self->base, 0);
    return &self->base;
}

#endif

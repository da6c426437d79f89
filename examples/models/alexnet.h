// alexnet.h - AlexNet in one column (Krizhevsky 2014), torchvision's alexnet
//
//   nn_module_t *net = alexnet_new(1000, 1, 0.5);        x [N, 3, 224, 224]
#ifndef ALEXNET_H
#define ALEXNET_H

#include "model.h"

//   dropout  probability
//   -> module, x [N, 3, H, W] with H, W >= 63, y [N, classes];  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *alexnet_new(int64_t classes, int64_t thin, double dropout) {
    const int64_t a = 64 / thin, b = 192 / thin, c = 384 / thin, d = 256 / thin, hidden = 4096 / thin;
    nn_module_t *features = nn_sequential(
        nn_conv2d(3, a, 11, .stride = 4, .padding = 2), nn_relu(), nn_max_pool2d(3, .stride = 2),
        nn_conv2d(a, b, 5, .padding = 2), nn_relu(), nn_max_pool2d(3, .stride = 2),
        nn_conv2d(b, c, 3, .padding = 1), nn_relu(),
        nn_conv2d(c, d, 3, .padding = 1), nn_relu(),
        nn_conv2d(d, d, 3, .padding = 1), nn_relu(), nn_max_pool2d(3, .stride = 2));
    nn_module_t *classifier = nn_sequential(
        nn_dropout(dropout), nn_linear(d * 6 * 6, hidden), nn_relu(),
        nn_dropout(dropout), nn_linear(hidden, hidden), nn_relu(), nn_linear(hidden, classes));
    return model_images("AlexNet", features, 6, classifier);
}

#endif

// vgg.h - VGG-19, configuration E of Simonyan and Zisserman (2014), torchvision's vgg19
//
//   nn_module_t *net = vgg19_new(1000, 1, 0.5);          x [N, 3, 224, 224]
#ifndef VGG_H
#define VGG_H

#include "model.h"

//   dropout  probability
//   -> module, x [N, 3, H, W] with H, W >= 32, y [N, classes];  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *vgg19_new(int64_t classes, int64_t thin, double dropout) {
    static const int64_t widths[] = {64, 128, 256, 512, 512}, counts[] = {2, 2, 4, 4, 4};
    const int64_t hidden = 4096 / thin, last = 512 / thin;
    nn_module_t *features = nn_sequential_n(NULL, 0);
    int64_t in = 3;
    for (int stage = 0; stage < 5; stage++) {
        for (int64_t i = 0; i < counts[stage]; i++) {
            nn_append(features, nn_conv2d(in, widths[stage] / thin, 3, .padding = 1));
            nn_append(features, nn_relu());
            in = widths[stage] / thin;
        }
        nn_append(features, nn_max_pool2d(2, .stride = 2));
    }
    nn_module_t *classifier = nn_sequential(
        nn_linear(last * 7 * 7, hidden), nn_relu(), nn_dropout(dropout),
        nn_linear(hidden, hidden), nn_relu(), nn_dropout(dropout), nn_linear(hidden, classes));
    nn_module_t *net = model_images("VGG", features, 7, classifier);
    model_init_images(net, 0.01);
    return net;
}

#endif

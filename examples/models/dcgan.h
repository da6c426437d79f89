// dcgan.h - DCGAN (Radford et al. 2015), dcgan of PyTorch's examples: images of 64 x 64 out of 100 numbers
//
//   nn_module_t *g = dcgan_generator_new(100, 64, 3), *d = dcgan_discriminator_new(64, 3);
#ifndef DCGAN_H
#define DCGAN_H

#include "model.h"

typedef struct dcgan_net_t {
    nn_module_t base, *main;
} dcgan_net_t;

static tensor_t *dcgan_forward(nn_module_t *m, tensor_t *x) {
    return nn_forward(((dcgan_net_t *)m)->main, x);
}

static nn_module_t *dcgan_net(const char *name, nn_module_t *layers) {
    dcgan_net_t *self = (dcgan_net_t *)model_new(sizeof *self, name, dcgan_forward);
    if (!self) { return NULL; }
    self->main = nn_child(&self->base, "main", layers);
    nn_named_list_t all = nn_named_parameters(&self->base);
    for (int64_t i = 0; i < all.count; i++) {
        tensor_t *t = all.item[i].tensor;
        if (tensor_ndim(t) == 4) {
            nn_init_normal_(t, 0, 0.02);
        } else if (model_ends(all.item[i].name, ".weight")) {
            nn_init_normal_(t, 1, 0.02);
        }
    }
    return &self->base;
}

static nn_module_t *dcgan_up(int64_t in, int64_t out, int64_t stride, int64_t padding) {
    return nn_conv_transpose2d(in, out, 4, .stride = stride, .padding = padding, .no_bias = 1);
}

static nn_module_t *dcgan_down(int64_t in, int64_t out) {
    return nn_conv2d(in, out, 4, .stride = 2, .padding = 1, .no_bias = 1);
}

//   noise, width, colors  numbers of a picture, channels before the last layer, of a picture
//   -> module, x [N, noise, 1, 1], y [N, colors, 64, 64] in -1..1;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *dcgan_generator_new(int64_t noise, int64_t width, int64_t colors) {
    return dcgan_net("Generator", nn_sequential(
        dcgan_up(noise, 8 * width, 1, 0), nn_batch_norm2d(8 * width), nn_relu(),
        dcgan_up(8 * width, 4 * width, 2, 1), nn_batch_norm2d(4 * width), nn_relu(),
        dcgan_up(4 * width, 2 * width, 2, 1), nn_batch_norm2d(2 * width), nn_relu(),
        dcgan_up(2 * width, width, 2, 1), nn_batch_norm2d(width), nn_relu(),
        dcgan_up(width, colors, 2, 1), nn_tanh()));
}

//   -> module, x [N, colors, 64, 64], y [N, 1, 1, 1]: how likely it is real;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *dcgan_discriminator_new(int64_t width, int64_t colors) {
    return dcgan_net("Discriminator", nn_sequential(
        dcgan_down(colors, width), nn_leaky_relu(0.2),
        dcgan_down(width, 2 * width), nn_batch_norm2d(2 * width), nn_leaky_relu(0.2),
        dcgan_down(2 * width, 4 * width), nn_batch_norm2d(4 * width), nn_leaky_relu(0.2),
        dcgan_down(4 * width, 8 * width), nn_batch_norm2d(8 * width), nn_leaky_relu(0.2),
        nn_conv2d(8 * width, 1, 4, .no_bias = 1), nn_sigmoid()));
}

static tensor_t *dcgan_loss(nn_module_t *discriminator, tensor_t *x, double truth) {
    tensor_t *y = tensor_flatten(nn_forward(discriminator, x), 0, -1);
    return tensor_binary_cross_entropy(y, tensor_full_like(y, truth));
}

// One step of both, as in the example: the discriminator learns from real and made pictures, then the
// generator.
//   real    [N, colors, 64, 64];  noise [N, noise, 1, 1]
//   -> new 0-d, the sum of the three losses
MODEL_FN tensor_t *dcgan_step(nn_module_t *g, nn_module_t *d, nn_optimizer_t *opt_g, nn_optimizer_t *opt_d,
                              tensor_t *real, tensor_t *noise) {
    nn_zero_grad(opt_d);
    tensor_t *of_real = dcgan_loss(d, real, 1);
    tensor_backward(of_real);
    tensor_t *made = nn_forward(g, noise);
    tensor_t *of_made = dcgan_loss(d, tensor_detach(made), 0);
    tensor_backward(of_made);
    nn_step(opt_d);
    nn_zero_grad(opt_g);
    tensor_t *deceived = dcgan_loss(d, made, 1);
    tensor_backward(deceived);
    nn_step(opt_g);
    return tensor_detach(tensor_add(tensor_add(of_real, of_made), deceived));
}

#endif

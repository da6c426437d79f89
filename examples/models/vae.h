// vae.h - variational autoencoder (Kingma and Welling 2013), vae of PyTorch's examples: 784-400-20
//
//   nn_module_t *net = vae_new(784, 400, 20);            x [N, 784], 0..1
//   loss = vae_loss(net, x, tensor_randn(N, 20));
#ifndef VAE_H
#define VAE_H

#include "model.h"

typedef struct vae_t {
    nn_module_t base, *fc1, *fc21, *fc22, *fc3, *fc4;
} vae_t;

// Logits of the picture that a code is. z [N, latent]   -> new [N, in]
MODEL_FN tensor_t *vae_decode(nn_module_t *m, tensor_t *z) {
    vae_t *self = (vae_t *)m;
    return nn_forward(self->fc4, tensor_relu(nn_forward(self->fc3, z)));
}

// Mean and logarithm of the variance of the code of x.
MODEL_FN void vae_encode(nn_module_t *m, tensor_t *x, tensor_t **mean, tensor_t **log_var) {
    vae_t *self = (vae_t *)m;
    tensor_t *h = tensor_relu(nn_forward(self->fc1, x));
    *mean = nn_forward(self->fc21, h);
    *log_var = nn_forward(self->fc22, h);
}

// What x becomes, without noise.
static tensor_t *vae_forward(nn_module_t *m, tensor_t *x) {
    tensor_t *mean, *log_var;
    vae_encode(m, x, &mean, &log_var);
    return tensor_sigmoid(vae_decode(m, mean));
}

// Reconstruction and Kullback-Leibler divergence, both summed (the example's sigmoid and binary cross
// entropy in one).
//   noise   [N, latent], standard normal
//   -> new 0-d;  grad to the parameters
MODEL_FN tensor_t *vae_loss(nn_module_t *m, tensor_t *x, tensor_t *noise) {
    tensor_t *mean, *log_var;
    vae_encode(m, x, &mean, &log_var);
    tensor_t *deviation = tensor_exp(tensor_mul_scalar(log_var, 0.5));
    tensor_t *picture = vae_decode(m, tensor_add(mean, tensor_mul(noise, deviation)));
    tensor_t *bits = tensor_binary_cross_entropy_with_logits(picture, x, .reduction = TENSOR_SUM);
    tensor_t *spread = tensor_sub(tensor_add_scalar(log_var, 1), tensor_square(mean));
    tensor_t *divergence = tensor_mul_scalar(tensor_sum(tensor_sub(spread, tensor_exp(log_var))), -0.5);
    return tensor_add(bits, divergence);
}

//   -> module, x [N, in], y [N, in] in 0..1;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *vae_new(int64_t in, int64_t hidden, int64_t latent) {
    vae_t *self = (vae_t *)model_new(sizeof *self, "VAE", vae_forward);
    if (!self) { return NULL; }
    self->fc1 = nn_child(&self->base, "fc1", nn_linear(in, hidden));
    self->fc21 = nn_child(&self->base, "fc21", nn_linear(hidden, latent));
    self->fc22 = nn_child(&self->base, "fc22", nn_linear(hidden, latent));
    self->fc3 = nn_child(&self->base, "fc3", nn_linear(latent, hidden));
    self->fc4 = nn_child(&self->base, "fc4", nn_linear(hidden, in));
    return &self->base;
}

#endif

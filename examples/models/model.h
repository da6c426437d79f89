// model.h - what the models beside it share: memory of a model, networks that classify images
//
// Each model is a header: NAME_new(...) returns a module that nn_free or tensor_shutdown frees. Names,
// shapes and initial values of its parameters are those of the published PyTorch model that its first
// comment names, so nn_load reads what safetensors.torch.save_file(model.state_dict(), path) writes, and the
// other way round. They are C, 99 and later, and not C++: options have names without braces.
//   thin   what widths are divided by: 1 is the published size, more is for trials
#ifndef MODEL_H
#define MODEL_H

#include "tensor_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define MODEL_FN __attribute__((unused)) static
#else
#define MODEL_FN static
#endif

static void model_free(nn_module_t *m) {
    free(m);
}

// A module in size bytes, zeros at first, which go with it.
//   size     of a struct whose first member is the nn_module_t
//   destroy  frees what the module has, and its memory
//   -> module, NULL on failure;  errors OUT_OF_MEMORY
MODEL_FN nn_module_t *model_new_with(size_t size, const char *name, nn_forward_fn_t forward,
                                     void (*destroy)(nn_module_t *m)) {
    nn_module_t *m = (nn_module_t *)calloc(1, size);
    if (!m) {
        (void)tensor_raise(TENSOR_ERR_OUT_OF_MEMORY, name);
        return NULL;
    }
    nn_module_init(m, name, forward, destroy);
    return m;
}

MODEL_FN nn_module_t *model_new(size_t size, const char *name, nn_forward_fn_t forward) {
    return model_new_with(size, name, forward, model_free);
}

// Whether a dotted name ends so.
MODEL_FN int model_ends(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

typedef struct model_images_t {
    nn_module_t base, *features, *pool, *classifier;
} model_images_t;

static tensor_t *model_images_forward(nn_module_t *m, tensor_t *x) {
    model_images_t *self = (model_images_t *)m;
    x = nn_forward(self->pool, nn_forward(self->features, x));
    return nn_forward(self->classifier, tensor_flatten(x, 1, -1));
}

// Features, an average pool and a classifier: AlexNet, VGG, MobileNet.
//   side    what the pool leaves: side x side
//   -> module, x [N, 3, H, W], y [N, classes];  errors OUT_OF_MEMORY
MODEL_FN nn_module_t *model_images(const char *name, nn_module_t *features, int64_t side,
                                   nn_module_t *classifier) {
    model_images_t *self = (model_images_t *)model_new(sizeof *self, name, model_images_forward);
    if (!self) { return NULL; }
    self->features = nn_child(&self->base, "features", features);
    self->pool = nn_child(&self->base, "avgpool", nn_adaptive_avg_pool2d(side, side));
    self->classifier = nn_child(&self->base, "classifier", classifier);
    return &self->base;
}

// Initial values of torchvision: convolutions normal with deviation sqrt(2 / fan_out), linear layers normal
// with deviation linear (0 = left as they are), their biases 0; norms are left as they are.
MODEL_FN void model_init_images(nn_module_t *m, double linear) {
    nn_named_list_t all = nn_named_parameters(m);
    for (int64_t i = 0; i < all.count; i++) {
        tensor_t *t = all.item[i].tensor;
        if (tensor_ndim(t) == 4) {
            nn_init_kaiming_normal_(t, .fan_out = 1, .nonlinearity = NN_RELU);
        } else if (tensor_ndim(t) == 2 && linear > 0) {
            nn_init_normal_(t, 0, linear);
        } else if (linear > 0 && model_ends(all.item[i].name, ".bias")) {
            nn_init_zeros_(t);
        }
    }
}

#endif

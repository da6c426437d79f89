// zoo.h - every model beside it in one table: how it is made, a batch that looks like its data, its loss, its
// optimizer. train.c, the tests and the benchmarks go by it.
#ifndef ZOO_H
#define ZOO_H

#include "alexnet.h"
#include "batches.h"
#include "dcgan.h"
#include "gnmt.h"
#include "gpt2_text.h"
#include "lstm_lm.h"
#include "mobilenet.h"
#include "ncf.h"
#include "resnet.h"
#include "vae.h"
#include "vgg.h"
#include "vit.h"

typedef struct zoo_job_t zoo_job_t;

typedef struct zoo_model_t {
    const char *name, *unit;        // of what examples are counted in
    int batch;                      // examples of a step at full size
    int64_t thin;                   // for trials
    nn_module_t *(*make)(int64_t thin, double dropout);
    zoo_batch_t (*fill)(int64_t n, int64_t thin);
    tensor_t *(*forward)(nn_module_t *m, const zoo_batch_t *b);
    tensor_t *(*loss)(tensor_t *y, const zoo_batch_t *b);
    nn_optimizer_t *(*optimizer)(nn_module_t *m);
    tensor_t *(*step)(zoo_job_t *j);
} zoo_model_t;

struct zoo_job_t {
    const zoo_model_t *model;
    nn_module_t *net;
    nn_optimizer_t *opt, *more;     // more: NULL, or the generator's
    zoo_batch_t batch;
    double clip;
};

static tensor_t *zoo_plain(nn_module_t *m, const zoo_batch_t *b) {
    return nn_forward(m, b->x);
}

// y [..., classes]
static tensor_t *zoo_classes(tensor_t *y, const zoo_batch_t *b) {
    return tensor_cross_entropy(tensor_reshape(y, -1, tensor_size(y, -1)), tensor_flatten(b->y, 0, -1));
}

static nn_optimizer_t *zoo_sgd(nn_module_t *m) {
    return nn_sgd(m, .lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4);
}

static nn_optimizer_t *zoo_adam(nn_module_t *m) {
    return nn_adam(m, .lr = 1e-3);
}

static nn_optimizer_t *zoo_adamw(nn_module_t *m) {
    return nn_adamw(m, .lr = 3e-4, .weight_decay = 0.1);
}

static nn_optimizer_t *zoo_steep(nn_module_t *m) {
    return nn_sgd(m, .lr = 1);
}

static nn_module_t *zoo_alexnet(int64_t thin, double p) { return alexnet_new(1000 / thin, thin, p); }
static nn_module_t *zoo_vgg19(int64_t thin, double p) { return vgg19_new(1000 / thin, thin, p); }
static nn_module_t *zoo_mobilenet(int64_t thin, double p) { return mobilenet_v2_new(1000 / thin, thin, p); }
static nn_module_t *zoo_resnet18(int64_t thin, double p) {
    (void)p;
    return resnet_new(18, 1000 / thin, thin, 0);
}
static nn_module_t *zoo_resnet50(int64_t thin, double p) {
    (void)p;
    return resnet_new(50, 1000 / thin, thin, 0);
}
static nn_module_t *zoo_vit(int64_t thin, double p) {
    return vit_tiny_new(thin == 1 ? 224 : 64, 1000 / thin, thin, p);
}

static nn_module_t *zoo_gnmt(int64_t thin, double p) { return gnmt_new(32320 / thin, 1024 / thin, 4, p); }
static tensor_t *zoo_gnmt_forward(nn_module_t *m, const zoo_batch_t *b) {
    return gnmt_forward(m, b->x, b->z, tensor_narrow(b->y, 0, 0, tensor_size(b->y, 0) - 1));
}
static tensor_t *zoo_gnmt_loss(tensor_t *y, const zoo_batch_t *b) {
    tensor_t *said = tensor_narrow(b->y, 0, 1, tensor_size(b->y, 0) - 1);
    return tensor_cross_entropy(tensor_flatten(y, 0, 1), tensor_flatten(said, 0, 1), .label_smoothing = 0.1);
}

static nn_module_t *zoo_ncf(int64_t thin, double p) {
    const int64_t widths[] = {256 / thin, 256 / thin, 128 / thin, 64 / thin};
    (void)p;
    return ncf_new(138493 / thin, 26744 / thin, 64 / thin, widths, 4, 0);
}
static tensor_t *zoo_binary_loss(tensor_t *y, const zoo_batch_t *b) {
    return tensor_binary_cross_entropy_with_logits(y, tensor_to(b->y, tensor_dtype(y)));
}

static nn_module_t *zoo_lstm(int64_t thin, double p) { return lstm_lm_new(10000 / thin, 200 / thin, 2, p); }

static nn_module_t *zoo_gpt2(int64_t thin, double p) {
    gpt2_config_t c = {50257 / thin, 1024 / thin, 768 / thin, 12, 12, p};
    return gpt2_new(c);
}

static nn_module_t *zoo_vae(int64_t thin, double p) {
    (void)p;
    return vae_new(784, 400 / thin, 20 / thin);
}
static tensor_t *zoo_vae_step(zoo_job_t *j) {
    tensor_t *loss = vae_loss(j->net, j->batch.x, j->batch.z);
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    nn_step(j->opt);
    return loss;
}

// Both nets of DCGAN as one module.
static nn_module_t *zoo_dcgan(int64_t thin, double p) {
    nn_module_t *both = model_new(sizeof *both, "DCGAN", NULL);
    (void)p;
    if (!both) { return NULL; }
    nn_child(both, "generator", dcgan_generator_new(100, 64 / thin, 3));
    nn_child(both, "discriminator", dcgan_discriminator_new(64 / thin, 3));
    return both;
}
static tensor_t *zoo_dcgan_made(nn_module_t *m, const zoo_batch_t *b) {
    return nn_forward(nn_get_child(m, "generator"), b->z);
}
static nn_optimizer_t *zoo_dcgan_adam(nn_module_t *m) { return nn_adam(m, .lr = 2e-4, .beta1 = 0.5); }
static tensor_t *zoo_dcgan_step(zoo_job_t *j) {
    nn_module_t *g = nn_get_child(j->net, "generator"), *d = nn_get_child(j->net, "discriminator");
    return dcgan_step(g, d, j->more, j->opt, j->batch.x, j->batch.z);
}

static const zoo_model_t zoo[] = {
    {"alexnet", "images", 32, 4, zoo_alexnet, zoo_images, zoo_plain, zoo_classes, zoo_sgd, NULL},
    {"vgg19", "images", 8, 8, zoo_vgg19, zoo_images, zoo_plain, zoo_classes, zoo_sgd, NULL},
    {"resnet18", "images", 16, 4, zoo_resnet18, zoo_images, zoo_plain, zoo_classes, zoo_sgd, NULL},
    {"resnet50", "images", 16, 4, zoo_resnet50, zoo_images, zoo_plain, zoo_classes, zoo_sgd, NULL},
    {"mobilenet_v2", "images", 16, 2, zoo_mobilenet, zoo_images, zoo_plain, zoo_classes, zoo_sgd, NULL},
    {"gnmt", "sentences", 16, 32, zoo_gnmt, zoo_sentences, zoo_gnmt_forward, zoo_gnmt_loss, zoo_adam, NULL},
    {"ncf", "samples", 2048, 16, zoo_ncf, zoo_ratings, zoo_plain, zoo_binary_loss, zoo_adam, NULL},
    {"lstm_lm", "sequences", 20, 10, zoo_lstm, zoo_words, zoo_plain, zoo_classes, zoo_steep, NULL},
    {"vit_tiny", "images", 16, 4, zoo_vit, zoo_images, zoo_plain, zoo_classes, zoo_adamw, NULL},
    {"vae", "images", 128, 1, zoo_vae, zoo_digits, zoo_plain, NULL, zoo_adam, zoo_vae_step},
    {"dcgan", "images", 64, 8, zoo_dcgan, zoo_faces, zoo_dcgan_made, NULL, zoo_dcgan_adam, zoo_dcgan_step},
    {"gpt2", "sequences", 2, 16, zoo_gpt2, zoo_tokens, zoo_plain, zoo_classes, zoo_adamw, NULL},
};
enum { ZOO_COUNT = (int)(sizeof zoo / sizeof *zoo) };

MODEL_FN const zoo_model_t *zoo_find(const char *name) {
    for (int i = 0; i < ZOO_COUNT; i++) {
        if (strcmp(zoo[i].name, name) == 0) { return &zoo[i]; }
    }
    return NULL;
}

// A net, its optimizers and a batch of n.
MODEL_FN zoo_job_t zoo_begin(const zoo_model_t *model, int64_t n, int64_t thin, double dropout) {
    zoo_job_t j = {model, NULL, NULL, NULL, {NULL, NULL, NULL}, 0};
    j.net = model->make(thin, dropout);
    if (strcmp(model->name, "dcgan") == 0) {
        j.opt = model->optimizer(nn_get_child(j.net, "discriminator"));
        j.more = model->optimizer(nn_get_child(j.net, "generator"));
    } else {
        j.opt = model->optimizer(j.net);
    }
    j.clip = strcmp(model->name, "lstm_lm") == 0 ? 0.25 : 0;
    j.batch = model->fill(n, thin);
    return j;
}

MODEL_FN void zoo_end(zoo_job_t *j) {
    nn_optimizer_free(j->opt);
    if (j->more) { nn_optimizer_free(j->more); }
    nn_free(j->net);
}

// One training step.   -> loss
MODEL_FN tensor_t *zoo_step(zoo_job_t *j) {
    if (j->model->step) { return j->model->step(j); }
    tensor_t *loss = j->model->loss(j->model->forward(j->net, &j->batch), &j->batch);
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    if (j->clip > 0) { nn_clip_grad_norm(j->opt, j->clip); }
    nn_step(j->opt);
    return loss;
}

#endif

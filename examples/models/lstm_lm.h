// lstm_lm.h - a language model of LSTMs (Zaremba et al. 2014: Penn Treebank), word_language_model of
// PyTorch's examples
//
//   nn_module_t *net = lstm_lm_new(10000, 200, 2, 0);    x [steps, N] i64
#ifndef LSTM_LM_H
#define LSTM_LM_H

#include "model.h"

typedef struct lstm_lm_t {
    nn_module_t base, *drop, *encoder, *rnn, *decoder;
    int carries;                    // 1 = a call begins with the state that the one before it left
    tensor_t *h, *c;                // that state, without history
} lstm_lm_t;

static void lstm_lm_free(nn_module_t *m) {
    lstm_lm_t *self = (lstm_lm_t *)m;
    if (self->h) { tensor_free(self->h); }
    if (self->c) { tensor_free(self->c); }
    free(self);
}

static tensor_t *lstm_lm_forward(nn_module_t *m, tensor_t *x) {
    lstm_lm_t *self = (lstm_lm_t *)m;
    tensor_t *y = nn_forward(self->drop, nn_forward(self->encoder, x));
    if (self->carries) {
        y = nn_lstm_forward(self->rnn, y, &self->h, &self->c);
        tensor_set(&self->h, tensor_detach(self->h));
        tensor_set(&self->c, tensor_detach(self->c));
    } else {
        y = nn_forward(self->rnn, y);
    }
    return nn_forward(self->decoder, nn_forward(self->drop, y));
}

//   dropout  probability, between the layers too
//   -> module, x [steps, N] i64, y [steps, N, words];  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *lstm_lm_new(int64_t words, int64_t width, int64_t layers, double dropout) {
    lstm_lm_t *self = (lstm_lm_t *)model_new_with(sizeof *self, "RNNModel", lstm_lm_forward, lstm_lm_free);
    if (!self) { return NULL; }
    self->drop = nn_child(&self->base, "drop", nn_dropout(dropout));
    self->encoder = nn_child(&self->base, "encoder", nn_embedding(words, width));
    self->rnn = nn_child(&self->base, "rnn", nn_lstm(width, width, .layers = layers, .dropout = dropout));
    self->decoder = nn_child(&self->base, "decoder", nn_linear(width, words));
    nn_init_uniform_(nn_get(&self->base, "encoder.weight"), -0.1, 0.1);
    nn_init_uniform_(nn_get(&self->base, "decoder.weight"), -0.1, 0.1);
    nn_init_zeros_(nn_get(&self->base, "decoder.bias"));
    return &self->base;
}

#endif

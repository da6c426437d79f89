// gnmt.h - GNMT v2 (Wu et al. 2016, as in MLPerf v0.5 and NVIDIA's deep learning examples, whose names these
// are)
//
// Encoder: 4 LSTMs, the first in both directions. Decoder: an LSTM whose outputs look for a context in the
// encoder's (Bahdanau's normalised attention), 3 LSTMs that get that context too. The third and later ones of
// the encoder, the second and later ones that get it add their input to their output.
//
//   nn_module_t *net = gnmt_new(32320, 1024, 4, 0.2);
//   tensor_t *logits = gnmt_forward(net, source, lengths, target);
#ifndef GNMT_H
#define GNMT_H

#include "model.h"

enum { GNMT_MOST = 8 };                     // layers

static void gnmt_init_uniform(nn_module_t *m) {
    nn_named_list_t all = nn_named_parameters(m);
    for (int64_t i = 0; i < all.count; i++) {
        if (strstr(all.item[i].name, "bias_hh")) {
            nn_init_zeros_(all.item[i].tensor);
        } else {
            nn_init_uniform_(all.item[i].tensor, -0.1, 0.1);
        }
    }
}

static nn_module_t *gnmt_lstm(int64_t in, int64_t width) {
    nn_module_t *m = nn_lstm(in, width);
    gnmt_init_uniform(m);
    return m;
}

// Places of x [T, N, C] in another order. order [T, N] i64
static tensor_t *gnmt_reorder(tensor_t *x, tensor_t *order) {
    return tensor_gather(x, 0, tensor_expand(tensor_unsqueeze(order, 2), tensor_size(x, 0), tensor_size(x, 1),
                                             tensor_size(x, 2)));
}

typedef struct gnmt_t {
    nn_module_t base, *embedder, *dropout, *encoder[GNMT_MOST], *attentive, *query, *key, *decoder[GNMT_MOST];
    nn_module_t *classifier;
    tensor_t *ahead[4], *back[4];           // of encoder[0]: weight_ih, weight_hh, bias_ih, bias_hh
    tensor_t *look, *scale, *bias;          // of the attention: [width], [1], [width]
    int layers;
} gnmt_t;

// The LSTM in both directions. Sequences are not equally long, and the one that goes backwards begins at the
// last word, not in the padding.
static tensor_t *gnmt_both(gnmt_t *self, tensor_t *x, tensor_t *lengths) {
    tensor_t *place = tensor_unsqueeze(tensor_arange(0, (double)tensor_size(x, 0), 1, TENSOR_I64), 1);
    tensor_t *mirrored = tensor_sub(tensor_sub_scalar(lengths, 1), place);
    tensor_t *order = tensor_where(tensor_ge_scalar(mirrored, 0), mirrored, place);
    tensor_t *ahead = tensor_lstm(x, self->ahead).y;
    tensor_t *back = tensor_lstm(gnmt_reorder(x, order), self->back).y;
    return tensor_cat(2, ahead, gnmt_reorder(back, order));
}

// query [T, N, C], keys [S, N, C], hidden [N, S] bool: what is padding   -> new [T, N, C]
static tensor_t *gnmt_attend(gnmt_t *self, tensor_t *query, tensor_t *keys, tensor_t *hidden) {
    tensor_t *k = tensor_transpose(keys, 0, 1), *q = tensor_transpose(query, 0, 1);
    tensor_t *sum = tensor_add(tensor_unsqueeze(nn_forward(self->query, q), 2),
                               tensor_unsqueeze(tensor_add(nn_forward(self->key, k), self->bias), 1));
    tensor_t *look = tensor_mul(tensor_div(self->look, tensor_norm(self->look)), self->scale);
    tensor_t *score = tensor_matmul(tensor_tanh(sum), look);
    score = tensor_masked_fill(score, tensor_unsqueeze(hidden, 1), -65504);
    return tensor_transpose(tensor_bmm(tensor_softmax(score, -1), k), 0, 1);
}

//   source   [S, N] i64, padded at the end;  lengths [N] i64, 1..S
//   target   [T, N] i64, the words before those that are to be said
//   -> new [T, N, words] logits;  errors SHAPE, INDEX
MODEL_FN tensor_t *gnmt_forward(nn_module_t *m, tensor_t *source, tensor_t *lengths, tensor_t *target) {
    gnmt_t *self = (gnmt_t *)m;
    tensor_t *place = tensor_arange(0, (double)tensor_size(source, 0), 1, TENSOR_I64);
    tensor_t *hidden = tensor_ge(place, tensor_unsqueeze(lengths, 1));
    tensor_t *x = nn_forward(self->dropout, nn_forward(self->embedder, source));
    x = gnmt_both(self, x, lengths);
    for (int i = 1; i < self->layers; i++) {
        tensor_t *y = nn_forward(self->encoder[i], nn_forward(self->dropout, x));
        x = i > 1 ? tensor_add(y, x) : y;
    }
    tensor_t *keys = x;
    x = nn_forward(self->attentive, nn_forward(self->embedder, target));
    tensor_t *context = gnmt_attend(self, x, keys, hidden);
    for (int i = 1; i < self->layers; i++) {
        tensor_t *y = nn_forward(self->decoder[i], tensor_cat(2, nn_forward(self->dropout, x), context));
        x = i > 1 ? tensor_add(y, x) : y;
    }
    return nn_forward(self->classifier, x);
}

// A child of a child that has no forward of its own.
static nn_module_t *gnmt_part(nn_module_t *m, const char *name) {
    return nn_child(m, name, model_new(sizeof(nn_module_t), name, NULL));
}

static void gnmt_attention(gnmt_t *self, nn_module_t *attn, int64_t width) {
    self->look = nn_parameter(attn, "linear_att", tensor_empty(width));
    self->scale = nn_parameter(attn, "normalize_scalar", tensor_full(1 / sqrt((double)width), 1));
    self->bias = nn_parameter(attn, "normalize_bias", tensor_zeros(width));
    self->query = nn_child(attn, "linear_q", nn_linear(width, width, .no_bias = 1));
    self->key = nn_child(attn, "linear_k", nn_linear(width, width, .no_bias = 1));
    nn_init_uniform_(self->look, -0.1, 0.1);
    gnmt_init_uniform(self->query);
    gnmt_init_uniform(self->key);
}

//   words    of both languages; 0 is padding, its row gets no gradient
//   layers   2..GNMT_MOST, of the encoder and of the decoder
//   -> module for gnmt_forward;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *gnmt_new(int64_t words, int64_t width, int layers, double dropout) {
    if (layers < 2 || layers > GNMT_MOST) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "gnmt_new: layers are 2 to 8");
        return NULL;
    }
    gnmt_t *self = (gnmt_t *)model_new(sizeof *self, "GNMT", NULL);
    if (!self) { return NULL; }
    nn_module_t *encoder = gnmt_part(&self->base, "encoder"), *decoder = gnmt_part(&self->base, "decoder");
    nn_module_t *below = gnmt_part(encoder, "rnn_layers"), *above;
    self->layers = layers;
    self->encoder[0] = nn_child(below, "0", nn_lstm(width, width, .bidirectional = 1));
    gnmt_init_uniform(self->encoder[0]);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};
        char name[40];
        snprintf(name, sizeof name, "%s_reverse", names[i]);
        self->ahead[i] = nn_get(self->encoder[0], names[i]);
        self->back[i] = nn_get(self->encoder[0], name);
    }
    self->dropout = nn_child(&self->base, "dropout", nn_dropout(dropout));
    self->embedder = nn_child(encoder, "embedder", nn_embedding(words, width, .padding_idx = TENSOR_ZERO));
    gnmt_init_uniform(self->embedder);
    nn_module_t *looks = gnmt_part(decoder, "att_rnn");
    self->attentive = nn_child(looks, "rnn", gnmt_lstm(width, width));
    gnmt_attention(self, gnmt_part(looks, "attn"), width);
    above = gnmt_part(decoder, "rnn_layers");
    for (int i = 1; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        self->encoder[i] = nn_child(below, name, gnmt_lstm(i == 1 ? 2 * width : width, width));
        snprintf(name, sizeof name, "%d", i - 1);
        self->decoder[i] = nn_child(above, name, gnmt_lstm(2 * width, width));
    }
    nn_child(decoder, "embedder", self->embedder);
    self->classifier = nn_child(gnmt_part(decoder, "classifier"), "classifier", nn_linear(width, words));
    gnmt_init_uniform(self->classifier);
    return &self->base;
}

#endif

// batches.h - batches that look like the data of the models beside it
//
// They, and in tests the parameters, are numbers that tests/fixtures/models.py computes too.
#ifndef BATCHES_H
#define BATCHES_H

#include "model.h"

typedef struct zoo_batch_t { tensor_t *x, *y, *z; } zoo_batch_t;

// Number i of a sequence that has a name, -1 to 1 in steps of 2^-23.
MODEL_FN double zoo_number(uint32_t name, int64_t i) {
    uint32_t v = name + (uint32_t)i * 0x9E3779B1u;
    v = (v ^ v >> 15) * 0x2C1B3C6Du;
    v = (v ^ v >> 12) * 0x297A2D39u;
    v ^= v >> 15;
    return (double)((int32_t)(v >> 8) - (1 << 23)) / (1 << 23);
}

MODEL_FN uint32_t zoo_name(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) { h = (h ^ (unsigned char)*name) * 16777619u; }
    return h;
}

// low + (high - low) (number + 1) / 2, f32, as long as t   -> code
MODEL_FN int zoo_uniform_(tensor_t *t, const char *name, double low, double high) {
    const int64_t n = tensor_numel(t);
    const uint32_t h = zoo_name(name);
    float *values = (float *)malloc((size_t)n * sizeof *values + 1);
    if (!values) { return tensor_raise(TENSOR_ERR_OUT_OF_MEMORY, "zoo"); }
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)(low + (high - low) * (zoo_number(h, i) + 1) / 2);
    }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_copy_(t, tensor_reshape_as(tensor_from_n(values, TENSOR_F32, &n, 1), t));
    tensor_scope_end(scope);
    free(values);
    return tensor_error_code();
}

#define zoo_uniform(name, low, high, ...) zoo_uniform_n(tensor_empty(__VA_ARGS__), name, low, high)
MODEL_FN tensor_t *zoo_uniform_n(tensor_t *t, const char *name, double low, double high) {
    (void)zoo_uniform_(t, name, low, high);
    return t;
}

// Whole numbers low..high-1, i64.
#define zoo_integers(name, low, high, ...) zoo_integers_n(tensor_empty(__VA_ARGS__), name, low, high)
MODEL_FN tensor_t *zoo_integers_n(tensor_t *t, const char *name, int64_t low, int64_t high) {
    (void)zoo_uniform_(t, name, 0, 1);
    tensor_t *span = tensor_floor(tensor_mul_scalar(tensor_to(t, TENSOR_F64), (double)(high - low)));
    return tensor_to(tensor_add_scalar(span, (double)low), TENSOR_I64);
}

static zoo_batch_t zoo_images(int64_t n, int64_t thin) {
    const int64_t side = thin == 1 ? 224 : 64;
    zoo_batch_t b = {zoo_uniform("images", -1.5, 1.5, n, 3, side, side),
                     zoo_integers("classes", 0, 1000 / thin, n), NULL};
    return b;
}

// GNMT: at most 25 words, as its data has on average; two thirds to all of them are there.
static zoo_batch_t zoo_sentences(int64_t n, int64_t thin) {
    const int64_t words = 32320 / thin, most = thin == 1 ? 25 : 9;
    zoo_batch_t b = {zoo_integers("source", 4, words, most, n), zoo_integers("target", 4, words, most + 1, n),
                     zoo_integers("lengths", 2 * most / 3, most + 1, n)};
    return b;
}

// NCF: MovieLens-20M's numbers of users and films.
static zoo_batch_t zoo_ratings(int64_t n, int64_t thin) {
    zoo_batch_t b = {tensor_stack(0, zoo_integers("users", 0, 138493 / thin, n),
                                  zoo_integers("items", 0, 26744 / thin, n)),
                     tensor_to(zoo_integers("ratings", 0, 2, n), tensor_get_default_dtype()), NULL};
    return b;
}

static zoo_batch_t zoo_words(int64_t n, int64_t thin) {
    const int64_t words = 10000 / thin, steps = 35;
    zoo_batch_t b = {zoo_integers("words", 0, words, steps, n), zoo_integers("next", 0, words, steps, n),
                     NULL};
    return b;
}

static zoo_batch_t zoo_tokens(int64_t n, int64_t thin) {
    const int64_t context = thin == 1 ? 256 : 24;
    zoo_batch_t b = {zoo_integers("tokens", 0, 50257 / thin, n, context),
                     zoo_integers("next", 0, 50257 / thin, n, context), NULL};
    return b;
}

static zoo_batch_t zoo_digits(int64_t n, int64_t thin) {
    zoo_batch_t b = {zoo_uniform("digits", 0, 1, n, 784), NULL,
                     zoo_uniform("noise", -1.7, 1.7, n, 20 / thin)};
    return b;
}

static zoo_batch_t zoo_faces(int64_t n, int64_t thin) {
    (void)thin;
    zoo_batch_t b = {zoo_uniform("images", -1, 1, n, 3, 64, 64), NULL,
                     zoo_uniform("noise", -1.7, 1.7, n, 100, 1, 1)};
    return b;
}

#endif

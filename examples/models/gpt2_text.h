// gpt2_text.h - GPT-2 with its published parameters goes on with a text
//
//   nn_module_t *net = gpt2_new(gpt2_config_of("model.safetensors"));
//   gpt2_load(net, "model.safetensors");
//   gpt2_generate(net, words, count, count + 40, 0);
#ifndef GPT2_TEXT_H
#define GPT2_TEXT_H

#include "gpt2.h"

// What the names before those of the parameters are in a file: "" or "transformer.".
static const char *gpt2_prefix(nn_safetensors_t *r) {
    for (int64_t i = 0; i < nn_safetensors_count(r); i++) {
        if (strcmp(nn_safetensors_name(r, i), "transformer.wte.weight") == 0) { return "transformer."; }
    }
    return "";
}

// The sizes of a file's model; heads are 64 wide in all of GPT-2's.
//   -> all 0 on failure;  errors as nn_safetensors_open, FORMAT (it is not a GPT-2)
MODEL_FN gpt2_config_t gpt2_config_of(const char *path) {
    gpt2_config_t c = {0, 0, 0, 0, 0, 0.1};
    nn_safetensors_t *r = nn_safetensors_open(path);
    if (!r) { return c; }
    const char *prefix = gpt2_prefix(r);
    char words[40], place[40], text[300];
    int known = 0;
    snprintf(words, sizeof words, "%swte.weight", prefix);
    snprintf(place, sizeof place, "%swpe.weight", prefix);
    for (int64_t i = 0; i < nn_safetensors_count(r); i++) {
        const char *name = nn_safetensors_name(r, i);
        known += strcmp(name, words) == 0 || strcmp(name, place) == 0;
        c.layers += model_ends(name, ".ln_1.weight");
    }
    if (known == 2) {
        tensor_t *wte = nn_safetensors_get(r, words), *wpe = nn_safetensors_get(r, place);
        c.words = tensor_size(wte, 0);
        c.width = tensor_size(wte, -1);
        c.context = tensor_size(wpe, 0);
        c.heads = c.width / 64;
    } else {
        snprintf(text, sizeof text, "gpt2: \"%.200s\": wte.weight or wpe.weight is missing", path);
        (void)tensor_raise(TENSOR_ERR_FORMAT, text);
    }
    nn_safetensors_close(r);
    return c;
}

// Reads a published file: names with or without "transformer." before them; masks and a head that is wte are
// ignored.
//   -> code;  errors as nn_load, FORMAT (a parameter is missing)
MODEL_FN int gpt2_load(nn_module_t *m, const char *path) {
    nn_safetensors_t *r = nn_safetensors_open(path);
    nn_named_list_t all = nn_named_parameters(m);
    const char *missing = NULL;
    char name[200], text[400];
    if (!r) { return tensor_error_code(); }
    const char *prefix = gpt2_prefix(r);
    for (int64_t k = 0; k < all.count && !missing; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, all.item[k].name);
        missing = all.item[k].name;
        for (int64_t i = 0; i < nn_safetensors_count(r) && missing; i++) {
            if (strcmp(nn_safetensors_name(r, i), name) == 0) { missing = NULL; }
        }
    }
    nn_safetensors_close(r);
    if (missing) {
        snprintf(text, sizeof text, "gpt2_load: \"%.150s\": %s is missing", path, missing);
        return tensor_raise(TENSOR_ERR_FORMAT, text);
    }
    return nn_load(path, m, .partial = 1, .prefix = prefix);
}

// Goes on with a text, a word a call.
//   words        room for most numbers, the first count of which are the text
//   temperature  0 = always the most likely word
//   -> how many words there are, 0 on failure;  errors SHAPE (count < 1, more words than the context)
MODEL_FN int64_t gpt2_generate(nn_module_t *m, int64_t *words, int64_t count, int64_t most,
                               double temperature) {
    gpt2_t *g = (gpt2_t *)m;
    const int training = m->training;
    int64_t given = 0;
    if (count < 1 || most > g->config.context) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "gpt2_generate: no text, or more words than the context");
        return 0;
    }
    gpt2_forget(m);
    g->remembers = 1;
    nn_eval(m);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (; count < most && tensor_ok(); tensor_scope_reset(scope)) {
        const int64_t dims[2] = {1, count - given};
        tensor_t *y = nn_forward(m, tensor_from_n(words + given, TENSOR_I64, dims, 2));
        y = tensor_select(tensor_select(y, 0, 0), 0, -1);
        given = count;
        tensor_t *next = temperature > 0
                             ? tensor_multinomial(tensor_softmax(tensor_div_scalar(y, temperature), -1), 1)
                             : tensor_argmax(y);
        words[count++] = tensor_item_i64(next);
    }
    tensor_scope_end(scope);
    g->remembers = 0;
    gpt2_forget(m);
    if (training) { nn_train(m); }
    return tensor_ok() ? count : 0;
}

#endif

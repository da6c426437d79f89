// lora.h - fine-tuning by a few parameters beside the frozen linears of a net (LoRA, Hu et al. 2021)
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_LORA_IMPLEMENTATION
//   #include "kit/lora.h"
//
//   kit_lora_t how = {8, 16, 0.05};                     // rank, alpha, dropout
//   kit_lora(net, "layers.*.linear?", how);             // all else in net is frozen now
//   nn_optimizer_t *opt = nn_adamw(net, .lr = 1e-3);
//   ... training as ever ...
//   kit_lora_save("adapter.safetensors", net);          // some KB
//   kit_lora_merge(net);                                // as fast as without adapters
//
// A linear W becomes y = W x + alpha / rank B A dropout(x). A and B are children of the linear itself, lora_A
// with weight [rank, in] and lora_B with weight [out, rank], so pointers to the linear stay right. A is drawn
// as PyTorch draws a linear and B is zeros, so the net does at first what it did. Hugging Face's peft has the
// same names behind a prefix: nn_load(path, net, .partial = 1, .prefix = "base_model.model.") reads it.
// nn_clone refuses a net with adapters; copy one with kit_lora, then nn_copy_state.
#ifndef KIT_LORA_H
#define KIT_LORA_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_lora_t {
    int64_t rank;   // of the product B A; 0 = 8
    double alpha;   // the adapter counts alpha / rank; 0 = 8
    double dropout; // of the adapter's input, in training; 0 = none
} kit_lora_t;

// Gives adapters to the linears whose dotted names fit the pattern, where * is any text and ? any character,
// and freezes all other parameters of net. Optimizers are made afterwards.
//   net      after its weights were loaded: adapters have the dtype and device of their linears
//   -> how many linears, 0 on failure;  errors INDEX (none fits), SHAPE (rank, dropout), OWNER (one has an
//      adapter already), UNSUPPORTED (a parametrized weight), POISONED, OUT_OF_MEMORY
int kit_lora(nn_module_t *net, const char *pattern, kit_lora_t how);

// Adds the adapters to the weights, and takes them off again; training goes on unmerged. What is merged, or
// unmerged, already stays so.   -> code;  errors those of the sums
int kit_lora_merge(nn_module_t *net);
int kit_lora_unmerge(nn_module_t *net);

// Writes the adapters alone; reads them into a net with the same ones. The file must have all of them and
// nothing else.   -> code;  errors IO, FORMAT, POISONED, OUT_OF_MEMORY
int kit_lora_save(const char *path, nn_module_t *net);
int kit_lora_load(const char *path, nn_module_t *net);
// Writes a plain file of the whole net, for nets without adapters, with the adapters in its weights.
//   -> code;  errors as above
int kit_lora_save_merged(const char *path, nn_module_t *net);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_LORA_IMPLEMENTATION) && !defined(KIT_LORA_DONE)
#define KIT_LORA_DONE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIT_LORA__PATH = 512 }; // bytes of a dotted name, at most

// The child lora_A of a linear, and what its hook knows.
typedef struct kit_lora__adapter_t {
    nn_module_t base;
    nn_module_t *b; // lora_B
    double scale, dropout;
    int merged;
} kit_lora__adapter_t;

static int kit_lora__no_memory(void) {
    if (tensor_ok()) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_lora: out of memory");
    }
    return tensor_error_code();
}

// ---- one linear

static tensor_t *kit_lora__forward(nn_module_t *m, tensor_t *x) {
    kit_lora__adapter_t *a = (kit_lora__adapter_t *)(void *)m;
    return tensor_linear(tensor_dropout(x, a->dropout, m->training), nn_get(m, "weight"), NULL);
}

static void kit_lora__free(nn_module_t *m) {
    free(m);
}

// After the linear: y + scale B A dropout(x).
static tensor_t *kit_lora__hook(nn_module_t *linear, tensor_t *x, tensor_t *y, void *user) {
    kit_lora__adapter_t *a = (kit_lora__adapter_t *)user;
    (void)linear;
    if (a->merged) {
        return NULL;
    }
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *more = nn_forward(a->b, nn_forward(&a->base, x));
    return tensor_scope_return(scope, tensor_add(y, tensor_mul_scalar(more, a->scale)));
}

// The adapter of a module, NULL if it has none.
static kit_lora__adapter_t *kit_lora__of(nn_module_t *m) {
    enum { MOST = 8 }; // a linear has fewer
    nn_module_t *child[MOST];
    const char *names[MOST];
    int n = nn_children(m, child, names, MOST);
    for (int k = 0; k < n && k < MOST; k++) {
        if (!strcmp(names[k], "lora_A") && child[k]->forward == kit_lora__forward) {
            return (kit_lora__adapter_t *)(void *)child[k];
        }
    }
    return NULL;
}

static int kit_lora__is_linear(const nn_module_t *m) {
    return !strcmp(m->name, "Linear") || !strcmp(m->name, "NonDynamicallyQuantizableLinear");
}

static nn_module_t *kit_lora__linear(int64_t in, int64_t out) {
    nn_linear_args_t a = nn_linear_defaults();
    a.in_features = in;
    a.out_features = out;
    a.no_bias = 1;
    return nn_linear_with(a);
}

static int kit_lora__add(nn_module_t *linear, kit_lora_t how) {
    tensor_t *weight = nn_get(linear, "weight");
    nn_module_t *a = kit_lora__linear(tensor_size(weight, 1), how.rank);
    nn_module_t *b = kit_lora__linear(how.rank, tensor_size(weight, 0));
    kit_lora__adapter_t *adapter = (kit_lora__adapter_t *)calloc(1, sizeof *adapter);
    if (!a || !b || !adapter) {
        free(adapter);
        nn_free(a);
        nn_free(b);
        return kit_lora__no_memory();
    }
    nn_module_init(&adapter->base, "LoRA", kit_lora__forward, kit_lora__free);
    nn_parameter(&adapter->base, "weight", nn_get(a, "weight"));
    nn_free(a);
    nn_init_zeros_(nn_get(b, "weight"));
    adapter->b = b;
    adapter->scale = how.alpha / (double)how.rank;
    adapter->dropout = how.dropout;
    nn_child(linear, "lora_A", &adapter->base);
    nn_child(linear, "lora_B", b);
    adapter->base.training = b->training = linear->training;
    for (int k = 0; k < 2; k++) {
        nn_module_t *m = k ? b : &adapter->base;
        nn_to(m, (int)tensor_dtype(weight));
        nn_to(m, (int)tensor_device(weight));
    }
    nn_register_forward_hook(linear, kit_lora__hook, adapter);
    return tensor_error_code();
}

// ---- all of a net

// Whether text fits a pattern.
static int kit_lora__fits(const char *pattern, const char *text) {
    if (!*pattern) {
        return !*text;
    }
    if (*pattern == '*') {
        return kit_lora__fits(pattern + 1, text) || (*text && kit_lora__fits(pattern, text + 1));
    }
    return *text && (*pattern == '?' || *pattern == *text) && kit_lora__fits(pattern + 1, text + 1);
}

// The module whose parameter has that dotted name. A path of its own is left in text.
static nn_module_t *kit_lora__owner(nn_module_t *net, const char *name, char text[KIT_LORA__PATH]) {
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : 0;
    text[0] = 0;
    if (n >= KIT_LORA__PATH) {
        return NULL;
    }
    memcpy(text, name, n);
    text[n] = 0;
    return dot ? nn_get_child(net, text) : net;
}

// The linear whose weight has that name, if the pattern chooses it; else NULL.
static nn_module_t *kit_lora__chosen(nn_module_t *net, const char *name, const char *pattern) {
    char path[KIT_LORA__PATH], text[KIT_LORA__PATH + 80];
    nn_module_t *m = kit_lora__owner(net, name, path);
    size_t n = strlen(path);
    if (!m || strcmp(name + n + (n > 0), "weight") != 0 || !kit_lora__is_linear(m)) {
        return NULL;
    }
    if (!kit_lora__fits(pattern, path)) {
        return NULL;
    }
    if (nn_children(m, NULL, NULL, 0) > 0) {
        int adapted = kit_lora__of(m) != NULL;
        snprintf(text, sizeof text, "kit_lora: \"%s\" has %s already", path,
                 adapted ? "an adapter" : "a parametrized weight");
        (tensor_raise)(adapted ? TENSOR_ERR_OWNER : TENSOR_ERR_UNSUPPORTED, text);
    }
    return m;
}

int kit_lora(nn_module_t *net, const char *pattern, kit_lora_t how) {
    int n = 0;
    how.rank = how.rank ? how.rank : 8;
    how.alpha = how.alpha != 0 ? how.alpha : 8;
    if (how.rank < 1 || !(how.dropout >= 0 && how.dropout <= 1)) {
        (tensor_raise)(TENSOR_ERR_SHAPE, "kit_lora: rank must be >= 1, dropout in 0..1");
        return 0;
    }
    nn_named_list_t list = nn_named_parameters(net);
    nn_module_t **linear = (nn_module_t **)calloc((size_t)list.count + 1, sizeof *linear);
    if (!linear) {
        kit_lora__no_memory();
    }
    for (int64_t i = 0; i < list.count && tensor_ok(); i++) { // before anything changes
        linear[n] = kit_lora__chosen(net, list.item[i].name, pattern);
        n += linear[n] != NULL;
    }
    if (n == 0 && tensor_ok()) {
        (tensor_raise)(TENSOR_ERR_INDEX, "kit_lora: the name of no linear fits the pattern");
    }
    if (tensor_ok()) {
        nn_requires_grad_(net, 0);
    }
    for (int i = 0; i < n && tensor_ok(); i++) {
        kit_lora__add(linear[i], how);
    }
    free(linear);
    if (tensor_ok()) {
        nn_requires_grad_named(net, "*lora_?.weight", 1); // adapters of an earlier call, too
    }
    return tensor_ok() ? n : 0;
}

static tensor_t *kit_lora__product(kit_lora__adapter_t *a) {
    tensor_t *product = tensor_matmul(nn_get(a->b, "weight"), nn_get(&a->base, "weight"));
    return tensor_mul_scalar(product, a->scale);
}

static void kit_lora__set(nn_module_t *m, void *user) {
    kit_lora__adapter_t *a = kit_lora__of(m);
    int merged = *(const int *)user;
    if (!a || a->merged == merged || !tensor_ok()) {
        return;
    }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *weight = nn_get(m, "weight"), *product = kit_lora__product(a);
    if (merged) {
        tensor_add_(weight, product);
    } else {
        tensor_sub_(weight, product);
    }
    a->merged = merged;
    tensor_scope_end(scope);
}

int kit_lora_merge(nn_module_t *net) {
    int merged = 1;
    nn_apply(net, kit_lora__set, &merged);
    return tensor_error_code();
}

int kit_lora_unmerge(nn_module_t *net) {
    int merged = 0;
    nn_apply(net, kit_lora__set, &merged);
    return tensor_error_code();
}

// ---- files

static int kit_lora__is_adapter(const char *name) {
    const char *at = strstr(name, "lora_A.weight");
    at = at ? at : strstr(name, "lora_B.weight");
    return at && !at[strlen("lora_A.weight")] && (at == name || at[-1] == '.');
}

// What a plain file has under that name: the tensor, with the adapter of its linear in it.
static tensor_t *kit_lora__merged(nn_module_t *net, nn_named_t item) {
    char path[KIT_LORA__PATH];
    size_t n = strlen(item.name);
    if (item.is_buffer || n < 6 || strcmp(item.name + n - 6, "weight") != 0) {
        return item.tensor;
    }
    nn_module_t *m = kit_lora__owner(net, item.name, path);
    kit_lora__adapter_t *a = m && kit_lora__is_linear(m) ? kit_lora__of(m) : NULL;
    return a && !a->merged ? tensor_add(item.tensor, kit_lora__product(a)) : item.tensor;
}

// Writes the adapters, or all else.
static int kit_lora__write(const char *path, nn_module_t *net, int adapters) {
    static const nn_metadata_t format[1] = {{"format", "pt"}};
    nn_named_list_t list = nn_state(net);
    const char **name = (const char **)calloc((size_t)list.count + 1, sizeof *name);
    tensor_t **t = (tensor_t **)calloc((size_t)list.count + 1, sizeof *t);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    int n = 0, code = name && t ? tensor_error_code() : kit_lora__no_memory();
    for (int64_t i = 0; i < list.count && !code; i++) {
        if (kit_lora__is_adapter(list.item[i].name) == adapters) {
            name[n] = list.item[i].name;
            t[n++] = adapters ? list.item[i].tensor : kit_lora__merged(net, list.item[i]);
        }
    }
    if (!code) {
        code = nn_safetensors_write(path, name, t, n, format, 1);
    }
    tensor_scope_end(scope);
    free((void *)name);
    free(t);
    return code;
}

int kit_lora_save(const char *path, nn_module_t *net) {
    return kit_lora__write(path, net, 1);
}

int kit_lora_save_merged(const char *path, nn_module_t *net) {
    return kit_lora__write(path, net, 0);
}

int kit_lora_load(const char *path, nn_module_t *net) {
    nn_safetensors_t *file = nn_safetensors_open(path);
    nn_named_list_t list = nn_named_parameters(net);
    int64_t wanted = 0;
    for (int64_t i = 0; i < list.count; i++) {
        wanted += kit_lora__is_adapter(list.item[i].name);
    }
    int64_t found = nn_safetensors_count(file), known = 0;
    for (int64_t k = 0; k < found; k++) {
        int here = 0;
        for (int64_t i = 0; i < list.count && !here; i++) {
            here = !strcmp(list.item[i].name, nn_safetensors_name(file, k));
        }
        known += here && kit_lora__is_adapter(nn_safetensors_name(file, k));
    }
    nn_safetensors_close(file);
    if (tensor_ok() && (known != wanted || found != wanted || wanted == 0)) {
        return (tensor_raise)(TENSOR_ERR_FORMAT, "kit_lora_load: not the adapters of this net");
    }
    nn_load_args_t a = nn_load_defaults();
    a.path = path;
    a.module = net;
    a.partial = 1;
    return tensor_ok() ? nn_load_with(a) : tensor_error_code();
}

#endif

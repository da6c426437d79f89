// weights.c - what is in a file of weights: .pt and .pth of PyTorch, GGUF, safetensors; and as safetensors,
// if wanted
//
// Build: make build/weights && build/weights model.pth
//        build/weights model.pth model.safetensors
// Output: a line for each tensor: dtype, shape, mean and deviation, name.
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_TORCHFILE_IMPLEMENTATION
#include "kit/torchfile.h"
#define KIT_GGUF_IMPLEMENTATION
#include "kit/gguf.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

// A file of one of three kinds; the other two are NULL.
typedef struct weights_t {
    kit_torch_t *torch;
    kit_gguf_t *gguf;
    nn_safetensors_t *safetensors;
} weights_t;

// PyTorch's files are archives, whatever their names end in.
static int is_zip(const char *path) {
    char begin[2];
    return kit_bytes_of(path, begin, sizeof begin) == sizeof begin && memcmp(begin, "PK", 2) == 0;
}

static weights_t weights_open(const char *path) {
    const char *end = strrchr(path, '.');
    weights_t w = {NULL, NULL, NULL};
    if (end && strcmp(end, ".gguf") == 0) {
        w.gguf = kit_gguf_open(path);
    } else if (end && strcmp(end, ".safetensors") == 0) {
        w.safetensors = nn_safetensors_open(path);
    } else if ((end && (strcmp(end, ".pt") == 0 || strcmp(end, ".pth") == 0)) || is_zip(path)) {
        w.torch = kit_torch_open(path);
    } else if (tensor_ok()) {
        kit_refuse(TENSOR_ERR_FORMAT, path, "neither a file of PyTorch nor GGUF nor safetensors");
    }
    return w;
}

static int64_t weights_count(weights_t w) {
    if (w.torch) { return kit_torch_count(w.torch); }
    if (w.gguf) { return kit_gguf_count(w.gguf); }
    return w.safetensors ? nn_safetensors_count(w.safetensors) : 0;
}

static const char *weights_name(weights_t w, int64_t i) {
    if (w.torch) { return kit_torch_name(w.torch, i); }
    return w.gguf ? kit_gguf_name(w.gguf, i) : nn_safetensors_name(w.safetensors, i);
}

static tensor_t *weights_get(weights_t w, const char *name) {
    if (w.torch) { return kit_torch_get(w.torch, name); }
    return w.gguf ? kit_gguf_get(w.gguf, name) : nn_safetensors_get(w.safetensors, name);
}

static void show(const char *name, tensor_t *t) {
    char shape[100] = "[";
    size_t used = 1;
    for (int d = 0; d < tensor_ndim(t); d++) {
        used += (size_t)snprintf(shape + used, 12, d ? ", %d" : "%d", (int)tensor_size(t, d));
    }
    tensor_t *x = tensor_to(t, TENSOR_F64);
    double deviation = tensor_numel(t) > 1 ? tensor_item(tensor_std(x, 1)) : 0;
    snprintf(shape + used, 2, "]");
    printf("%-8s %-20s mean %10.3g  deviation %10.3g  %s\n", tensor_dtype_name(tensor_dtype(t)), shape,
           tensor_numel(t) ? tensor_item(tensor_mean(x)) : 0, deviation, name);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "use: weights FILE [OUT.safetensors]\n");
        return 1;
    }
    weights_t w = weights_open(argv[1]);
    const int64_t n = weights_count(w);
    const char **names = (const char **)malloc(((size_t)n + 1) * sizeof *names);
    tensor_t **list = (tensor_t **)malloc(((size_t)n + 1) * sizeof *list);
    int read = 0;
    for (int64_t i = 0; i < n && names && list; i++) {
        tensor_t *t = weights_get(w, weights_name(w, i));
        if (!tensor_ok()) {
            tensor_clear_error();
            continue;
        }
        show(weights_name(w, i), t);
        names[read] = weights_name(w, i);
        list[read++] = t;
    }
    if (argc > 2 && tensor_ok()) { nn_safetensors_write(argv[2], names, list, read, NULL, 0); }
    free(names);
    free(list);
    kit_torch_close(w.torch);
    kit_gguf_close(w.gguf);
    if (w.safetensors) { nn_safetensors_close(w.safetensors); }
    if (fflush(stdout)) { (void)tensor_raise(TENSOR_ERR_IO, "weights: cannot write what it found"); }
    return tensor_shutdown() != 0;
}

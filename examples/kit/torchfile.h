// torchfile.h - the tensors of files that torch.save wrote (.pt, .pth), without Python and without running
// them
//
// A file to copy and to change, with file.h, pickle.h and zip.h beside it. In one C file of the program:
//
//   #define KIT_TORCHFILE_IMPLEMENTATION
//   #include "kit/torchfile.h"
//
//   kit_torch_t *f = kit_torch_open("resnet18.pth");
//   kit_torch_load(f, net, NULL);
//   kit_torch_close(f);
//
// The file is a zip archive of stored entries with a pickle, a program for a stack machine. Here only the
// part of the machine that builds data runs, and only these globals are known: tensors, parameters,
// storages of the dtypes below, OrderedDict and Size. Anything else is refused by its name. Dictionaries,
// lists and tuples are gone through; tensors in them get dotted names ("model.0.weight"); what is not a
// tensor is left out.
#ifndef KIT_TORCHFILE_H
#define KIT_TORCHFILE_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_torch_t kit_torch_t;

// Opens a file in memory, which must stay until kit_torch_close.
//   name    for error texts
//   -> file, NULL on failure;  errors FORMAT, UNSUPPORTED (a global, an old or big-endian file),
// OUT_OF_MEMORY
kit_torch_t *kit_torch_parse(const void *data, size_t size, const char *name);
//   -> as above;  errors as above, IO
kit_torch_t *kit_torch_open(const char *path);
void kit_torch_close(kit_torch_t *f);

int64_t kit_torch_count(const kit_torch_t *f); // tensors
// Name of tensor i in the order of the file; "" if the file is one tensor.   -> borrowed, NULL = no such i
const char *kit_torch_name(const kit_torch_t *f, int64_t i);
//   -> new;  errors INDEX (no such name), OUT_OF_MEMORY
tensor_t *kit_torch_get(const kit_torch_t *f, const char *name);

// Copies all parameters and buffers of m from the file by name (prefix "model." for "model.0.weight"),
// converting dtypes. Nothing is changed unless all are there in the right shape. Other tensors of the file
// are left alone.
//   -> code;  errors INDEX (a name that is missing), SHAPE (with both shapes), OUT_OF_MEMORY
int kit_torch_load(const kit_torch_t *f, nn_module_t *m, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_TORCHFILE_IMPLEMENTATION) && !defined(KIT_TORCHFILE_DONE)
#define KIT_TORCHFILE_DONE

#include "file.h"
#include "pickle.h"
#include "zip.h"

void kit_torch_close(kit_torch_t *f) {
    if (!f) { return; }
    free(f->own);
    free(f->zip.entry);
    free(f->names);
    free(f->tensor);
    free(f->node);
    free(f->cell);
    free(f->stack);
    free(f->memo);
    free(f);
}

// The program and its prefix in the archive.
static int kit_torch__find_program(kit_torch_t *f, const unsigned char *d, uint64_t size) {
    if (size >= 2 && d[0] == 0x80 && d[1] < 6) {
        return kit_torch__refuse(f, "it is in the form before PyTorch 1.6: load and save it again");
    }
    const char *wrong = kit_zip__open(d, size, &f->zip);
    if (wrong) { return kit_torch__bad(f, wrong); }
    const kit_zip_entry_t *program = NULL, *order;
    for (int64_t i = 0; i < f->zip.count; i++) {
        const kit_zip_entry_t *e = &f->zip.entry[i];
        if (e->length < 9 || memcmp(e->name + e->length - 9, "/data.pkl", 9) != 0) { continue; }
        f->prefix = e->name;
        f->prefix_length = e->length - 8;
        program = e;
    }
    if (!program) { return kit_torch__bad(f, "the archive has no data.pkl"); }
    f->p = f->begin = program->data;
    f->end = f->p + program->size;
    order = kit_zip__find(&f->zip, f->prefix, f->prefix_length, "byteorder", 9);
    if (!order || (order->size == 6 && memcmp(order->data, "little", 6) == 0)) { return 1; }
    return kit_torch__refuse(f, "its numbers are big-endian");
}

// ---- names ----

// Notes the tensors below a value; path [length] is its name.
static int kit_torch__walk(kit_torch_t *f, int value, char *path, size_t length, int depth) {
    enum { MOST_PATH = 1024, MOST_DEPTH = 32 };
    const kit_torch__node_t n = f->node[value];
    if (n.kind == KIT_TORCH__TENSOR) {
        void *grown = kit_torch__room(f, f->tensor, f->tensors, &f->tensors_room, sizeof *f->tensor);
        if (grown) { f->tensor = (kit_torch__name_t *)grown; }
        f->tensor[grown ? f->tensors : 0].node = value;
        while (grown && f->names_used + length + 1 > f->names_room) {
            f->names_room = 2 * f->names_room + MOST_PATH;
            char *more = (char *)realloc(f->names, f->names_room);
            if (!more) { return kit_torch__bad(f, "out of memory"); }
            f->names = more;
        }
        if (!grown) { return 0; }
        memcpy(f->names + f->names_used, path, length);
        f->tensor[f->tensors++].name = f->names_used;
        f->names_used += length;
        f->names[f->names_used++] = 0;
        return 1;
    }
    if (n.kind != KIT_TORCH__DICT && n.kind != KIT_TORCH__LIST && n.kind != KIT_TORCH__TUPLE) { return 1; }
    if (depth == MOST_DEPTH) { return kit_torch__bad(f, "containers are nested too deeply"); }
    int64_t index = 0;
    for (int cell = n.first; cell >= 0; cell = f->cell[cell].next, index++) {
        char key[32];
        size_t size = 0;
        const char *part = key;
        if (n.kind == KIT_TORCH__DICT) {
            const kit_torch__node_t *k = &f->node[f->cell[cell].node];
            size = k->kind == KIT_TORCH__TEXT ? k->length : 0;
            part = size ? (const char *)k->bytes : key;
            index = k->number;
            cell = f->cell[cell].next;
        }
        if (!size) { size = (size_t)snprintf(key, sizeof key, "%lld", (long long)index); }
        // A value may be in several containers: what is gone through is bounded by the program's length.
        f->visits += 16 + (int64_t)length;
        if (f->visits > 64 * (f->end - f->begin) + 65536) {
            return kit_torch__bad(f, "too many values inside of values");
        }
        if (length + size + 1 > MOST_PATH || memchr(part, 0, size)) {
            return kit_torch__bad(f, "a name is wrong");
        }
        const size_t dot = length > 0;
        path[length] = '.';
        memcpy(path + length + dot, part, size);
        if (!kit_torch__walk(f, f->cell[cell].node, path, length + dot + size, depth + 1)) { return 0; }
    }
    return 1;
}

kit_torch_t *kit_torch_parse(const void *data, size_t size, const char *name) {
    kit_torch_t *f = (kit_torch_t *)calloc(1, sizeof *f);
    char path[1100];
    if (!f) {
        kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, name, NULL, -1, "out of memory");
        return NULL;
    }
    if (kit_torch__find_program(f, (const unsigned char *)data, size)) {
        while (kit_torch__step(f)) {}
        if (!f->code && f->top != 1) { kit_torch__bad(f, "the program leaves no value"); }
        if (!f->code) { kit_torch__walk(f, f->stack[0], path, 0, 0); }
    }
    if (!f->code) { return f; }
    kit_file__fail(f->code, name, "byte of data.pkl", f->p ? (int64_t)(f->p - f->begin) : -1, f->reason);
    kit_torch_close(f);
    return NULL;
}

kit_torch_t *kit_torch_open(const char *path) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    kit_torch_t *f = data ? kit_torch_parse(data, size, path) : NULL;
    if (f) {
        f->own = data;
    } else {
        free(data);
    }
    return f;
}

int64_t kit_torch_count(const kit_torch_t *f) {
    return f ? f->tensors : 0;
}

const char *kit_torch_name(const kit_torch_t *f, int64_t i) {
    return i >= 0 && i < kit_torch_count(f) ? f->names + f->tensor[i].name : NULL;
}

// ---- tensors ----

// The number of a tensor; -1 = there is none of that name.
static int64_t kit_torch__find(const kit_torch_t *f, const char *name) {
    int64_t i = 0;
    while (i < kit_torch_count(f) && strcmp(kit_torch_name(f, i), name) != 0) { i++; }
    return i < kit_torch_count(f) ? i : -1;
}

tensor_t *kit_torch_get(const kit_torch_t *f, const char *name) {
    int64_t i = kit_torch__find(f, name), at[TENSOR_MAX_DIMS] = {0};
    char text[160];
    kit_torch__view_t v;
    if (i < 0) {
        snprintf(text, sizeof text, "kit_torch_get: there is no tensor \"%.100s\"", name);
        (tensor_raise)(TENSOR_ERR_INDEX, text);
        return (tensor_detach)(NULL);
    }
    kit_torch__view(f, &f->node[f->tensor[i].node], &v);
    tensor_t *x = kit_file__tensor(v.shape.dims, v.shape.ndim, v.storage->dtype);
    unsigned char *to = (unsigned char *)tensor_data_mut(x);
    const size_t size = tensor_dtype_size(v.storage->dtype);
    const uint16_t one = 1;
    const int little = *(const unsigned char *)&one;
    int64_t place = v.offset;
    for (int64_t n = 0; n < v.numel && to; n++, to += size) {
        const unsigned char *from = v.storage->bytes + (uint64_t)place * size;
        for (size_t k = 0; k < size; k++) { to[k] = from[little ? k : size - 1 - k]; }
        if (v.storage->dtype == TENSOR_BOOL) { to[0] = to[0] != 0; }
        for (int k = v.shape.ndim - 1; k >= 0; k--) {
            place += v.stride.dims[k];
            if (++at[k] < v.shape.dims[k]) { break; }
            place -= v.stride.dims[k] * v.shape.dims[k];
            at[k] = 0;
        }
    }
    return x;
}

int kit_torch_load(const kit_torch_t *f, nn_module_t *m, const char *prefix) {
    const nn_named_list_t state = nn_state(m);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t **list = (tensor_t **)malloc(((size_t)state.count + 1) * sizeof *list);
    if (!list) { (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_torch_load: out of memory"); }
    for (int64_t i = 0; i < state.count && tensor_ok(); i++) {
        char name[1200], text[400], shapes[2][80];
        tensor_t *to = state.item[i].tensor;
        snprintf(name, sizeof name, "%s%s", prefix ? prefix : "", state.item[i].name);
        if (kit_torch__find(f, name) < 0) {
            const char *first = kit_torch_count(f) ? kit_torch_name(f, 0) : "none";
            snprintf(text, sizeof text,
                     "kit_torch_load: the file has no %.120s; the first of its %lld names is %.120s", name,
                     (long long)kit_torch_count(f), first);
            (tensor_raise)(TENSOR_ERR_INDEX, text);
            break;
        }
        list[i] = kit_torch_get(f, name);
        if (!tensor_ok()) { break; }
        tensor_shape_t want = tensor_shape(to), got = tensor_shape(list[i]);
        if (want.ndim == got.ndim && !memcmp(want.dims, got.dims, (size_t)want.ndim * sizeof *want.dims)) {
            continue;
        }
        for (int k = 0; k < 2; k++) {
            const tensor_shape_t *s = k ? &got : &want;
            size_t used = 0;
            shapes[k][0] = 0;
            for (int d = 0; d < s->ndim && used + 24 < sizeof shapes[k]; d++) {
                used += (size_t)snprintf(shapes[k] + used, 24, d ? ", %lld" : "%lld", (long long)s->dims[d]);
            }
        }
        snprintf(text, sizeof text, "kit_torch_load: %.100s is [%s] here and [%s] in the file", name,
                 shapes[0], shapes[1]);
        (tensor_raise)(TENSOR_ERR_SHAPE, text);
    }
    for (int64_t i = 0; i < state.count && tensor_ok(); i++) { tensor_copy_(state.item[i].tensor, list[i]); }
    free(list);
    const int code = tensor_error_code();
    tensor_scope_end(scope);
    return code;
}

#endif

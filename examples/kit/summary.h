// summary.h - a table of a net: layers, shapes of their outputs, parameters, multiply-adds, bytes (torchinfo)
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_SUMMARY_IMPLEMENTATION
//   #include "kit/summary.h"
//
//   kit_summary_t *s = kit_summary(net, x);              // or (net, x, mask): the inputs of nn_call
//   kit_summary_print(s);
//   kit_summary_free(s);
//
// The net runs once, in evaluation and without recording. Hooks of its modules see the outputs, and a
// profiler hears of the kernels, so every multiply-add is counted where it is done: in a layer of the
// library, or in a forward that the program wrote.
#ifndef KIT_SUMMARY_H
#define KIT_SUMMARY_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// One module. A module that is in the net twice has a row for each place; all numbers are in the first one.
typedef struct kit_summary_row_t {
    char name[128];       // "encoder.layers.0.linear1"; "" for the net itself
    const char *kind;     // "Linear"
    int depth, index;     // torchinfo's "Linear: depth-index"; the net itself is 0-1
    int parent;           // row of the module around it, -1 for the net
    int again;            // it has a row already
    int calls;            // of its forward
    int64_t parameters;   // of its own, without those of the modules in it
    int64_t trainable;    // those of them that require a gradient
    double multiply_adds; // of products of matrices, convolutions and attention, without modules in it
    double output_bytes;  // of all calls
    int ndim;             // of the last output
    int64_t output[TENSOR_MAX_DIMS];
} kit_summary_row_t;

typedef struct kit_summary_t {
    kit_summary_row_t *row; // a module before those in it
    int rows;
    int64_t parameters, trainable;
    double multiply_adds;
    double input_bytes, output_bytes; // outputs: of modules without modules in them
    double parameter_bytes, buffer_bytes;
} kit_summary_t;

// Runs m on n inputs, as nn_call_n does, and counts. A profiler that was set is unset afterwards.
//   -> table, NULL on failure;  errors those of m's forward, POISONED, OUT_OF_MEMORY
kit_summary_t *kit_summary_n(nn_module_t *m, tensor_t *const *inputs, int n);
#ifndef __cplusplus
#define kit_summary(m, ...) kit_summary_n(m, TENSOR_LIST(__VA_ARGS__))
#endif

// The table as text.
//   text    buffer of size bytes; always terminated by 0 if size > 0
//   -> length of the whole text
size_t kit_summary_text(const kit_summary_t *s, char *text, size_t size);
// Prints it to stdout.   -> code;  errors OUT_OF_MEMORY
int kit_summary_print(const kit_summary_t *s);
void kit_summary_free(kit_summary_t *s);

#ifdef __cplusplus
}

template <class... T> inline kit_summary_t *kit_summary(nn_module_t *m, T... inputs) {
    tensor_t *const list[] = {inputs...};
    return kit_summary_n(m, list, static_cast<int>(sizeof...(T)));
}
#endif
#endif

#if defined(KIT_SUMMARY_IMPLEMENTATION) && !defined(KIT_SUMMARY_DONE)
#define KIT_SUMMARY_DONE

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIT_SUMMARY__DEPTH = 256 }; // modules inside each other, at most

// What a row needs while the net runs.
typedef struct kit_summary__at_t {
    struct kit_summary__run_t *run;
    nn_module_t *module;
    int row, training;
    int64_t hooks[2];
} kit_summary__at_t;

typedef struct kit_summary__run_t {
    kit_summary_t *s;
    kit_summary__at_t *at; // of each row
    int room;              // rows there is memory for
    int stack[KIT_SUMMARY__DEPTH];
    int depth;
    double outside; // multiply-adds of no module
} kit_summary__run_t;

// ---- rows

static double kit_summary__bytes(tensor_t *t) {
    return t ? (double)tensor_numel(t) * (double)tensor_dtype_size(tensor_dtype(t)) : 0;
}

// Parameters of m that no module in it has: those whose names have no dot.
static void kit_summary__parameters(kit_summary_row_t *row, nn_module_t *m) {
    nn_named_list_t list = nn_named_parameters(m);
    for (int64_t i = 0; i < list.count; i++) {
        if (strchr(list.item[i].name, '.')) {
            continue;
        }
        int64_t n = tensor_numel(list.item[i].tensor);
        row->parameters += n;
        row->trainable += tensor_requires_grad(list.item[i].tensor) ? n : 0;
    }
}

// Adds a row for m and then for the modules in it.   -> 0 = no room
static int kit_summary__add(kit_summary__run_t *run, nn_module_t *m, const char *name, int parent,
                            int *indices) {
    kit_summary_t *s = run->s;
    int children = nn_children(m, NULL, NULL, 0), at = s->rows;
    if (at == run->room) {
        return 0;
    }
    kit_summary_row_t *row = &s->row[s->rows++];
    row->kind = m->name;
    row->parent = parent;
    row->depth = parent < 0 ? 0 : s->row[parent].depth + 1;
    if (row->depth >= KIT_SUMMARY__DEPTH) {
        return 0;
    }
    row->index = ++indices[row->depth];
    int prefixed = parent >= 0 && s->row[parent].name[0];
    snprintf(row->name, sizeof row->name, "%.80s%s%.40s", prefixed ? s->row[parent].name : "",
             prefixed ? "." : "", name);
    run->at[at].run = run;
    run->at[at].module = m;
    run->at[at].row = at;
    for (int k = 0; k < at && !row->again; k++) {
        row->again = run->at[k].module == m;
    }
    if (!row->again) {
        kit_summary__parameters(row, m);
    }
    nn_module_t **child = (nn_module_t **)calloc((size_t)children + 1, sizeof *child);
    const char **names = (const char **)calloc((size_t)children + 1, sizeof *names);
    int good = child && names;
    if (good && !row->again) {
        nn_children(m, child, names, children);
    }
    for (int k = 0; k < children && good && !row->again; k++) {
        good = kit_summary__add(run, child[k], names[k], at, indices);
    }
    free(child);
    free((void *)names);
    return good;
}

// How many rows kit_summary__add makes at most.
static int kit_summary__count(nn_module_t *m) {
    int children = nn_children(m, NULL, NULL, 0), rows = 1;
    nn_module_t **child = (nn_module_t **)calloc((size_t)children + 1, sizeof *child);
    if (!child) {
        return 0;
    }
    nn_children(m, child, NULL, children);
    for (int k = 0; k < children; k++) {
        rows += kit_summary__count(child[k]);
    }
    free(child);
    return rows;
}

// ---- while the net runs

// How many multiply-adds a kernel does, by the shapes of its operands.
static double kit_summary__products(const tensor_profiler_call_t *call) {
    tensor_profiler_operand_t a = tensor_profiler_operand(call, 0);
    tensor_profiler_operand_t b = tensor_profiler_operand(call, 1);
    tensor_profiler_operand_t v = tensor_profiler_operand(call, 2);
    tensor_profiler_operand_t y = tensor_profiler_operand(call, call->inputs);
    const char *op = call->op;
    if (a.ndim < 1 || b.ndim < 1 || a.numel < 1 || b.numel < 1) {
        return 0;
    }
    if (!strcmp(op, "matmul") || !strcmp(op, "linear") || !strcmp(op, "linear_relu") ||
        !strcmp(op, "linear_gelu_tanh")) {
        return (double)y.numel * (double)a.dims[a.ndim - 1];
    }
    if (!strncmp(op, "conv_transpose", 14)) {
        return (double)a.numel * ((double)b.numel / (double)b.dims[0]);
    }
    if (!strcmp(op, "conv1d") || !strcmp(op, "conv2d") || !strcmp(op, "conv3d")) {
        return (double)y.numel * ((double)b.numel / (double)b.dims[0]);
    }
    if (!strcmp(op, "recurrent") && a.ndim == 3) { // each step multiplies by the weights of the state
        return (double)a.dims[0] * (double)a.dims[1] * (double)b.numel;
    }
    if (!strcmp(op, "scaled_dot_product_attention") || !strcmp(op, "attention_biased")) {
        double scores = (double)a.numel / (double)a.dims[a.ndim - 1] * (double)b.dims[b.ndim - 2];
        return scores * (double)(a.dims[a.ndim - 1] + v.dims[v.ndim - 1]);
    }
    return 0;
}

static void kit_summary__kernel(void *user, const tensor_profiler_call_t *call) {
    kit_summary__run_t *run = (kit_summary__run_t *)user;
    double n = kit_summary__products(call);
    if (run->depth > 0 && run->depth <= KIT_SUMMARY__DEPTH) {
        run->s->row[run->stack[run->depth - 1]].multiply_adds += n;
    } else {
        run->outside += n;
    }
}

static tensor_t *kit_summary__before(nn_module_t *m, tensor_t *x, void *user) {
    kit_summary__at_t *at = (kit_summary__at_t *)user;
    (void)m;
    (void)x;
    if (at->run->depth < KIT_SUMMARY__DEPTH) {
        at->run->stack[at->run->depth] = at->row;
    }
    at->run->depth++;
    return NULL;
}

static tensor_t *kit_summary__after(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    kit_summary__at_t *at = (kit_summary__at_t *)user;
    kit_summary_row_t *row = &at->run->s->row[at->row];
    tensor_shape_t shape = tensor_shape(y);
    (void)m;
    (void)x;
    at->run->depth--;
    row->calls++;
    row->ndim = shape.ndim;
    memcpy(row->output, shape.dims, sizeof row->output);
    row->output_bytes += kit_summary__bytes(y);
    return NULL;
}

// Runs the net with hooks in all modules.
static void kit_summary__run(kit_summary__run_t *run, nn_module_t *m, tensor_t *const *inputs, int n) {
    tensor_profiler_t hears;
    memset((void *)&hears, 0, sizeof hears);
    hears.user = run;
    hears.begin = kit_summary__kernel;
    for (int i = 0; i < run->s->rows; i++) {
        kit_summary__at_t *at = &run->at[i];
        at->training = at->module->training;
        if (!run->s->row[i].again) {
            at->hooks[0] = nn_register_forward_pre_hook(at->module, kit_summary__before, at);
            at->hooks[1] = nn_register_forward_hook(at->module, kit_summary__after, at);
        }
    }
    nn_eval(m);
    tensor_profiler_set(&hears);
    nn_call_n(m, inputs, n);
    tensor_profiler_set(NULL);
    for (int i = 0; i < run->s->rows; i++) {
        kit_summary__at_t *at = &run->at[i];
        at->module->training = at->training;
        for (int k = 0; k < 2 && at->hooks[k]; k++) {
            nn_remove_hook(at->module, at->hooks[k]);
        }
    }
}

static void kit_summary__totals(kit_summary_t *s, nn_module_t *m) {
    nn_named_list_t all = nn_named_parameters(m);
    for (int64_t i = 0; i < all.count; i++) {
        int64_t n = tensor_numel(all.item[i].tensor);
        s->parameters += n;
        s->trainable += tensor_requires_grad(all.item[i].tensor) ? n : 0;
        s->parameter_bytes += kit_summary__bytes(all.item[i].tensor);
    }
    all = nn_named_buffers(m);
    for (int64_t i = 0; i < all.count; i++) {
        s->buffer_bytes += kit_summary__bytes(all.item[i].tensor);
    }
    for (int i = 0; i < s->rows; i++) {
        int leaf = i + 1 == s->rows || s->row[i + 1].parent != i;
        s->multiply_adds += s->row[i].multiply_adds;
        s->output_bytes += leaf ? s->row[i].output_bytes : 0;
    }
}

static kit_summary_t *kit_summary__new(kit_summary__run_t *run, nn_module_t *m, int rows) {
    int *indices = (int *)calloc(KIT_SUMMARY__DEPTH, sizeof *indices);
    run->s = (kit_summary_t *)calloc(1, sizeof *run->s);
    run->at = (kit_summary__at_t *)calloc((size_t)rows + 1, sizeof *run->at);
    run->room = rows;
    if (run->s) {
        run->s->row = (kit_summary_row_t *)calloc((size_t)rows + 1, sizeof *run->s->row);
    }
    int good = indices && run->at && run->s && run->s->row;
    good = good && kit_summary__add(run, m, "", -1, indices);
    free(indices);
    if (!good) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_summary: out of memory, or a net too deep");
    }
    return run->s;
}

kit_summary_t *kit_summary_n(nn_module_t *m, tensor_t *const *inputs, int n) {
    int rows = nn_modules(m, NULL, 0) ? kit_summary__count(m) : 0; // 0 of a net that failed, which is raised
    kit_summary__run_t *run = rows ? (kit_summary__run_t *)calloc(1, sizeof *run) : NULL;
    if (!run) {
        if (tensor_ok()) {
            (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_summary: out of memory");
        }
        return NULL;
    }
    kit_summary_t *s = kit_summary__new(run, m, rows);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    if (tensor_ok()) {
        kit_summary__run(run, m, inputs, n);
    }
    if (tensor_ok()) {
        s->multiply_adds = run->outside;
        kit_summary__totals(s, m);
    }
    for (int i = 0; i < n && tensor_ok(); i++) {
        s->input_bytes += kit_summary__bytes(inputs[i]);
    }
    tensor_scope_end(scope);
    free(run->at);
    free(run);
    if (!tensor_ok()) {
        kit_summary_free(s);
        s = NULL;
    }
    return s;
}

void kit_summary_free(kit_summary_t *s) {
    if (s) {
        free(s->row);
    }
    free(s);
}

// ---- text

typedef struct kit_summary__text_t {
    char *at;
    size_t size, length;
} kit_summary__text_t;

static void kit_summary__put(kit_summary__text_t *t, const char *format, ...) {
    size_t room = t->length < t->size ? t->size - t->length : 0;
    va_list list;
    va_start(list, format);
    int n = vsnprintf(room ? t->at + t->length : NULL, room, format, list);
    va_end(list);
    t->length += n > 0 ? (size_t)n : 0;
}

static void kit_summary__line(kit_summary__text_t *t, char with) {
    for (int i = 0; i < 103; i++) {
        kit_summary__put(t, "%c", with);
    }
    kit_summary__put(t, "\n");
}

// A whole number in groups of three digits, "--" for 0, flush right in a column.
static void kit_summary__number(kit_summary__text_t *t, double n, int width) {
    char digits[40], grouped[60];
    int length = snprintf(digits, sizeof digits, "%.0f", n), k = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            grouped[k++] = ',';
        }
        grouped[k++] = digits[i];
    }
    grouped[k] = 0;
    kit_summary__put(t, "%*s", width, n > 0 ? grouped : "--");
}

static void kit_summary__row(kit_summary__text_t *t, const kit_summary_row_t *row) {
    char layer[200], shape[120];
    int indent = row->depth < 12 ? 2 * row->depth : 24;
    size_t n = (size_t)snprintf(layer, sizeof layer, "%*s%.60s", indent, "", row->kind);
    if (row->depth > 0) {
        snprintf(layer + n, sizeof layer - n, ": %d-%d", row->depth, row->index);
    }
    n = (size_t)snprintf(shape, sizeof shape, "%s", row->calls ? "[" : "--");
    for (int d = 0; d < row->ndim && row->calls; d++) {
        n += (size_t)snprintf(shape + n, sizeof shape - n, d ? ", %lld" : "%lld", (long long)row->output[d]);
    }
    if (row->calls) {
        snprintf(shape + n, sizeof shape - n, row->calls > 1 ? "] x%d" : "]", row->calls);
    }
    kit_summary__put(t, "%-37s %-23s", layer, row->again ? "(recursive)" : shape);
    kit_summary__number(t, (double)row->parameters, 14);
    kit_summary__number(t, row->multiply_adds, 14);
    kit_summary__number(t, row->output_bytes, 14);
    kit_summary__put(t, "\n");
}

size_t kit_summary_text(const kit_summary_t *s, char *text, size_t size) {
    kit_summary__text_t t = {text, size, 0};
    double sizes[4];
    if (size > 0) {
        text[0] = 0;
    }
    if (!s) {
        return 0;
    }
    kit_summary__line(&t, '=');
    kit_summary__put(&t, "%-37s %-23s%14s%14s%14s\n", "Layer (type:depth-idx)", "Output Shape", "Param #",
                     "Mult-Adds", "Bytes");
    kit_summary__line(&t, '=');
    for (int i = 0; i < s->rows; i++) {
        kit_summary__row(&t, &s->row[i]);
    }
    kit_summary__line(&t, '=');
    kit_summary__put(&t, "Total params:        ");
    kit_summary__number(&t, (double)s->parameters, 18);
    kit_summary__put(&t, "\nTrainable params:    ");
    kit_summary__number(&t, (double)s->trainable, 18);
    kit_summary__put(&t, "\nNon-trainable params:");
    kit_summary__number(&t, (double)(s->parameters - s->trainable), 18);
    kit_summary__put(&t, "\nTotal mult-adds:     ");
    kit_summary__number(&t, s->multiply_adds, 18);
    kit_summary__put(&t, "\n");
    kit_summary__line(&t, '=');
    sizes[0] = s->input_bytes / 1e6;
    sizes[1] = 2 * s->output_bytes / 1e6; // an output and its gradient
    sizes[2] = (s->parameter_bytes + s->buffer_bytes) / 1e6;
    sizes[3] = sizes[0] + sizes[1] + sizes[2];
    kit_summary__put(&t, "Input size (MB):                 %10.2f\n", sizes[0]);
    kit_summary__put(&t, "Forward/backward pass size (MB): %10.2f\n", sizes[1]);
    kit_summary__put(&t, "Params and buffers size (MB):    %10.2f\n", sizes[2]);
    kit_summary__put(&t, "Estimated Total Size (MB):       %10.2f\n", sizes[3]);
    kit_summary__line(&t, '=');
    return t.length;
}

int kit_summary_print(const kit_summary_t *s) {
    size_t n = kit_summary_text(s, NULL, 0);
    char *text = (char *)malloc(n + 1);
    if (!text) {
        return (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_summary: out of memory");
    }
    kit_summary_text(s, text, n + 1);
    fputs(text, stdout);
    free(text);
    return 0;
}

#endif

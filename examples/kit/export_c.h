// export_c.h - a captured step as one C99 file: inference, or training with its optimizer
//
// A file to copy and to change, with the other export_*.h and file.h beside it. In one C file of the program:
//
//   #define KIT_EXPORT_C_IMPLEMENTATION
//   #include "kit/export_c.h"
//
//   tensor_capture_begin(TENSOR_CPU);
//   train_step();                                       // reads x and labels, leaves loss
//   tensor_graph_t *g = tensor_capture_end();
//   tensor_t *in[] = {x, labels}, *out[] = {loss};
//   kit_export_t e = {"digits", in, 2, NULL, out, 1, NULL, 0, 3};
//   tensor_graph_export_c(g, "digits.c", &e);
//
// The file needs no library, no malloc and no libm. It has digits_init, digits_step(in_0, in_1, out_0, rates)
// and, if steps change anything, digits_state(i, &size): array i of what they change, the parameters first,
// in the optimizer's order, so that trained weights can be sent back, or a training saved and continued.
// `cc -DDIGITS_VERIFY digits.c` is a program that repeats the recorded steps and compares them with what this
// program's replays gave: bits (a NaN with any NaN) if the file has the numbers of the instruction set that
// recorded them, portable or scalar. Otherwise the file's first lines say why they differ, and numbers may
// differ by 1e-4 of 1 + their size (int8: 0.05). Written are, in f32: products, pointwise ops, sums, softmax,
// losses, dropout, convolutions and pools of lines and images, norms, embeddings, indexing, attention, LSTM,
// GRU and RNN, clipping, SGD and Adam(W). Another op is an error that names it.
#ifndef KIT_EXPORT_C_H
#define KIT_EXPORT_C_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_export_t {
    const char *name;                   // of the functions, a C identifier; NULL = "step"
    tensor_t *const *inputs;            // what the step is given: tensors older than the capture, contiguous
    int ninputs;
    const char *const *input_names;     // parts of C identifiers: in_NAME; NULL = in_0, in_1, ..
    tensor_t *const *outputs;           // what it leaves: tensors that were alive at the capture's end
    int noutputs;
    const char *const *output_names;    // out_NAME; NULL = out_0, out_1, ..
    int int8;                           // weights of linear layers and convolutions that no step changes: as
                                        // bytes, with a scale for each output
    int replays;                        // recorded for the test; they are steps of the model like any other
} kit_export_t;

// Writes the step of a graph of the CPU as C. Parameters, optimizer states and all other tensors that are
// older than the capture are in the file with the values they have now. A label that is out of range
// makes NAME_step return 1 before it has changed a parameter; else it returns 0.
// The file's numbers are, bit for bit, those that a replay gives under TENSOR_ISA=portable if this program
// runs under that, so they are the same on every processor; if it runs under any other instruction set, those
// that a replay gives under TENSOR_ISA=scalar, and not those that it gives under this program's own. Where
// some sums are in another order than either, and with int8, last bits differ; the file's first lines say so.
//   path    receives the file; on an error it is as it was before
//   -> code;  errors OWNER (g is NULL or was freed, or a tensor that the step uses), UNSUPPORTED (an op, a
//      dtype, a name or two that are equal, a tensor of the lists that is not contiguous or that the step
//      does not use, a step that is under way in slices, one that adds to an older gradient and drops it, or
//      one that does not step all parameters equally often, real time), SHAPE (a count below 0), POISONED
//      (NULL), IO, OUT_OF_MEMORY, those of a replay
int tensor_graph_export_c(tensor_graph_t *g, const char *path, const kit_export_t *e);
// Errors have the line of the call, not one of this file.
#define tensor_graph_export_c(...)                                                                           \
    ((tensor_graph_export_c)(__VA_ARGS__) ? tensor_raise(tensor_error_code(), "") : TENSOR_OK)

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_EXPORT_C_IMPLEMENTATION) && !defined(KIT_EXPORT_C_DONE)
#define KIT_EXPORT_C_DONE

#include "export_call.h"
#include "export_file.h"
#include "export_image.h"
#include "export_nets.h"
#include "export_ops.h"
#include "export_pool.h"
#include "export_sequence.h"
#include "export_train.h"
#include "file.h"

// ---- what is in memory

static kit_place_t *kit_export__add(kit_export_state_t *x, const kit_arg_t *a) {
    kit_place_t *p = kit_place(x, a->memory);
    if (p) { return p; }
    if ((x->places & (x->places - 1)) == 0) {
        size_t room = (size_t)(x->places ? 2 * x->places : 16) * sizeof *p;
        p = (kit_place_t *)realloc((void *)x->place, room);
        if (!p) {
            x->failed = 1;
            return NULL;
        }
        x->place = p;
    }
    p = &x->place[x->places++];
    memset((void *)p, 0, sizeof *p);
    p->memory = a->memory;
    p->data = (const char *)a->data - a->at * (int64_t)tensor_dtype_size(a->dtype);
    p->first = p->last = -1;
    return p;
}

// Notes how a call uses the memory of an operand.   -> 0 if it cannot be written
static int kit_export__use(kit_export_state_t *x, int64_t call, const kit_call_t *c, int k) {
    const kit_arg_t *a = &c->arg[k];
    kit_place_t *p = kit_export__add(x, a);
    if (!p) { return 0; }
    int constant = strcmp(c->name, "constant") == 0;       // 8 bytes of whatever they mean
    p->older = a->place == TENSOR_GRAPH_INPUT;
    if (p->first < 0) {
        p->first = call;
        p->site = x->call.site;
        p->op = x->call.op;
    }
    p->last = call;
    p->changes |= a->changes;
    p->uses++;
    int linear = strncmp(c->name, "linear", 6) == 0 && k == 1 && a->ndim == 2;
    int conv = k == 1 && (c->id == NN_OP_CONV1D || c->id == NN_OP_CONV2D);
    if ((linear || conv) && kit_contiguous(a) && a->numel > 0) {
        int64_t row = a->numel / a->dims[0];
        p->weights++;
        if (p->row == 0) { p->row = row; }
        if (p->row != row || a->at % row != 0) { p->row = -1; }
    }
    int places = k == 2 && (c->id == NN_OP_MAX_POOL1D || c->id == NN_OP_MAX_POOL2D);
    p->spare |= places || (k == 7 && c->id == NN_OP_RECURRENT);
    if (constant) { return 1; }
    if (!kit_type(a->dtype)) {
        return kit_cannot(x, "%s: export_c.h does not know %s", c->name, tensor_dtype_name(a->dtype));
    }
    if (p->touched && p->dtype != a->dtype) {
        return kit_cannot(x, "%s: a memory is %s and %s", c->name, tensor_dtype_name(p->dtype),
                          tensor_dtype_name(a->dtype));
    }
    p->touched = 1;
    p->dtype = a->dtype;
    int64_t end = a->numel ? a->at + 1 : 0;
    for (int d = 0; a->numel && d < a->ndim; d++) {         // at: the first element, not the lowest one
        if (a->strides[d] > 0) { end += (a->dims[d] - 1) * a->strides[d]; }
    }
    p->numel = end > p->numel ? end : p->numel;
    return 1;
}

// Adds to the reason of a refusal where the program made the call.   -> 0
static int kit_export__recorded(kit_export_state_t *x) {
    const size_t n = strlen(x->why);
    const char *site = kit_export__site(x->call.site);
    if (site[0]) { snprintf(x->why + n, sizeof x->why - n, " (%s)", site); }
    return 0;
}

static int kit_export__collect(kit_export_state_t *x, int64_t calls) {
    for (int64_t i = 0; i < calls; i++) {
        kit_call_t c = kit_call(x, i);
        for (int k = 0; k < c.nin + c.nout; k++) {
            if (c.arg[k].memory && !kit_export__use(x, i, &c, k)) { return kit_export__recorded(x); }
        }
    }
    return 1;
}

// An input or output of the step.   -> 0 if it is not one
static int kit_export__argument(kit_export_state_t *x, const kit_export_t *e, int i, kit_kind_t kind) {
    int in = kind == KIT_INPUT;
    const char *what = in ? "input" : "output";
    tensor_t *t = in ? e->inputs[i] : e->outputs[i];
    const char *const *names = in ? e->input_names : e->output_names;
    if (tensor_is_poison(t)) { return kit_cannot(x, "%s %d is poison", what, i); }
    kit_place_t *p = kit_place_of(x, t);
    if (!p || (in && !p->older) || (!in && p->older)) {
        return kit_cannot(x, in ? "%s %d is not older than the capture, or not read by the step"
                                : "%s %d was not made by the step", what, i);
    }
    if (!p->touched) { p->dtype = tensor_dtype(t); }       // only a number of the host is written there
    if (p->dtype != tensor_dtype(t)) {
        return kit_cannot(x, "%s %d is %s, the step has it as %s", what, i,
                          tensor_dtype_name(tensor_dtype(t)), tensor_dtype_name(p->dtype));
    }
    int whole = tensor_is_contiguous(t) && !tensor_storage_offset(t) && tensor_numel(t) >= p->numel;
    if (!whole || p->kind == kind) {
        return kit_cannot(x, "%s %d is not contiguous, a view of a part, or given twice", what, i);
    }
    if (in && p->changes) { return kit_cannot(x, "%s %d is changed by the step", what, i); }
    p->kind = kind;
    p->numel = tensor_numel(t);
    // With a prefix, so that no name of the file's own is the same.
    const char *prefix = in ? "in" : "out";
    if (names) {
        snprintf(p->name, sizeof p->name, "%s_%.50s", prefix, names[i]);
    } else {
        snprintf(p->name, sizeof p->name, "%s_%d", prefix, i);
    }
    return 1;
}

// Whether two tensors lie over one memory of the program (tensor_wrap), which is not constant: they would be
// two arrays.
static int kit_export__shared(const kit_export_state_t *x) {
    for (int64_t i = 0; i < x->places; i++) {
        const kit_place_t *p = &x->place[i];
        const char *from = (const char *)p->data;
        const char *to = from + p->numel * (int64_t)tensor_dtype_size(p->dtype);
        if (!p->older || (p->kind != KIT_STATE && p->kind != KIT_INPUT)) { continue; }
        for (int64_t k = 0; k < x->places; k++) {
            const kit_place_t *q = &x->place[k];
            const char *start = (const char *)q->data;
            const char *end = start + q->numel * (int64_t)tensor_dtype_size(q->dtype);
            if (k != i && q->older && from < end && start < to) { return 1; }
        }
    }
    return 0;
}

// Whether all elements of f32 are numbers.
static int kit_export__finite(const kit_place_t *p) {
    const float *w = (const float *)p->data;
    for (int64_t i = 0; i < p->numel; i++) {
        if (!(w[i] - w[i] == 0)) { return 0; }
    }
    return 1;
}

static int kit_export__arguments(kit_export_state_t *x, const kit_export_t *e) {
    for (int64_t i = 0; i < x->places; i++) {
        kit_place_t *p = &x->place[i];
        p->kind = KIT_TEMPORARY;
        if (!p->older) { continue; }
        p->kind = p->changes ? KIT_STATE : KIT_CONSTANT;
        snprintf(p->name, sizeof p->name, "%s%lld", p->changes ? "state" : "data", (long long)i);
        int weight = p->kind == KIT_CONSTANT && p->weights == p->uses && p->dtype == TENSOR_F32;
        if (e->int8 && weight && p->row > 0 && kit_export__finite(p)) { p->rows = p->numel / p->row; }
    }
    for (int i = 0; i < e->ninputs; i++) {
        if (!kit_export__argument(x, e, i, KIT_INPUT)) { return 0; }
    }
    for (int i = 0; i < e->noutputs; i++) {
        if (!kit_export__argument(x, e, i, KIT_OUTPUT)) { return 0; }
    }
    if (kit_export__shared(x)) {
        return kit_cannot(x, "two tensors of the step lie over one memory of the program, which changes");
    }
    for (int64_t i = 0; i < x->places; i++) {
        kit_place_t *p = &x->place[i];
        if (p->kind == KIT_INPUT) { p->rows = 0; }
        if (p->spare && p->kind == KIT_TEMPORARY && p->uses == 1) { p->numel = 0; }
    }
    return 1;
}

// ---- the body

typedef int (*kit_export__writer_t)(kit_export_state_t *x, const kit_call_t *c);
typedef struct kit_export__op_t { const char *name; kit_export__writer_t write; } kit_export__op_t;

// The writer of a call; NULL = there is none.
static kit_export__writer_t kit_export__writer(const kit_call_t *c) {
    static const kit_export__op_t ops[] = {{"constant", kit_write_constant},
                                           {"matmul", kit_write_matmul},
                                           {"linear", kit_write_linear},
                                           {"linear_relu", kit_write_linear},
                                           {"linear_gelu_tanh", kit_write_linear},
                                           {"dropout", kit_write_dropout},
                                           {"cross_entropy", kit_write_cross_entropy},
                                           {"cross_entropy_backward", kit_write_cross_entropy_back},
                                           {"loss_backward", kit_write_loss_back},
                                           {"clip_grad_norm", kit_write_squares},
                                           {"scale_grad", kit_write_scale},
                                           {"step", kit_write_step}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strcmp(c->name, ops[i].name) == 0) { return ops[i].write; }
    }
    switch (c->id) {
    case NN_OP_CONV1D: case NN_OP_CONV2D: case NN_OP_CONV_TRANSPOSE1D: case NN_OP_CONV_TRANSPOSE2D:
        return kit_write_conv;
    case NN_OP_CONV_WEIGHT: return kit_write_conv_weight;
    case NN_OP_MAX_POOL1D: case NN_OP_MAX_POOL2D: return kit_write_max_pool;
    case NN_OP_MAX_POOL_BACKWARD: return kit_write_max_pool_back;
    case NN_OP_AVG_POOL1D: case NN_OP_AVG_POOL2D: case NN_OP_AVG_POOL_BACKWARD: return kit_write_avg_pool;
    case NN_OP_BATCH_NORM: case NN_OP_GROUP_NORM: return kit_write_plane_norm;
    case NN_OP_GROUP_NORM_BACKWARD: return kit_write_plane_norm_back;
    case NN_OP_LAYER_NORM: return kit_write_layer_norm;
    case NN_OP_LAYER_NORM_BACKWARD: return kit_write_layer_norm_back;
    case NN_OP_EMBEDDING: return kit_write_embedding;
    case NN_OP_EMBEDDING_BACKWARD: return kit_write_embedding_back;
    case NN_OP_ATTENTION: return kit_write_attention;
    case NN_OP_ATTENTION_BACKWARD: return kit_write_attention_back;
    case NN_OP_RECURRENT: return kit_write_recurrent;
    case NN_OP_RECURRENT_BACKWARD: return kit_write_recurrent_back;
    case TENSOR_OP_TRIL: case TENSOR_OP_TRIU: return kit_write_tri;
    case NN_OP_CTC_LOSS: return NULL;   // it has the inputs of other losses
    default: break;
    }
    switch (c->family) {
    case TENSOR_FAMILY_POINTWISE: case TENSOR_FAMILY_POINTWISE_BACKWARD: return kit_write_pointwise;
    case TENSOR_FAMILY_FILL: return kit_write_fill;
    case TENSOR_FAMILY_INDEX: return kit_write_index;
    case TENSOR_FAMILY_REDUCE: return kit_write_reduce;
    case TENSOR_FAMILY_ROWS: return c->arg[0].numel ? kit_write_rows : kit_write_no_rows;
    case TENSOR_FAMILY_LOSS: return c->nin == 4 ? kit_write_loss : NULL;
    default: return NULL;
    }
}

static void kit_export__shape(kit_export_state_t *x, int k) {
    tensor_graph_operand_t o = tensor_graph_operand(&x->call, k);
    if (o.place == TENSOR_GRAPH_NONE || o.place == TENSOR_GRAPH_NUMBER) { return; }
    kit_put(x, " %s[", tensor_dtype_name(o.dtype));
    for (int d = 0; d < o.ndim; d++) { kit_put(x, d ? ",%lld" : "%lld", (long long)o.dims[d]); }
    kit_put(x, "]");
}

// All calls, a block each under a line that says what it is.
static int kit_export__body(kit_export_state_t *x, int64_t calls) {
    for (int64_t i = 0; i < calls; i++) {
        kit_call_t c = kit_call(x, i);
        if (x->failed) { return 0; }
        kit_export__writer_t write = kit_export__writer(&c);
        int back = c.family == TENSOR_FAMILY_POINTWISE_BACKWARD;
        if (write == kit_write_step && !x->updates) {
            int64_t each = kit_step_count(x, calls);
            if (each < 0) {
                kit_cannot(x, "step: not all parameters are stepped equally often");
                return kit_export__recorded(x);
            }
            kit_put(x, "\n    steps += %lld;\n", (long long)each);
        }
        if (!write) {
            kit_cannot(x, "%s: export_c.h does not know this op", x->call.op);
            return kit_export__recorded(x);
        }
        kit_put(x, "\n    // %s%s:", x->call.op, back ? "_backward" : "");
        for (int k = 0; k < x->call.inputs && k < 6; k++) { kit_export__shape(x, k); }
        kit_put(x, " ->");
        for (int k = 0; k < x->call.outputs && k < 6; k++) { kit_export__shape(x, x->call.inputs + k); }
        kit_put(x, "%s, %s\n    {\n", x->call.outputs > 6 ? " .." : "", kit_export__site(x->call.site));
        x->depth = 1;
        if (!write(x, &c)) {
            kit_cannot(x, "%s: export_c.h does not know this op", x->call.op);
            return kit_export__recorded(x);
        }
        x->depth = 0;
        kit_put(x, "    }\n");
    }
    return 1;
}

// ---- the file

static void kit_export__file(kit_export_state_t *x, const char *path) {
    kit_file__new_t file = kit_file__begin(path);
    if (file.f) { fwrite(x->text, 1, x->used, file.f); }
    const kit_file__new_t *failed = kit_file__settle(&file, 1);
    if (!failed) { return; }
    char text[400];
    snprintf(text, sizeof text, "export_c: %.200s: cannot be written: %.150s", path, strerror(failed->error));
    (tensor_raise)(TENSOR_ERR_IO, text);
}

// Takes the text that has been written.   -> to be freed, NULL if there is none
static char *kit_export__take(kit_export_state_t *x) {
    char *text = x->text;
    x->text = NULL;
    x->used = x->room = 0;
    return text;
}

// The names of the inputs or outputs: each can be one, and is there once.
static int kit_export__names_fit(kit_export_state_t *x, const char *const *names, int n, const char *what) {
    for (int i = 0; i < n && names; i++) {
        if (!kit_export__name(x, names[i], 1)) { return 0; }
        for (int k = 0; k < i; k++) {
            if (strcmp(names[i], names[k]) == 0) {
                return kit_cannot(x, "%s %d and %d have one name, \"%s\"", what, k, i, names[i]);
            }
        }
    }
    return 1;
}

static int kit_export__names(kit_export_state_t *x, const kit_export_t *e) {
    return kit_export__name(x, e->name ? e->name : "step", 0) &&
           kit_export__names_fit(x, e->input_names, e->ninputs, "inputs") &&
           kit_export__names_fit(x, e->output_names, e->noutputs, "outputs");
}

// Adds the program that repeats the steps, behind the numbers that only it has.
static int kit_export__tested(kit_export_state_t *x, tensor_graph_t *g, const kit_export_t *e,
                              const char *name) {
    uint64_t known = x->needs;
    char *step = kit_export__take(x);
    int good = kit_export__test(x, g, e, name);
    char *test = kit_export__take(x);
    x->needs &= ~known;
    kit_put(x, "%s", step ? step : "");
    kit_export__functions(x);
    kit_put(x, "%s", test ? test : "");
    free(step);
    free(test);
    return good;
}

static int kit_export__write(kit_export_state_t *x, tensor_graph_t *g, const kit_export_t *e) {
    const char *name = e->name ? e->name : "step";
    int64_t calls = tensor_graph_info(g).calls, streams = tensor_graph_info(g).random_streams;
    uint64_t flash = 0, ram = 0;
    if (!kit_export__names(x, e)) { return 0; }
    if (!kit_export__collect(x, calls) || !kit_export__arguments(x, e)) { return 0; }

    // The body comes last in the file, and says what must be before it.
    kit_export__arenas(x, &ram);
    char *arenas = kit_export__take(x);
    int good = kit_export__body(x, calls);
    char *body = kit_export__take(x);
    kit_export__arrays(x, &flash, &ram);
    char *arrays = kit_export__take(x);
    if (good && !x->failed) {
        ram += (uint64_t)x->row * sizeof(float) + (uint64_t)x->wide * sizeof(double);
        kit_export__list_states(x, calls);
        kit_export__head(x, e, name, flash, ram);
        kit_export__functions(x);
        kit_put(x, "%s%s", arenas ? arenas : "", arrays ? arrays : "");
        if (x->row) { kit_put(x, "static float row[%lld];\n", (long long)x->row); }
        if (x->wide) { kit_put(x, "static double wide[%lld];\n", (long long)x->wide); }
        if (x->updates) { kit_put(x, "static int32_t steps;\n"); }
        if (x->draws) { kit_put(x, "static uint64_t seed, stream;\n"); }
        kit_export__init(x, name);
        kit_export__state(x, name);
        kit_put(x, "\nint %s_step(", name);
        kit_export__parameters(x, e, 1);
        kit_put(x, ") {%s", body ? body : "");
        if (x->draws) { kit_put(x, "    stream += %lld;\n", (long long)streams); }
        kit_put(x, "    return 0;\n}\n");
        if (e->replays > 0) { good = kit_export__tested(x, g, e, name); }
    }
    free(arenas);
    free(body);
    free(arrays);
    return good && !x->failed;
}

int (tensor_graph_export_c)(tensor_graph_t *g, const char *path, const kit_export_t *e) {
    kit_export_state_t x;
    memset((void *)&x, 0, sizeof x);
    x.graph = g;
    x.lanes = strcmp(tensor_isa_name(), "portable") == 0 ? 4 : 1;
    if (!tensor_ok()) { return tensor_error_code(); }
    if (!path || !e) { return (tensor_raise)(TENSOR_ERR_POISONED, "export_c: the path or e is NULL"); }
    if (tensor_is_realtime()) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED, "export_c: a file is written, in real time "
                              "(tensor_set_realtime)");
    }
    tensor_graph_info_t info = tensor_graph_info(g);
    if (!info.calls) {
        return (tensor_raise)(TENSOR_ERR_OWNER, "export_c: the graph is NULL, was freed, or has no call");
    }
    if (e->ninputs < 0 || e->noutputs < 0 || e->replays < 0) {
        return (tensor_raise)(TENSOR_ERR_SHAPE, "export_c: ninputs, noutputs and replays are 0 or more");
    }
    if ((e->ninputs > 0 && !e->inputs) || (e->noutputs > 0 && !e->outputs)) {
        return (tensor_raise)(TENSOR_ERR_POISONED, "export_c: the list of inputs or outputs is NULL");
    }
    if (info.once) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED,
                              "export_c: backward adds to a gradient that is older than the step, which then "
                              "drops it; nn_zero_grad before tensor_capture_begin");
    }
    if (info.lost) {
        return (tensor_raise)(TENSOR_ERR_OWNER,
                              "export_c: a tensor of the step was freed since the capture, or moved");
    }
    if (info.begun) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED,
                              "export_c: a step is under way; tensor_graph_resume ends it");
    }
    int good = kit_export__write(&x, g, e);
    if (x.failed) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "export_c: out of memory");
    } else if (good) {
        kit_export__file(&x, path);
    } else if (tensor_ok()) {
        char text[400];
        snprintf(text, sizeof text, "export_c: %s", x.why);
        (tensor_raise)(TENSOR_ERR_UNSUPPORTED, text);
    }
    free(x.text);
    free((void *)x.arg);
    free((void *)x.place);
    return tensor_error_code();
}

#endif

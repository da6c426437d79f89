// export_call.h - the call that export_c.h writes: its operands, and loops over several of them
//
// Included by the implementation of export_c.h; copy it with that.
#ifndef KIT_EXPORT_CALL_H
#define KIT_EXPORT_CALL_H

#include "export_text.h"

typedef tensor_graph_operand_t kit_arg_t;

// A call: its operands as the graph has them, and the numbers that its kernel is given.
typedef struct kit_call_t {
    const char *name;                   // of its row
    int id, family;                     // TENSOR_OP_ABS .. or NN_OP_CONV2D ..; tensor_family_t
    int nin, nout;
    const kit_arg_t *arg;               // nin inputs, then nout outputs
    const tensor_params_t *p;
    tensor_dtype_t compute;             // in which a formula is computed
    tensor_generator_t rng;             // of its random numbers, if call.random_stream is -1
} kit_call_t;

// Reads call i of the graph.   -> the call; without operands if there is no memory for them
KIT_TEXT_FN kit_call_t kit_call(kit_export_state_t *x, int64_t i) {
    kit_call_t c;
    memset((void *)&c, 0, sizeof c);
    x->call = tensor_graph_call(x->graph, i);
    int n = x->call.inputs + x->call.outputs;
    if (n > x->args) {
        kit_arg_t *arg = (kit_arg_t *)realloc((void *)x->arg, (size_t)n * sizeof *arg);
        x->failed |= !arg;
        if (!arg) { return c; }
        x->arg = arg;
        x->args = n;
    }
    for (int k = 0; k < n; k++) { x->arg[k] = tensor_graph_operand(&x->call, k); }
    c.name = x->call.kernel->row->name;
    c.id = x->call.kernel->row->id;
    c.family = x->call.kernel->row->family;
    c.nin = x->call.inputs;
    c.nout = x->call.outputs;
    c.arg = x->arg;
    c.p = x->call.kernel->p;
    c.compute = (tensor_dtype_t)x->call.kernel->compute;
    c.rng = x->call.kernel->rng;
    return c;
}

// ---- operands

KIT_TEXT_FN kit_place_t *kit_place(const kit_export_state_t *x, const void *memory) {
    for (int64_t i = 0; i < x->places; i++) {
        if (x->place[i].memory == memory) { return &x->place[i]; }
    }
    return NULL;
}

// What the memory of a tensor is; NULL = the step does not use it.
KIT_TEXT_FN kit_place_t *kit_place_of(const kit_export_state_t *x, tensor_t *t) {
    return kit_place(x, tensor_graph_memory(t));
}

KIT_TEXT_FN int kit_contiguous(const kit_arg_t *a) {
    int64_t step = 1;
    for (int d = a->ndim - 1; d >= 0; d--) {
        if (a->dims[d] != 1 && a->strides[d] != step && a->numel) { return 0; }
        step *= a->dims[d];
    }
    return 1;
}

// Whether the first n operands that are there are contiguous f32, apart from `other` (-1 = none).
KIT_TEXT_FN int kit_plain(kit_export_state_t *x, const kit_call_t *c, int n, int other) {
    for (int k = 0; k < n; k++) {
        const kit_arg_t *a = &c->arg[k];
        if (a->data && k != other && (a->dtype != TENSOR_F32 || !kit_contiguous(a))) {
            return kit_cannot(x, "%s: export_c.h knows contiguous f32 alone", c->name);
        }
    }
    return 1;
}

// Where the first element of an operand is, as a C pointer.
KIT_TEXT_FN kit_word_t kit_pointer(const kit_export_state_t *x, const kit_arg_t *a) {
    const kit_place_t *p = kit_place(x, a->memory);
    const char *base = p->kind == KIT_TEMPORARY ? kit_arena(p->dtype) : p->name;
    int64_t at = p->kind == KIT_TEMPORARY ? a->at + p->at : a->at;
    return at ? kit_word("%s + %lld", base, (long long)at) : kit_word("%s", base);
}

// Declares a pointer to a weight, whose memory may be bytes.   -> the scales of its rows, or an empty word
KIT_TEXT_FN kit_word_t kit_declare_weight(kit_export_state_t *x, const char *name, const kit_arg_t *a) {
    const kit_place_t *p = kit_place(x, a->memory);
    if (!p->rows) {
        kit_line(x, "const float *%s = %s;", name, kit_pointer(x, a).text);
        return kit_word("%s", "");
    }
    kit_line(x, "const int8_t *%s = %s;", name, kit_pointer(x, a).text);
    long long first = a->at / (p->numel / p->rows);
    return first ? kit_word("(%.60s_scale + %lld)", p->name, first) : kit_word("%.60s_scale", p->name);
}

// Declares a pointer to an operand.
KIT_TEXT_FN void kit_declare(kit_export_state_t *x, const char *name, const kit_arg_t *a) {
    const char *constant = a->changes ? "" : "const ";
    kit_line(x, "%s%s *%s = %s;", constant, kit_type(a->dtype), name, kit_pointer(x, a).text);
}

// The first element of an immediate.
KIT_TEXT_FN double kit_immediate(const kit_arg_t *a) {
    switch (a->dtype) {
    case TENSOR_F32: return (double)*(const float *)a->data;
    case TENSOR_F64: return *(const double *)a->data;
    case TENSOR_I32: return (double)*(const int32_t *)a->data;
    case TENSOR_I64: return (double)*(const int64_t *)a->data;
    default: return (double)*(const uint8_t *)a->data;
    }
}

// The same as C text of that dtype. A double would lose digits of a large integer.
KIT_TEXT_FN kit_word_t kit_immediate_text(kit_export_state_t *x, const kit_arg_t *a, tensor_dtype_t dtype) {
    if (a->dtype != TENSOR_I64 || dtype != TENSOR_I64) { return kit_number(x, kit_immediate(a), dtype); }
    int64_t v = *(const int64_t *)a->data;
    return v == INT64_MIN ? kit_word("%s", "INT64_MIN") : kit_word(v < 0 ? "(%lld)" : "%lld", (long long)v);
}

// ---- loops over several operands

typedef struct kit_nest_t {
    int ndim, n;                                        // of loops, of operands
    int64_t dims[TENSOR_MAX_DIMS], stride[10][TENSOR_MAX_DIMS];
} kit_nest_t;

// Adds an operand to a nest over the dims of another, with which it broadcasts.
KIT_TEXT_FN void kit_nest_add(kit_nest_t *nest, const kit_arg_t *a) {
    for (int d = 0; d < nest->ndim; d++) {
        int k = d - (nest->ndim - a->ndim);
        nest->stride[nest->n][d] = k < 0 || a->dims[k] == 1 ? 0 : a->strides[k];
    }
    nest->n++;
}

// Joins dims that all operands walk as one.
KIT_TEXT_FN void kit_nest_join(kit_nest_t *nest) {
    int to = 0;
    for (int d = 0; d < nest->ndim; d++) {
        int joins = to > 0;
        if (nest->dims[d] == 1) { continue; }
        for (int k = 0; k < nest->n && joins; k++) {
            joins = nest->stride[k][to - 1] == nest->stride[k][d] * nest->dims[d];
        }
        to += !joins;
        nest->dims[to - 1] = joins ? nest->dims[to - 1] * nest->dims[d] : nest->dims[d];
        for (int k = 0; k < nest->n; k++) { nest->stride[k][to - 1] = nest->stride[k][d]; }
    }
    nest->ndim = to;
}

KIT_TEXT_FN kit_word_t kit_index_name(const kit_nest_t *nest, int d) {
    return nest->ndim == 1 ? kit_word("i") : kit_word("i%d", d);
}

KIT_TEXT_FN void kit_nest_open(kit_export_state_t *x, const kit_nest_t *nest) {
    for (int d = 0; d < nest->ndim; d++) { kit_for(x, kit_index_name(nest, d).text, nest->dims[d]); }
}

// The index of operand k in the loops.
KIT_TEXT_FN kit_word_t kit_nest_index(const kit_nest_t *nest, int k) {
    kit_word_t w = kit_word("%s", "");
    for (int d = 0; d < nest->ndim; d++) {
        int64_t s = nest->stride[k][d];
        kit_word_t i = kit_index_name(nest, d), one;
        if (!s) { continue; }
        one = s == 1 ? i : kit_word("%lld * %.20s", (long long)s, i.text);
        w = w.text[0] ? kit_word("%.180s + %.40s", w.text, one.text) : one;
    }
    return w.text[0] ? w : kit_word("0");
}

// ---- matrices

// An operand of a product, seen as matrices.
typedef struct kit_matrix_t {
    kit_arg_t arg;
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
} kit_matrix_t;

KIT_TEXT_FN void kit_matrix(kit_matrix_t *m, const kit_arg_t *a) {
    m->arg = *a;
    for (int d = 0; d < a->ndim; d++) {
        m->dims[d] = a->dims[d];
        m->strides[d] = a->strides[d];
    }
    m->arg.dims = m->dims;
    m->arg.strides = m->strides;
}

// Adds a dim of size 1 before dim `at`.
KIT_TEXT_FN void kit_matrix_add(kit_matrix_t *m, int at) {
    int n = m->arg.ndim++;
    for (int d = n; d > at; d--) {
        m->dims[d] = m->dims[d - 1];
        m->strides[d] = m->strides[d - 1];
    }
    m->strides[at] = at < n ? m->strides[at + 1] * m->dims[at + 1] : 1;
    m->dims[at] = 1;
}

// The leading dims, which are evenly spaced, become the rows of one matrix.
KIT_TEXT_FN void kit_matrix_join(kit_matrix_t *m) {
    int last = m->arg.ndim - 1, d = last - 1;
    int64_t rows = 1;
    for (int k = 0; k < last; k++) { rows *= m->dims[k]; }
    while (d > 0 && m->dims[d] == 1) { d--; }
    m->strides[0] = m->strides[d];
    m->strides[1] = m->strides[last];
    m->dims[1] = m->dims[last];
    m->dims[0] = rows;
    m->arg.ndim = 2;
}

// The operands a, b and y of matmul with at least 2 dims: a vector is a row of a or a column of b; if all
// items of a are multiplied by one matrix b, they become one tall matrix.
KIT_TEXT_FN void kit_matrices(const kit_call_t *c, kit_matrix_t m[3]) {
    int na = c->arg[0].ndim, nb = c->arg[1].ndim;
    for (int k = 0; k < 3; k++) { kit_matrix(&m[k], &c->arg[k]); }
    if (na == 1) {
        kit_matrix_add(&m[0], 0);
        kit_matrix_add(&m[2], nb > 1 ? m[2].arg.ndim - 1 : 0);
    }
    if (nb == 1) {
        kit_matrix_add(&m[1], 1);
        kit_matrix_add(&m[2], m[2].arg.ndim);
    }
    if (na > 2 && nb <= 2 && c->arg[0].numel > 0) {
        kit_matrix_join(&m[0]);
        kit_matrix_join(&m[2]);
    }
}

#endif

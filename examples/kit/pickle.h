// pickle.h - the part of Python's pickle machine that builds data, for torchfile.h; all static
//
// Values are nodes in an array, what containers hold is lists of cells: memory is linear in the length of the
// program. A name that is not in the list of kit_torch__global is refused; only what is in it is ever called.
#ifndef KIT_PICKLE_H
#define KIT_PICKLE_H

#include "file.h"
#include "zip.h"

typedef enum kit_torch__kind_t {
    KIT_TORCH__OTHER,
    KIT_TORCH__INT,
    KIT_TORCH__TEXT,
    KIT_TORCH__TUPLE,
    KIT_TORCH__LIST,
    KIT_TORCH__DICT,
    KIT_TORCH__GLOBAL,
    KIT_TORCH__MARK,
    KIT_TORCH__STORAGE,
    KIT_TORCH__TENSOR
} kit_torch__kind_t;

// A value of the pickle. Containers have a list of cells; those of a dictionary are key, value, key, ..
typedef struct kit_torch__node_t {
    kit_torch__kind_t kind;
    tensor_dtype_t dtype;       // storage, tensor, global that names a storage
    int64_t number;             // int; which global; elements of a storage
    const unsigned char *bytes; // text; data of a storage
    size_t length;
    int first, last, count; // cells; those of a tensor are what it was made of
} kit_torch__node_t;

typedef struct kit_torch__cell_t {
    int node, next;
} kit_torch__cell_t;

typedef struct kit_torch__name_t {
    size_t name;
    int node;
} kit_torch__name_t;

struct kit_torch_t {
    unsigned char *own; // the file's bytes if kit_torch_open read them
    kit_zip_t zip;
    char *names; // one after the other, a NUL behind each
    size_t names_used, names_room;
    kit_torch__name_t *tensor;
    int64_t tensors, tensors_room;
    // The machine.
    const unsigned char *p, *begin, *end;
    kit_torch__node_t *node;
    kit_torch__cell_t *cell;
    int *stack, *memo;
    int nodes, cells, top, memos, nodes_room, cells_room, stack_room;
    int64_t visits, next_memo;
    const char *prefix;
    size_t prefix_length;
    char reason[200];
    int code;
};

// What is wrong; the first one counts.   -> 0
static int kit_torch__wrong(struct kit_torch_t *f, int code, const char *what, const unsigned char *text,
                            size_t length) {
    if (f->code) { return 0; }
    f->code = code;
    snprintf(f->reason, sizeof f->reason, "%s%.*s", what, (int)(length < 100 ? length : 100),
             text ? (const char *)text : "");
    return 0;
}
static int kit_torch__bad(struct kit_torch_t *f, const char *what) {
    return kit_torch__wrong(f, TENSOR_ERR_FORMAT, what, NULL, 0);
}
static int kit_torch__refuse(struct kit_torch_t *f, const char *what) {
    return kit_torch__wrong(f, TENSOR_ERR_UNSUPPORTED, what, NULL, 0);
}

// Room for one more of n elements.   -> array, NULL = out of memory (said)
static void *kit_torch__room(struct kit_torch_t *f, void *array, int64_t n, int64_t *room, size_t size) {
    if (n < *room) { return array; }
    int64_t more = 2 * *room + 64;
    void *grown =
        (uint64_t)more < SIZE_MAX / size && more < INT32_MAX ? realloc(array, (size_t)more * size) : NULL;
    if (!grown) { kit_torch__wrong(f, TENSOR_ERR_OUT_OF_MEMORY, "out of memory", NULL, 0); }
    if (grown) { *room = more; }
    return grown;
}

// ---- values ----

// A new value on the stack.   -> it, NULL = said
static kit_torch__node_t *kit_torch__push(struct kit_torch_t *f, kit_torch__kind_t kind) {
    int64_t room = f->nodes_room;
    kit_torch__node_t *nodes =
        (kit_torch__node_t *)kit_torch__room(f, f->node, f->nodes, &room, sizeof *nodes);
    if (nodes) { f->node = nodes; }
    f->nodes_room = (int)room;
    room = f->stack_room;
    int *stack = nodes ? (int *)kit_torch__room(f, f->stack, f->top, &room, sizeof *stack) : NULL;
    if (stack) { f->stack = stack; }
    f->stack_room = (int)room;
    if (!stack) { return NULL; }
    kit_torch__node_t *n = &f->node[f->nodes];
    memset(n, 0, sizeof *n);
    n->kind = kind;
    n->first = n->last = -1;
    f->stack[f->top++] = f->nodes++;
    return n;
}

static int kit_torch__number(struct kit_torch_t *f, kit_torch__kind_t kind, int64_t number) {
    kit_torch__node_t *n = kit_torch__push(f, kind);
    if (n) { n->number = number; }
    return n != NULL;
}

// Moves stack[from..top) into the container.
static int kit_torch__fill(struct kit_torch_t *f, int container, int from) {
    for (int i = from; i < f->top; i++) {
        int64_t room = f->cells_room;
        kit_torch__cell_t *cells =
            (kit_torch__cell_t *)kit_torch__room(f, f->cell, f->cells, &room, sizeof *cells);
        if (!cells) { return 0; }
        f->cell = cells;
        f->cells_room = (int)room;
        f->cell[f->cells].node = f->stack[i];
        f->cell[f->cells].next = -1;
        kit_torch__node_t *n = &f->node[container];
        if (n->last >= 0) {
            f->cell[n->last].next = f->cells;
        } else {
            n->first = f->cells;
        }
        n->last = f->cells++;
        n->count++;
    }
    f->top = from;
    return 1;
}

// The last n values as a tuple.
static int kit_torch__tuple(struct kit_torch_t *f, int n) {
    if (f->top < n) { return kit_torch__bad(f, "the stack is empty"); }
    if (!kit_torch__push(f, KIT_TORCH__TUPLE)) { return 0; }
    const int tuple = f->stack[--f->top];
    if (!kit_torch__fill(f, tuple, f->top - n)) { return 0; }
    f->stack[f->top++] = tuple;
    return 1;
}

// Where the last mark is, -1 = said.
static int kit_torch__mark(struct kit_torch_t *f) {
    int i = f->top - 1;
    while (i >= 0 && f->node[f->stack[i]].kind != KIT_TORCH__MARK) { i--; }
    if (i < 0) { kit_torch__bad(f, "there is no mark on the stack"); }
    return i;
}

// The value behind one of a list of cells; both may be -1.
static const kit_torch__node_t *kit_torch__item(const struct kit_torch_t *f, int *cell) {
    if (*cell < 0) { return NULL; }
    const kit_torch__node_t *n = &f->node[f->cell[*cell].node];
    *cell = f->cell[*cell].next;
    return n;
}

// The kind of value that a global is; what is not in this list is refused.
static int kit_torch__global(struct kit_torch_t *f, const unsigned char *module, size_t m,
                             const unsigned char *name, size_t n) {
    static const struct { const char *name; int what; tensor_dtype_t dtype; } known[] = {
        {"torch._utils._rebuild_tensor_v2", 'T', TENSOR_F32},
        {"torch._utils._rebuild_parameter", 'P', TENSOR_F32},
        {"collections.OrderedDict", 'D', TENSOR_F32}, {"torch.Size", 'S', TENSOR_F32},
        {"torch.FloatStorage", 's', TENSOR_F32},      {"torch.DoubleStorage", 's', TENSOR_F64},
        {"torch.HalfStorage", 's', TENSOR_F16},       {"torch.BFloat16Storage", 's', TENSOR_BF16},
        {"torch.LongStorage", 's', TENSOR_I64},       {"torch.IntStorage", 's', TENSOR_I32},
        {"torch.ShortStorage", 's', TENSOR_I16},      {"torch.CharStorage", 's', TENSOR_I8},
        {"torch.ByteStorage", 's', TENSOR_U8},        {"torch.BoolStorage", 's', TENSOR_BOOL},
    };
    char text[100];
    snprintf(text, sizeof text, "%.*s.%.*s", (int)(m < 40 ? m : 40), (const char *)module,
             (int)(n < 50 ? n : 50), (const char *)name);
    for (size_t i = 0; i < sizeof known / sizeof *known && m < 40 && n < 50; i++) {
        if (strcmp(text, known[i].name) != 0) { continue; }
        if (!kit_torch__number(f, KIT_TORCH__GLOBAL, known[i].what)) { return 0; }
        f->node[f->stack[f->top - 1]].dtype = known[i].dtype;
        return 1;
    }
    const size_t length = strlen(text);
    return kit_torch__wrong(f, TENSOR_ERR_UNSUPPORTED, "this global is not allowed: ", (unsigned char *)text,
                            length);
}

// ('storage', type, key, device, elements) becomes a storage.
static int kit_torch__storage(struct kit_torch_t *f) {
    const kit_torch__node_t *id = f->top > 0 ? &f->node[f->stack[f->top - 1]] : NULL;
    int cell = id && id->kind == KIT_TORCH__TUPLE && id->count == 5 ? id->first : -1;
    const kit_torch__node_t *word = kit_torch__item(f, &cell), *type = kit_torch__item(f, &cell);
    const kit_torch__node_t *key = kit_torch__item(f, &cell), *device = kit_torch__item(f, &cell);
    const kit_torch__node_t *count = kit_torch__item(f, &cell);
    char name[100] = "data/";
    if (!device || word->kind != KIT_TORCH__TEXT || type->kind != KIT_TORCH__GLOBAL || type->number != 's' ||
        key->kind != KIT_TORCH__TEXT || key->length > 90 || count->kind != KIT_TORCH__INT ||
        count->number < 0) {
        return kit_torch__bad(f, "a storage is not described as one");
    }
    memcpy(name + 5, key->bytes, key->length);
    const kit_zip_entry_t *e = kit_zip__find(&f->zip, f->prefix, f->prefix_length, name, 5 + key->length);
    if (!e) {
        return kit_torch__wrong(f, TENSOR_ERR_FORMAT, "the archive lacks the storage ", key->bytes,
                                key->length);
    }
    if ((uint64_t)count->number > e->size / tensor_dtype_size(type->dtype)) {
        return kit_torch__wrong(f, TENSOR_ERR_FORMAT, "too few bytes in the storage ", key->bytes,
                                key->length);
    }
    const tensor_dtype_t dtype = type->dtype;
    const int64_t elements = count->number;
    f->top--;
    kit_torch__node_t *n = kit_torch__push(f, KIT_TORCH__STORAGE);
    if (!n) { return 0; }
    n->dtype = dtype;
    n->number = elements;
    n->bytes = e->data;
    return 1;
}

// A tuple of numbers >= 0 as a shape.
static int kit_torch__numbers(const struct kit_torch_t *f, const kit_torch__node_t *t,
                              tensor_shape_t *shape) {
    int cell = t->first;
    if (t->kind != KIT_TORCH__TUPLE || t->count > TENSOR_MAX_DIMS) { return 0; }
    shape->ndim = t->count;
    for (int k = 0; k < t->count; k++) {
        const kit_torch__node_t *n = kit_torch__item(f, &cell);
        if (n->kind != KIT_TORCH__INT || n->number < 0) { return 0; }
        shape->dims[k] = n->number;
    }
    return 1;
}

// What _rebuild_tensor_v2 was given: a part of a storage.
typedef struct kit_torch__view_t {
    const kit_torch__node_t *storage;
    int64_t offset, numel;
    tensor_shape_t shape, stride;
} kit_torch__view_t;

// (storage, offset, size, stride, requires_grad, hooks, metadata)   -> NULL, or what is wrong
static const char *kit_torch__view(const struct kit_torch_t *f, const kit_torch__node_t *args,
                                   kit_torch__view_t *v) {
    int cell = args->first;
    const kit_torch__node_t *storage = kit_torch__item(f, &cell), *offset = kit_torch__item(f, &cell);
    const kit_torch__node_t *size = kit_torch__item(f, &cell), *stride = kit_torch__item(f, &cell);
    if (!stride || storage->kind != KIT_TORCH__STORAGE || offset->kind != KIT_TORCH__INT ||
        offset->number < 0 || !kit_torch__numbers(f, size, &v->shape) ||
        !kit_torch__numbers(f, stride, &v->stride) || v->shape.ndim != v->stride.ndim) {
        return "a tensor is not described as one, or has over 8 dims";
    }
    for (int k = 0; k < 2; k++) { (void)kit_torch__item(f, &cell); } // requires_grad, hooks
    const kit_torch__node_t *more = kit_torch__item(f, &cell);       // {"neg": True}, and the like
    if (more && more->count > 0) { return "a tensor is a view that negates or conjugates its storage"; }
    // The last place it reads is within the storage; views with stride 0 have more elements than that.
    uint64_t numel = 1, last = (uint64_t)offset->number;
    const uint64_t room = (uint64_t)storage->number, most = INT64_MAX / 8;
    for (int k = 0; k < v->shape.ndim; k++) { numel = v->shape.dims[k] == 0 ? 0 : numel; }
    for (int k = 0; k < v->shape.ndim && numel > 0; k++) {
        const uint64_t d = (uint64_t)v->shape.dims[k], s = (uint64_t)v->stride.dims[k];
        if (d > 1 && s > room / (d - 1)) { return "a tensor reaches beyond its storage"; }
        last += s * (d - 1);
        if (last > room || numel > most / d) { return "a tensor has more elements than its storage"; }
        numel *= d;
    }
    if (numel > 0 && last >= room) { return "a tensor reaches beyond its storage"; }
    v->storage = storage;
    v->offset = offset->number;
    v->numel = (int64_t)numel;
    return NULL;
}

// Calls a global: the stack has it and the tuple of its arguments.
static int kit_torch__reduce(struct kit_torch_t *f) {
    if (f->top < 2) { return kit_torch__bad(f, "the stack is empty"); }
    const int callee = f->stack[f->top - 2], arguments = f->stack[f->top - 1];
    const int what = f->node[callee].kind == KIT_TORCH__GLOBAL ? (int)f->node[callee].number : 0;
    if (what == 0 || what == 's' || f->node[arguments].kind != KIT_TORCH__TUPLE) {
        return kit_torch__bad(f, "something is called that is not a function");
    }
    int cell = f->node[arguments].first;
    const int first = cell < 0 ? -1 : f->cell[cell].node;
    f->top -= 2;
    if (what == 'D') {
        if (f->node[arguments].count != 0) { return kit_torch__bad(f, "OrderedDict with arguments"); }
        return kit_torch__push(f, KIT_TORCH__DICT) != NULL;
    }
    if (what == 'T') {
        kit_torch__view_t view;
        const char *wrong = kit_torch__view(f, &f->node[arguments], &view);
        if (wrong) { return kit_torch__bad(f, wrong); }
        if (!kit_torch__push(f, KIT_TORCH__TENSOR)) { return 0; }
        f->node[f->stack[f->top - 1]].first = f->node[arguments].first;
        return 1;
    }
    // A parameter is its tensor, a size its tuple.
    const kit_torch__kind_t want = what == 'P' ? KIT_TORCH__TENSOR : KIT_TORCH__TUPLE;
    if (first < 0 || f->node[first].kind != want) {
        return kit_torch__bad(f, "a parameter without tensor, or a size without numbers");
    }
    f->stack[f->top++] = first;
    return 1;
}

// ---- the machine ----

// n bytes of the program, NULL = it ends before (said).
static const unsigned char *kit_torch__take(struct kit_torch_t *f, uint64_t n) {
    const unsigned char *p = f->p;
    if (n > (uint64_t)(f->end - p)) {
        kit_torch__bad(f, "the program ends too early");
        return NULL;
    }
    f->p += n;
    return p;
}

// A little-endian number of n bytes, -1 = said.
static int64_t kit_torch__count(struct kit_torch_t *f, int n) {
    const unsigned char *p = kit_torch__take(f, (uint64_t)n);
    uint64_t value = 0;
    for (int k = 0; k < n && p; k++) { value |= (uint64_t)p[k] << 8 * k; }
    if (!p || value <= INT64_MAX) { return p ? (int64_t)value : -1; }
    kit_torch__bad(f, "a number is too large");
    return -1;
}

// Text with its length before it in n bytes.
static int kit_torch__text(struct kit_torch_t *f, int n) {
    const int64_t length = kit_torch__count(f, n);
    const unsigned char *p = length < 0 ? NULL : kit_torch__take(f, (uint64_t)length);
    kit_torch__node_t *t = p ? kit_torch__push(f, KIT_TORCH__TEXT) : NULL;
    if (!t) { return 0; }
    t->bytes = p;
    t->length = (size_t)length;
    return 1;
}

// An integer with its length before it in n bytes. One over 64 bits is not wanted by any tensor.
static int kit_torch__long(struct kit_torch_t *f, int n) {
    const int64_t length = kit_torch__count(f, n);
    const unsigned char *p = length < 0 ? NULL : kit_torch__take(f, (uint64_t)length);
    uint64_t value = 0;
    if (!p) { return 0; }
    if (length > 8) { return kit_torch__push(f, KIT_TORCH__OTHER) != NULL; }
    for (int k = 0; k < 8; k++) {
        const uint64_t sign = length > 0 && p[length - 1] & 0x80 ? 0xFF : 0;
        value |= (k < length ? p[k] : sign) << 8 * k;
    }
    return kit_torch__number(f, KIT_TORCH__INT, value <= INT64_MAX ? (int64_t)value : -(int64_t)(~value) - 1);
}

// A line of text up to \n, for names of globals.
static const unsigned char *kit_torch__name(struct kit_torch_t *f, size_t *n) {
    const unsigned char *p = f->p;
    while (f->p < f->end && *f->p != '\n') { f->p++; }
    *n = (size_t)(f->p - p);
    return kit_torch__take(f, 1) ? p : NULL;
}

static int kit_torch__store(struct kit_torch_t *f, int64_t at) {
    if (at < 0) { return 0; }
    if (f->top < 1 || at > f->end - f->begin) { return kit_torch__bad(f, "a memory cell is wrong"); }
    if (at >= f->memos) {
        const int64_t room = 2 * at + 64;
        int *grown = (int *)realloc(f->memo, (size_t)room * sizeof *grown);
        if (!grown) { return kit_torch__bad(f, "out of memory"); }
        for (int64_t i = f->memos; i < room; i++) { grown[i] = -1; }
        f->memo = grown;
        f->memos = (int)room;
    }
    f->memo[at] = f->stack[f->top - 1];
    return 1;
}

static int kit_torch__recall(struct kit_torch_t *f, int64_t at) {
    if (at < 0) { return 0; }
    if (at >= f->memos || f->memo[at] < 0) { return kit_torch__bad(f, "a memory cell is empty"); }
    if (!kit_torch__push(f, KIT_TORCH__OTHER)) { return 0; }
    f->stack[f->top - 1] = f->memo[at];
    f->nodes--;
    return 1;
}

// Items from a place of the stack on go into the container below them.
static int kit_torch__items(struct kit_torch_t *f, int from, kit_torch__kind_t kind) {
    if (from < 0 && f->code) { return 0; }
    if (from < 1 || f->node[f->stack[from - 1]].kind != kind ||
        (kind == KIT_TORCH__DICT && (f->top - from) % 2)) {
        return kit_torch__bad(f, "items without a container");
    }
    return kit_torch__fill(f, f->stack[from - 1], from);
}

// Drops the mark and what is above it on the stack into a new value of that kind.
static int kit_torch__collect(struct kit_torch_t *f, int kind) {
    const int mark = kit_torch__mark(f);
    if (mark < 0 || !kit_torch__tuple(f, f->top - mark - 1)) { return 0; }
    f->stack[mark] = f->stack[f->top - 1];
    f->top = mark + 1;
    f->node[f->stack[mark]].kind = (kit_torch__kind_t)kind;
    return kind != KIT_TORCH__DICT || f->node[f->stack[mark]].count % 2 == 0 ||
           kit_torch__bad(f, "a key without value");
}

// The items above the last mark go into the container below it.
static int kit_torch__add_items(struct kit_torch_t *f, kit_torch__kind_t kind) {
    const int mark = kit_torch__mark(f);
    if (mark < 0) { return 0; }
    f->top--;
    memmove(f->stack + mark, f->stack + mark + 1, (size_t)(f->top - mark) * sizeof *f->stack);
    return kit_torch__items(f, mark, kind);
}

// The attributes of an OrderedDict (a module's _metadata) are dropped; nothing else has any here.
static int kit_torch__build(struct kit_torch_t *f) {
    if (f->top < 2 || f->node[f->stack[f->top - 2]].kind != KIT_TORCH__DICT) {
        return kit_torch__bad(f, "an object with state");
    }
    f->top--;
    return 1;
}

static int kit_torch__name_on_stack(struct kit_torch_t *f) {
    if (f->top < 2) { return kit_torch__bad(f, "the stack is empty"); }
    const kit_torch__node_t module = f->node[f->stack[f->top - 2]], name = f->node[f->stack[f->top - 1]];
    if (module.kind != KIT_TORCH__TEXT || name.kind != KIT_TORCH__TEXT) {
        return kit_torch__bad(f, "a global without a name");
    }
    f->top -= 2;
    return kit_torch__global(f, module.bytes, module.length, name.bytes, name.length);
}

static int kit_torch__line_global(struct kit_torch_t *f) {
    size_t m, n;
    const unsigned char *module = kit_torch__name(f, &m), *name = module ? kit_torch__name(f, &n) : NULL;
    return name ? kit_torch__global(f, module, m, name, n) : 0;
}

// One instruction.   -> 0 = the end, or said
static int kit_torch__step(struct kit_torch_t *f) {
    const unsigned char *op = kit_torch__take(f, 1);
    int64_t number;
    // clang-format off
    switch (op ? *op : '.') {
    case 0x80: return kit_torch__take(f, 1) != NULL; // PROTO
    case 0x95: return kit_torch__take(f, 8) != NULL; // FRAME
    case 'N': case 0x88: case 0x89: return kit_torch__push(f, KIT_TORCH__OTHER) != NULL;
    case 'G': return kit_torch__take(f, 8) && kit_torch__push(f, KIT_TORCH__OTHER); // a float
    case 'J':
        number = kit_torch__count(f, 4);
        return number >= 0 &&
               kit_torch__number(f, KIT_TORCH__INT, number > INT32_MAX ? number - 4294967296 : number);
    case 'K': case 'M':
        number = kit_torch__count(f, *op == 'K' ? 1 : 2);
        return number >= 0 && kit_torch__number(f, KIT_TORCH__INT, number);
    case 0x8A: return kit_torch__long(f, 1);
    case 0x8B: return kit_torch__long(f, 4);
    case 'X': case 'T': return kit_torch__text(f, 4);
    case 0x8C: case 'U': return kit_torch__text(f, 1);
    case 0x8D: return kit_torch__text(f, 8);
    case '(': return kit_torch__push(f, KIT_TORCH__MARK) != NULL;
    case ')': return kit_torch__tuple(f, 0);
    case 0x85: case 0x86: case 0x87: return kit_torch__tuple(f, *op - 0x84);
    case 't': return kit_torch__collect(f, KIT_TORCH__TUPLE);
    case 'l': return kit_torch__collect(f, KIT_TORCH__LIST);
    case 'd': return kit_torch__collect(f, KIT_TORCH__DICT);
    case ']': return kit_torch__push(f, KIT_TORCH__LIST) != NULL;
    case '}': return kit_torch__push(f, KIT_TORCH__DICT) != NULL;
    case 'a': return kit_torch__items(f, f->top - 1, KIT_TORCH__LIST);
    case 's': return kit_torch__items(f, f->top - 2, KIT_TORCH__DICT);
    case 'e': return kit_torch__add_items(f, KIT_TORCH__LIST);
    case 'u': return kit_torch__add_items(f, KIT_TORCH__DICT);
    case 'q': return kit_torch__store(f, kit_torch__count(f, 1));
    case 'r': return kit_torch__store(f, kit_torch__count(f, 4));
    case 0x94: return kit_torch__store(f, f->next_memo++);
    case 'h': return kit_torch__recall(f, kit_torch__count(f, 1));
    case 'j': return kit_torch__recall(f, kit_torch__count(f, 4));
    case 'c': return kit_torch__line_global(f);
    case 0x93: return kit_torch__name_on_stack(f);
    case 'Q': return kit_torch__storage(f);
    case 'R': return kit_torch__reduce(f);
    case 'b': return kit_torch__build(f);
    case '.': break;
    default: kit_torch__bad(f, "an instruction that torch.save does not write"); break;
    }
    // clang-format on
    return 0;
}

#endif

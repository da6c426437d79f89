// api.c - bytes as a program: calls of all ops of ops.def with the arguments of their cases or others, views,
// changes in place, backward passes, scopes of every kind, kept tensors, tensors that are used after their
// scope. Nothing crashes, overflows or leaks; an error has a code and a text.
//
// The program's tensors are in a ring of 16 that calls take their inputs from and put their results in. A
// result of more than 4096 elements is not put there, so that programs stay quick, and of the results of
// failed calls only each sixteenth, so that most calls get past the check for them.
#include "fuzz.h"
#include "../cases.h"

enum { RING = 16, MOST_ELEMENTS = 4096, MOST_STEPS = 48, MOST_KEPT = 8, MOST_SCOPES = 6 };

typedef struct tried_t {
    const entry_t *op;
    case_t c;
} tried_t;
static tried_t *tried;
static int ntried, traced; // FUZZ_TRACE=1: the program on stderr
static unsigned long long calls,
    errors; // steps of programs, each at least one call; those that ended in an error

static struct {
    tensor_t *ring[RING], *kept[MOST_KEPT];
    tensor_scope_t scopes[MOST_SCOPES];
    int at, failed, nkept, nscopes;
} program;

static void put(tensor_t *x) {
    if (!x || tensor_numel(x) > MOST_ELEMENTS) { return; }
    if (tensor_is_poison(x) && ++program.failed % 16 != 0) { return; }
    program.ring[program.at++ % RING] = x;
}
static tensor_t *taken(bytes_t *b) {
    return program.ring[next_byte(b) % RING];
}

// ---- numbers ----

static int64_t a_number(bytes_t *b, int64_t usual) {
    static const int64_t special[] = {0,         1,         -1,        2,        -2,  3,    4,
                                      5,         7,         8,         9,        100, -100, INT32_MAX,
                                      INT32_MIN, INT64_MAX, INT64_MIN, 1u << 31, 64,  17};
    unsigned k = next_byte(b);
    if (k < 128) { return usual; }
    return special[k % (sizeof special / sizeof *special)];
}
static double a_real(bytes_t *b, double usual) {
    static const double special[] = {0,    1,     -1,     0.5, -0.5,  2, 1e-30,
                                     1e30, 1e300, -1e300, 100, 0.999, 3, 1e-310};
    unsigned k = next_byte(b);
    if (k < 128) { return usual; }
    if (k == 128) { return (double)NAN; }
    if (k == 129) { return (double)INFINITY; }
    if (k == 130) { return -(double)INFINITY; }
    return special[k % (sizeof special / sizeof *special)];
}
static tensor_dtype_t a_dtype(bytes_t *b) {
    return (tensor_dtype_t)(next_byte(b) % (TENSOR_DTYPE_COUNT + 1));
}

// ---- ops ----

// Whether the harness itself, not the library, trusts these integers: what it lends or counts out.
static int fixed_integers(const char *name) {
    return strcmp(name, "from") == 0 || strcmp(name, "wrap") == 0 || strcmp(name, "lstm") == 0 ||
           strcmp(name, "gru") == 0 || strcmp(name, "rnn") == 0;
}
static void change_text(bytes_t *b, char *s) {
    static const char *const texts[] = {"",      "f32",    "bool", "i64", "none", "mean",     "trunc",
                                        "floor", "linear", "nuc",  "fro", "inf",  "complete", "r"};
    snprintf(s, 32, "%s", texts[next_byte(b) % (sizeof texts / sizeof *texts)]);
}
enum {
    CHANGE_INTEGERS = 1,
    CHANGE_REALS = 2,
    FROM_RING = 4,
    WITH_GRAD = 8,
    IN_ITSELF = 16,
    CHANGE_TEXT = 32,
    SOME_RING = 64
};
static void call_op(bytes_t *b) {
    const tried_t *t = &tried[next_pair(b) % (unsigned)ntried];
    unsigned flags = next_byte(b);
    tensor_dtype_t dtype = (tensor_dtype_t)(next_byte(b) % TENSOR_DTYPE_COUNT);
    arguments_t a;
    int k;
    begin_arguments(t->op, &t->c, &a);
    for (k = 0; k < a.nin; k++) {
        int ring = (flags & FROM_RING) || ((flags & SOME_RING) && next_byte(b) < 100);
        a.in[k] = ring ? taken(b) : input_of(&t->c.in[k], k, t->op->lo, t->op->hi, dtype);
        if (!ring && (flags & WITH_GRAD) && a.in[k] && is_data(&t->c.in[k])) {
            tensor_requires_grad_(a.in[k], 1);
        }
    }
    tensor_clear_error();
    if ((flags & CHANGE_INTEGERS) && !fixed_integers(t->op->name)) {
        int more = (int)(next_byte(b) % 8);
        for (k = 0; k < a.ni; k++) { a.i[k] = a_number(b, a.i[k]); }
        for (; more >= 6 && a.ni < 12; more--) { a.i[a.ni++] = a_number(b, 1); }
    }
    if (flags & CHANGE_REALS) {
        for (k = 0; k < 4; k++) { a.f[k] = a_real(b, a.f[k]); }
    }
    if (flags & CHANGE_TEXT) { change_text(b, a.s); }
    changes_itself = (flags & IN_ITSELF) != 0;
    if (traced) {
        fprintf(stderr, "%s \"%s\" dtype %d flags %u\n", t->op->name, t->c.text, (int)dtype, flags);
    }
    t->op->call(&a);
    changes_itself = 0;
    for (k = 0; k < a.nout && k < MAX_OUT; k++) { put(a.out[k]); }
}

// ---- views, changes in place ----

static void make_view(bytes_t *b) {
    tensor_t *x = taken(b), *y = NULL;
    unsigned kind = next_byte(b) % 17;
    int64_t d = a_number(b, (int64_t)(next_byte(b) % 4)), n[4], s[4];
    int k;
    for (k = 0; k < 4; k++) {
        n[k] = a_number(b, (int64_t)(next_byte(b) % 5)), s[k] = a_number(b, (int64_t)(next_byte(b) % 5));
    }
    switch (kind) {
    case 0: y = tensor_narrow(x, d, n[0], n[1]); break;
    case 1: y = tensor_select(x, d, n[0]); break;
    case 2: y = tensor_transpose(x, d, n[0]); break;
    case 3: y = tensor_slice(x, d, n[0], n[1], n[2]); break;
    case 4: y = tensor_unsqueeze(x, d); break;
    case 5: y = tensor_squeeze(x, d); break;
    case 6: y = tensor_expand_n(x, n, (int)(s[0] & 3) + 1); break;
    case 7: y = tensor_reshape_n(x, n, (int)(s[0] & 3)); break;
    case 8: y = tensor_permute_n(x, n, (int)(s[0] & 3) + 1); break;
    case 9: y = tensor_as_strided(x, n, s, (int)(s[0] & 3), d); break;
    case 10: y = tensor_diagonal(x, n[0], d, n[1]); break;
    case 11: y = tensor_unflatten_n(x, d, n, (int)(s[0] & 3)); break;
    case 12: y = tensor_view_n(x, n, (int)(s[0] & 3)); break;
    case 13: y = tensor_flatten(x, d, n[0]); break;
    case 14: y = tensor_unfold_dim(x, d, n[0], n[1]); break;
    case 15: y = tensor_at(x, "..., ::2"); break;
    default: y = tensor_detach(x); break;
    }
    put(y);
}
static void change(bytes_t *b) {
    tensor_t *x = taken(b), *y = taken(b), *z = NULL;
    unsigned kind = next_byte(b) % 12;
    if (traced) { fprintf(stderr, "change %u of %p by %p\n", kind, (void *)x, (void *)y); }
    switch (kind) {
    case 0: z = tensor_add_(x, y); break;
    case 1: z = tensor_mul_(x, y); break;
    case 2: z = tensor_copy_(x, y); break;
    case 3: z = tensor_fill_(x, a_real(b, 0.25)); break;
    case 4: z = tensor_zero_(x); break;
    case 5: z = tensor_relu_(x); break;
    case 6: z = tensor_mul_scalar_(x, a_real(b, 0.5)); break;
    case 7: z = tensor_uniform_(x, 0, 1); break;
    case 8:
        if (program.nkept) { tensor_set(&program.kept[next_byte(b) % (unsigned)program.nkept], y); }
        break;
    case 9: z = tensor_exp_(tensor_select(x, 0, 0)); break;
    case 10: z = tensor_copy_(tensor_narrow(x, 0, 0, 1), tensor_narrow(x, 0, 1, 1)); break;
    default: z = tensor_clamp_(x, a_real(b, -1), a_real(b, 1)); break;
    }
    put(z);
}

// ---- gradients ----

static void differentiate(bytes_t *b) {
    tensor_t *y = taken(b), *x = taken(b), *in[2], *out[2] = {NULL, NULL};
    unsigned kind = next_byte(b) % 12;
    if (traced) { fprintf(stderr, "gradient %u of %p, %p\n", kind, (void *)y, (void *)x); }
    switch (kind) {
    case 0:
    case 1: tensor_backward(tensor_sum(tensor_to(y, TENSOR_F32))); break;
    case 2: tensor_backward(y); break;
    // Not with TENSOR_CREATE_GRAPH: a leaf and its gradient would hold each other (until tensor_shutdown).
    case 3:
        tensor_backward_with(y, x, (int)(next_byte(b) & (TENSOR_RETAIN_GRAPH | TENSOR_ALLOW_UNUSED)));
        break;
    case 4:
        in[0] = x, in[1] = taken(b);
        y = tensor_sum(y);
        tensor_autograd_grad(&y, 1, NULL, in, 2, out, (int)(next_byte(b) & 7));
        put(out[0]), put(out[1]);
        break;
    case 5: put(tensor_detach(tensor_grad(y))); break; // in place it would take a graph, see case 3
    case 6:
        tensor_set_grad(y, tensor_detach(x));
        break; // a graph of y would hold y for good
    // Of a copy: a view that is a leaf and is written into what it looks at would be held by that, and hold
    // it (also in PyTorch).
    case 7:
        if (next_byte(b) & 1) {
            put(tensor_requires_grad_(tensor_clone(tensor_detach(y)), 1));
        } else {
            tensor_requires_grad_(y, 0);
        }
        break;
    case 8: tensor_retain_grad(y); break;
    case 9: tensor_detach_(y); break;
    case 10: tensor_set_grad(y, NULL); break;
    default:
        tensor_backward_with(tensor_sum(tensor_square(y)), NULL, TENSOR_RETAIN_GRAPH);
        put(tensor_detach(tensor_grad(x)));
        break;
    }
}

// ---- scopes and references ----

static void change_scope(bytes_t *b) {
    unsigned kind = next_byte(b) % 12;
    tensor_scope_t *top = &program.scopes[program.nscopes - 1];
    if (kind < 6 && program.nscopes < MOST_SCOPES) {
        program.scopes[program.nscopes++] =
            kind == 0   ? tensor_scope_begin_no_grad()
            : kind == 1 ? tensor_scope_begin_inference()
            : kind == 2 ? tensor_scope_begin_autocast(next_byte(b) & 1 ? TENSOR_F16 : TENSOR_BF16)
            : kind == 3 ? tensor_scope_begin_grad()
                        : tensor_scope_begin();
    } else if (program.nscopes > 1 && kind < 9) {
        program.nscopes--;
        if (kind == 6) {
            put(tensor_scope_return(*top, taken(b)));
        } else {
            tensor_scope_end(*top);
        }
    } else if (program.nscopes > 1) {
        tensor_scope_reset(*top);
    }
}
static void own(bytes_t *b) {
    tensor_t *x = taken(b);
    switch (next_byte(b) % 4) {
    case 0:
    case 1:
        if (program.nkept < MOST_KEPT && !tensor_is_poison(tensor_keep(x))) {
            program.kept[program.nkept++] = x;
        }
        break;
    case 2: tensor_free(x); break;
    default:
        if (program.nkept) { tensor_free(program.kept[--program.nkept]); }
        break;
    }
}

// ---- reading ----

static void look(bytes_t *b) {
    tensor_t *x = taken(b), *y = taken(b);
    char text[200];
    switch (next_byte(b) % 10) {
    case 0: tensor_item(x); break;
    case 1: tensor_to_string(x, text, next_byte(b) % sizeof text); break;
    case 2: put(tensor_contiguous(x)); break;
    case 3: tensor_equal(x, y); break;
    case 4: put(tensor_to(x, (int)a_dtype(b))); break;
    case 5:
        if (tensor_numel(x) <= MOST_ELEMENTS) { test_hash(TEST_HASH, x); }
        break;
    case 6: tensor_item_i64(x); break;
    case 7: tensor_memory_report(text, sizeof text); break;
    case 8: put(tensor_clone(x)); break;
    default: tensor_data(x); break;
    }
}

static void api_setup(void) {
    static case_t cases[MAX_CASES];
    int k, j, n, room = 0;
    if (tried) { return; }
    traced = getenv("FUZZ_TRACE") != NULL;
    for (k = 0; k < NOPS - ONLY_FIXTURES; k++) { room += cases_of_op(&ops[k], 0, cases, MAX_CASES); }
    tried = (tried_t *)malloc((size_t)room * sizeof *tried);
    if (!tried) { abort(); }
    for (k = 0; k < NOPS - ONLY_FIXTURES; k++) {
        n = cases_of_op(&ops[k], 0, cases, MAX_CASES);
        for (j = 0; j < n; j++) {
            tried[ntried].op = &ops[k];
            tried[ntried++].c = cases[j];
        }
    }
}
static void program_begin(void) {
    int k;
    memset(&program, 0, sizeof program);
    for (k = 0; k < RING; k++) {
        int64_t dims[3] = {1 + k % 3, 2 + k / 6, 3};
        static const tensor_dtype_t of[] = {TENSOR_F32, TENSOR_F32,  TENSOR_F64,
                                            TENSOR_I64, TENSOR_BF16, TENSOR_BOOL};
        tensor_t *x = tensor_to(tensor_randn_n(dims, 1 + k % 3), of[k % 6]);
        put(k % 6 < 2 && k < 8 ? tensor_requires_grad_(x, 1) : x);
    }
    program.scopes[program.nscopes++] = tensor_scope_begin();
}
static void program_end(void) {
    tensor_clear_error();
    tensor_set_autocast(TENSOR_DTYPE_NONE);
    tensor_set_grad_enabled(1);
    while (program.nkept) { tensor_free(program.kept[--program.nkept]); }
    tensor_scope_end(program.scopes[0]);
}

static void api(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    int steps;
    program_begin();
    PROMISE(tensor_ok(), "%s", tensor_error_text());
    for (steps = 0; b.p < b.end && steps < MOST_STEPS; steps++) {
        unsigned kind = next_byte(&b) % 16;
        if (kind < 8) {
            call_op(&b);
        } else if (kind < 10) {
            make_view(&b);
        } else if (kind == 10) {
            change(&b);
        } else if (kind < 13) {
            differentiate(&b);
        } else if (kind == 13) {
            change_scope(&b);
        } else if (kind == 14) {
            own(&b);
        } else {
            look(&b);
        }
        if (traced) { fprintf(stderr, "%d: kind %u: %s\n", steps, kind, tensor_error_text()); }
        PROMISE(tensor_ok() || *tensor_error_text(), "an error without a text");
        PROMISE(tensor_error_code() != TENSOR_ERR_INTERNAL, "%s", tensor_error_text());
        calls++;
        errors += !tensor_ok();
        tensor_clear_error();
    }
    program_end();
}
FUZZ_TARGET(api, api_setup)

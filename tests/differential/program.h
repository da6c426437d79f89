// program.h - a random program: its statements, their text, the program as C
//
// A statement calls an op of ops.def or one of the statements below. Values are numbered: x0, x1, ...; a
// statement makes `nout` of them from `out` on. What the numbers and the text of a statement mean: the table.
#ifndef DIFFERENTIAL_PROGRAM_H
#define DIFFERENTIAL_PROGRAM_H
#define TENSOR_BACKEND
#include "../mirror.h"
#include "../cases.h"

enum { MAX_STEPS = 64, MAX_VALUES = 256, MAX_RESULTS = 4, MAX_DEPTH = 6 };

// name, how often it is chosen beside ops, C of it
#define STATEMENTS(X)                                                                                        \
    X(leaf, 0)      /* i: dtype, requires grad, layout, fill, seed, bound, dims; f: from, to */              \
    X(begin, 6)     /* a scope; i: its kind */                                                               \
    X(end, 0)       /* of the innermost scope; in: what it hands out, or nothing */                          \
    X(reset, 2)     /* the innermost scope */                                                                \
    X(mode, 2)      /* i: grad mode until the scope ends */                                                  \
    X(pack, 1)      /* saved values are packed until the scope ends */                                       \
    X(hook, 6)      /* on in; i: kind */                                                                     \
    X(post_hook, 2) /* on the leaf in */                                                                     \
    X(unhook, 1)    /* i: which one */                                                                       \
    X(retain, 2)                                                                                             \
    X(detach_, 1)                                                                                            \
    X(require, 2)  /* i: on */                                                                               \
    X(grad, 9)     /* of in[0] by the others; i: flags */                                                    \
    X(backward, 6) /* i: flags, whether of a number alone */                                                 \
    X(clear, 1)    /* the gradient of a leaf */                                                              \
    X(set_grad, 1) /* of in[0] to in[1] */                                                                   \
    X(keep, 2)                                                                                               \
    X(set, 2)      /* a new handle gets in[0], then in[1] */                                                 \
    X(custom, 3)   /* x * x * y and x + y, by a function of the user; i: which */                            \
    X(custom_, 1)  /* x *= -2, by a function of the user */                                                  \
    X(poke, 2)     /* the first element becomes f, by its address */                                         \
    X(module, 0)   /* i: which one of modules.def, whether in training, detour; in: what it is called on */  \
    X(optimize, 5) /* i: which one, how its second step is made; in: a leaf */                               \
    X(carry, 4)    /* a copy of in[0]; i: by which way */                                                    \
    X(clip_grads, 2) /* of the leaves in; i: how; f: the largest norm or value */                              \
    X(init, 2)     /* in[0] gets first values; i: which; f: a number */                                      \
    X(look, 2)     /* at in[0] and the library's state; i: how */
typedef enum statement_t {
#define X(name, weight) DO_##name,
    STATEMENTS(X)
#undef X
        DO_COUNT
} statement_t;
static const struct {
    const char *name;
    int weight;
} statements[] = {
#define X(name, weight) {#name, weight},
    STATEMENTS(X)
#undef X
};
enum { PLAIN, NO_GRAD, WITH_GRAD, INFERENCE, CAST_F16, CAST_BF16, SCOPE_KINDS };
enum { DIRECT, CHECKPOINTED, VJP, JVP, JACOBIAN, HESSIAN, HVP, VHP, VIAS };
static const char *const vias[] = {"", "checkpoint", "vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"};

static const char *const module_names[] = {
#define MODULE(name, ...) #name,
#include "modules.def"
};
static const char *const optimizer_names[] = {
#define OPTIMIZER(name, make, python) #name,
#include "modules.def"
};
// Ways of a tensor's elements and of a module's state that change neither (objects.h).
#define EACH_WAY(X)                                                                                          \
    X(items) X(bytes) X(lending) X(dlpack) X(dlpack_unversioned) X(safetensors) X(safetensors_file)          \
    X(safetensors_map) X(npy) X(npy_file) X(npz) X(npz_file) X(loader) X(subset) X(padding) X(text)
#define EACH_DETOUR(X)                                                                                       \
    X(none) X(cloned) X(copied) X(in_memory) X(in_a_file) X(in_a_checkpoint) X(taken_back) X(as_a_vector)    \
    X(averaged) X(thawed) X(hooked) X(inside) X(parametrized) X(looked_at)
enum {
#define X(name) WAY_##name,
    EACH_WAY(X)
#undef X
        WAYS
};
enum {
#define X(name) DETOUR_##name,
    EACH_DETOUR(X)
#undef X
        DETOURS
};
static const char *const way_names[] = {
#define X(name) #name,
    EACH_WAY(X)
};
static const char *const detour_names[] = {
    EACH_DETOUR(X)
#undef X
};
enum { STEPS = 5 };     // ways of a step of an optimizer
enum { CUSTOM_TWO, CUSTOM_HALF, CUSTOM_ONE, CUSTOMS };  // HALF: x + y has no gradient; ONE: x * x alone
enum { CLIP_NORM, CLIP_LARGEST, CLIP_VALUE, CLIP_BY_TOTAL, TOTAL_NORM, CLIPS };
enum {
    INIT_CONSTANT,
    INIT_ZEROS,
    INIT_ONES,
    INIT_EYE,
    INIT_DIRAC,
    INIT_UNIFORM,                   // from here on random
    INIT_NORMAL,
    INIT_TRUNC_NORMAL,
    INIT_XAVIER_UNIFORM,
    INIT_XAVIER_NORMAL,
    INIT_KAIMING_UNIFORM,
    INIT_KAIMING_NORMAL,
    INIT_ORTHOGONAL,
    INIT_SPARSE,
    INITS
};
enum { LOOK_NAMES, LOOK_MEMORY, LOOK_MODES, LOOK_ERROR, LOOK_CONTEXT, LOOK_PROFILER, LOOK_JOBS, LOOKS };

enum {
    MODULES = (int)(sizeof module_names / sizeof module_names[0]),
    OPTIMIZERS = (int)(sizeof optimizer_names / sizeof optimizer_names[0])
};

typedef struct step_t {
    int what;                // number in ops; NOPS + statement
    int via;                 // how an op is called
    int in[MAX_INPUTS], nin; // values; -1: absent
    int ni, nf;
    int64_t i[MAX_ARGS];
    double f[4];
    char s[64];
    int out, nout;
} step_t;
typedef struct program_t {
    uint64_t seed;
    int n, values;
    step_t step[MAX_STEPS];
} program_t;

TEST_FN const char *name_of(const step_t *s) {
    return s->what < NOPS ? ops[s->what].name : statements[s->what - NOPS].name;
}
TEST_FN int is(const step_t *s, statement_t what) {
    return s->what == NOPS + (int)what;
}

// ---- random numbers ----

static uint64_t random_state;
TEST_FN uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
TEST_FN int64_t below(int64_t n) {
    random_state += 0x9E3779B97F4A7C15u;
    return n > 0 ? (int64_t)(mixed(random_state) % (uint64_t)n) : 0;
}
TEST_FN int chance(int percent) {
    return below(100) < percent;
}

// ---- leaves ----

enum { AT_DTYPE, AT_GRAD, AT_LAYOUT, AT_FILL, AT_SEED, AT_BOUND, AT_DIMS };
enum {
    FILL_REAL,
    FILL_INDEX,
    FILL_MASK,
    FILL_INTEGER,
    FILL_POSITIVE,
    FILL_SORTED,
    FILL_REGULAR,
    FILL_DEFINITE,
    FILL_LIST
};

TEST_FN int is_real(int dtype) {
    return dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
}
TEST_FN int leaf_ndim(const step_t *s) {
    return s->ni - AT_DIMS;
}
TEST_FN int64_t leaf_numel(const step_t *s) {
    int64_t n = 1;
    int k;
    for (k = AT_DIMS; k < s->ni; k++)
        n *= s->i[k];
    return n;
}
// The elements, in row-major order: those of real ones are multiples of 1/64 of the range, different ones
// while there are enough.
TEST_FN void leaf_elements(const step_t *s, double *v) {
    int64_t n = leaf_numel(s), k, last = leaf_ndim(s) ? s->i[s->ni - 1] : 1, steps = n < 64 ? 64 : 4096, j;
    uint64_t seed = (uint64_t)s->i[AT_SEED];
    const char *p = s->s;
    int fill = (int)s->i[AT_FILL];
    for (k = 0; k < n; k++) {
        uint64_t r = mixed(seed * 1000003u + (uint64_t)k);
        // an odd factor is a permutation of the steps
        double u = (double)(((uint64_t)k * (mixed(seed) | 1) + mixed(seed + 7)) % (uint64_t)steps);
        u = (u + 0.5) / (double)steps;
        switch (fill) {
        case FILL_INDEX: v[k] = s->i[AT_BOUND] > 0 ? (double)(r % (uint64_t)s->i[AT_BOUND]) : 0; break;
        case FILL_MASK: v[k] = (double)(r % 2); break;
        case FILL_INTEGER: v[k] = (double)(r % 8) - (s->i[AT_DTYPE] == TENSOR_U8 ? 0 : 3); break;
        case FILL_POSITIVE: v[k] = (double)(1 + r % 8); break;
        case FILL_LIST: {
            char *end;
            v[k] = (double)strtoll(p, &end, 10);
            p = *end == ',' ? end + 1 : end;
            break;
        }
        default: v[k] = s->f[0] + (s->f[1] - s->f[0]) * u; break;
        }
        if (s->i[AT_DTYPE] == TENSOR_BOOL) v[k] = v[k] != 0;
        if (!is_real((int)s->i[AT_DTYPE])) v[k] = floor(v[k]);
        if (s->i[AT_DTYPE] == TENSOR_U8 && v[k] < 0) v[k] = -v[k];
    }
    for (k = 0; k < n && fill == FILL_SORTED; k++)
        for (j = k; j % last && v[j] < v[j - 1]; j--) {
            double t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    if ((fill == FILL_REGULAR || fill == FILL_DEFINITE) && leaf_ndim(s) > 1)
        for (k = 0; k < n; k++) {
            int64_t row = k / last % last, column = k % last;
            if (fill == FILL_DEFINITE && column > row) v[k] = v[k + (column - row) * (last - 1)];
            if (row == column) v[k] = (double)last + v[k] / 2;
        }
}

// ---- text: one line a statement, for PyTorch's side and to keep ----

TEST_FN void write_number(FILE *f, double v) {
    fprintf(f, " %.17g", v);
}
TEST_FN void write_step(FILE *f, const step_t *s, int elements) {
    int k;
    fprintf(f, "%s %d %d", name_of(s), s->via, s->nin);
    for (k = 0; k < s->nin; k++)
        fprintf(f, " %d", s->in[k]);
    fprintf(f, " %d", s->ni);
    for (k = 0; k < s->ni; k++)
        fprintf(f, " %lld", (long long)s->i[k]);
    fprintf(f, " %d", s->nf);
    for (k = 0; k < s->nf; k++)
        write_number(f, s->f[k]);
    fprintf(f, " %d %d s=", s->out, s->nout);
    for (k = 0; s->s[k]; k++)
        fputc(s->s[k] == ' ' ? '_' : s->s[k], f);
    if (elements && is(s, DO_leaf)) {
        int64_t n = leaf_numel(s), j;
        double *v = (double *)malloc(((size_t)n + 1) * sizeof *v);
        leaf_elements(s, v);
        for (j = 0; j < n; j++)
            write_number(f, v[j]);
        free(v);
    }
    fputc('\n', f);
}
TEST_FN void write_program(FILE *f, const program_t *p) {
    int k;
    fprintf(f, "program %llu\n", (unsigned long long)p->seed);
    for (k = 0; k < p->n; k++)
        write_step(f, &p->step[k], 0);
    fprintf(f, "run\n");
}
TEST_FN int number_of(const char *name) {
    int k;
    for (k = 0; k < DO_COUNT; k++)
        if (strcmp(statements[k].name, name) == 0) return NOPS + k;
    k = find(name);
    return k < NOPS ? k : -1;
}
// -> whether there was one
TEST_FN int read_program(FILE *f, program_t *p) {
    static char line[8192];
    memset(p, 0, sizeof *p);
    while (fgets(line, sizeof line, f)) {
        step_t *s = &p->step[p->n];
        char name[80], *at = line;
        int used, k;
        long long whole;
        if (sscanf(line, "program %lld", &whole) == 1) {
            p->seed = (uint64_t)whole;
            continue;
        }
        if (strncmp(line, "run", 3) == 0) return p->n > 0;
        if (*line == '\n' || *line == '#' || p->n == MAX_STEPS) continue;
        memset(s, 0, sizeof *s);
        if (sscanf(at, "%79s %d %d%n", name, &s->via, &s->nin, &used) != 3) return 0;
        at += used;
        s->what = number_of(name);
        if (s->what < 0 || s->nin > MAX_INPUTS) return 0;
        for (k = 0; k < s->nin; k++, at += used)
            sscanf(at, "%d%n", &s->in[k], &used);
        sscanf(at, "%d%n", &s->ni, &used);
        for (at += used, k = 0; k < s->ni && k < MAX_ARGS; k++, at += used) {
            sscanf(at, "%lld%n", &whole, &used);
            s->i[k] = whole;
        }
        sscanf(at, "%d%n", &s->nf, &used);
        for (at += used, k = 0; k < s->nf && k < 4; k++, at += used)
            sscanf(at, "%lf%n", &s->f[k], &used);
        sscanf(at, "%d %d s=%n", &s->out, &s->nout, &used);
        at += used;
        for (k = 0; at[k] && at[k] != ' ' && at[k] != '\n' && k < (int)sizeof s->s - 1; k++)
            s->s[k] = at[k] == '_' ? ' ' : at[k];
        if (s->out + s->nout > p->values) p->values = s->out + s->nout;
        p->n++;
    }
    return 0;
}

// ---- the program as C ----

// How ops.def writes the call of an op.
typedef struct wording_t {
    const char *name, *form, *args;
    int operands;
} wording_t;
static const wording_t wordings[] = {
#define OP(name, twins, form, args, cases, time, torch) {#name, #form, #args, 0},
#include "../ops.def"
};
TEST_FN const wording_t *wording_of(const char *name) {
    int k, n = (int)(sizeof wordings / sizeof wordings[0]);
    const wording_t *best = NULL;
    size_t longest = 0;
    for (k = 0; k < n; k++) {
        size_t length = strlen(wordings[k].name);
        if (strncmp(wordings[k].name, name, length) == 0 && length > longest &&
            (strcmp(name + length, "") == 0 || strcmp(name + length, "_") == 0 ||
             strcmp(name + length, "_scalar") == 0 || strcmp(name + length, "_scalar_") == 0))
            best = &wordings[k], longest = length;
    }
    return best;
}
TEST_FN void c_value(FILE *f, int x) {
    x < 0 ? fprintf(f, "NULL") : fprintf(f, "x%d", x);
}
TEST_FN void c_number(FILE *f, double v) {
    if (v != v)
        fprintf(f, "(double)NAN");
    else if (v - v != 0)
        fprintf(f, "%s(double)INFINITY", v < 0 ? "-" : "");
    else
        fprintf(f, "%.17g", v);
}
TEST_FN void c_list(FILE *f, const int64_t *i, int n) {
    int k;
    fprintf(f, "(int64_t[]){");
    for (k = 0; k < n; k++)
        fprintf(f, "%s%lld", k ? ", " : "", (long long)i[k]);
    fprintf(f, "%s}", n ? "" : "0");
}
TEST_FN void c_values(FILE *f, const int *in, int n) {
    int k;
    fprintf(f, "(tensor_t *[]){");
    for (k = 0; k < n; k++) {
        if (k) fprintf(f, ", ");
        c_value(f, in[k]);
    }
    fprintf(f, "}");
}
TEST_FN const char *c_dtype(int dtype) {
    static const char *const names[] = {"TENSOR_F32", "TENSOR_F64",  "TENSOR_I32", "TENSOR_I64",
                                        "TENSOR_U8",  "TENSOR_BOOL", "TENSOR_F16", "TENSOR_BF16",
                                        "TENSOR_I8",  "TENSOR_I16"};
    return dtype >= 0 && dtype < 10 ? names[dtype] : "TENSOR_DTYPE_NONE";
}
// Whether the text goes on with word, which is passed then.
TEST_FN int word(const char **p, const char *text) {
    size_t n = strlen(text);
    if (strncmp(*p, text, n) != 0) return 0;
    *p += n;
    return 1;
}
// The words of ops.def in an argument list (calls.h expands some) become values and numbers.
TEST_FN void c_words(FILE *f, const char *p, const step_t *s) {
    const char *begin = p;
    int k, length;
    while (*p) {
        int inside =
            p > begin && (p[-1] == '_' || (p[-1] >= 'A' && p[-1] <= 'Z') || (p[-1] >= 'a' && p[-1] <= 'z'));
        int letter = !inside && *p >= 'A' && *p <= 'D' && !(p[1] >= 'A' && p[1] <= 'Z') && p[1] != '_';
        length = 0;
        if (letter && *p - 'A' < s->nin) {
            c_value(f, s->in[*p - 'A']);
            p++;
        } else if (letter) {
            fprintf(f, "NULL");
            p++;
        } else if (sscanf(p, "I(%d)", &k) == 1) {
            fprintf(f, "%lld", (long long)s->i[k]);
            p = strchr(p, ')') + 1;
        } else if (sscanf(p, "F(%d)", &k) == 1) {
            c_number(f, s->f[k]);
            p = strchr(p, ')') + 1;
        } else if (sscanf(p, "a->in[%d]%n", &k, &length) == 1)
            c_value(f, k < s->nin ? s->in[k] : -1), p += length;
        else if (sscanf(p, "zero_i(a->i[%d])%n", &k, &length) == 1 && length) {
            s->i[k] ? fprintf(f, "%lld", (long long)s->i[k]) : fprintf(f, "TENSOR_ZERO");
            p += length;
        } else if (sscanf(p, "a->i[%d]%n", &k, &length) == 1)
            fprintf(f, "%lld", (long long)s->i[k]), p += length;
        else if (sscanf(p, "Z(%d)%n", &k, &length) == 1 && length) {
            s->i[k] ? fprintf(f, "%lld", (long long)s->i[k]) : fprintf(f, "TENSOR_ZERO");
            p += length;
        } else if (sscanf(p, "RED(%d)%n", &k, &length) == 1 && length) {
            fprintf(f, ".reduction = (tensor_reduction_t)%lld", (long long)s->i[k]);
            p += length;
        } else if (word(&p, "LIST"))
            c_values(f, s->in, s->nin), fprintf(f, ", %d", s->nin);
        else if (word(&p, "DIMS"))
            c_list(f, s->i, s->ni), fprintf(f, ", %d", s->ni);
        else if (word(&p, "REST"))
            c_list(f, s->i + 1, s->ni - 1), fprintf(f, ", %d", s->ni - 1);
        else if (word(&p, "COPY"))
            c_value(f, s->in[0]);
        else if (word(&p, "DT"))
            fprintf(f, "%s", c_dtype(dtype_of(s->s)));
        else if (word(&p, "dtype_of(a->s)"))
            fprintf(f, "%s", c_dtype(dtype_of(s->s)));
        else if (word(&p, "a->i[a->ni - 1]"))
            fprintf(f, "%lld", (long long)s->i[s->ni - 1]);
        else if (word(&p, "(changes_itself ? A : tensor_clone(A))"))
            c_value(f, s->in[0]);
        else if (word(&p, "a->in + 2, a->nin - 2"))
            c_values(f, s->in + 2, s->nin - 2), fprintf(f, ", %d", s->nin - 2);
        else if (word(&p, "a->in + 1, a->nin - 1"))
            c_values(f, s->in + 1, s->nin - 1), fprintf(f, ", %d", s->nin - 1);
        else if (word(&p, "a->in, a->nin"))
            c_values(f, s->in, s->nin), fprintf(f, ", %d", s->nin);
        else if (word(&p, "a->i + 2, a->ni - 2"))
            c_list(f, s->i + 2, s->ni - 2), fprintf(f, ", %d", s->ni - 2);
        else if (word(&p, "a->i + 1, a->ni - 1"))
            c_list(f, s->i + 1, s->ni - 1), fprintf(f, ", %d", s->ni - 1);
        else if (word(&p, "a->i, a->ni"))
            c_list(f, s->i, s->ni), fprintf(f, ", %d", s->ni);
        else if (word(&p, "a->i + a->ni / 2"))
            c_list(f, s->i + s->ni / 2, s->ni / 2);
        else if (word(&p, "a->ni / 2"))
            fprintf(f, "%d", s->ni / 2);
        else if (word(&p, "a->s"))
            fprintf(f, "\"%s\"", s->s);
        else if (word(&p, "a->i"))
            c_list(f, s->i, s->ni);
        else
            fputc(*p++, f);
    }
}
TEST_FN void c_call(FILE *f, const step_t *s) {
    const wording_t *w = wording_of(name_of(s));
    const char *name = name_of(s), *args = w ? w->args : "()";
    int scalar = w && strncmp(name + strlen(w->name), "_scalar", 7) == 0, k;
    if (s->via) {
        fprintf(f, "%s = tensor_%s(%s, ...) of the inputs ", s->nout ? "results" : "", vias[s->via], name);
        c_values(f, s->in, s->nin);
    } else if (!w || strcmp(w->form, "MANY") == 0 || strcmp(w->form, "AS") == 0) {
        fprintf(f, "/* a->in = ");
        c_values(f, s->in, s->nin);
        fprintf(f, ", a->i = "), c_list(f, s->i, s->ni);
        fprintf(f, ", results x%d.. */ ", s->out);
        c_words(f, args, s);
    } else if (scalar) {
        fprintf(f, "tensor_t *x%d = tensor_%s(", s->out, name);
        c_value(f, s->in[0]), fprintf(f, ", "), c_number(f, s->f[0]), fprintf(f, ")");
    } else if (strcmp(w->form, "PAIR") == 0) {
        fprintf(f, "tensor_pair_t p%d = tensor_%s", s->out, name);
        c_words(f, args, s);
        for (k = 0; k < s->nout; k++)
            fprintf(f, "; tensor_t *x%d = p%d.%s", s->out + k, s->out, k ? "indices" : "values");
    } else {
        int here = name[strlen(name) - 1] == '_', many = strcmp(w->form, "ONE_N") == 0;
        fprintf(f, "tensor_t *x%d = tensor_", s->out);
        if (here && many && w->name[strlen(w->name) - 1] != '_')
            fprintf(f, "%s_n_", w->name);
        else
            fprintf(f, "%s%s", name, many ? "_n" : "");
        c_words(f, args, s);
    }
    fprintf(f, ";\n");
}
TEST_FN void c_leaf(FILE *f, const step_t *s) {
    int64_t n = leaf_numel(s), k;
    double *v = (double *)malloc(((size_t)n + 1) * sizeof *v);
    int o = s->out;
    leaf_elements(s, v);
    fprintf(f, "double d%d[] = {", o);
    for (k = 0; k < n; k++) {
        if (k) fprintf(f, ", ");
        c_number(f, v[k]);
    }
    fprintf(f, "%s};\n    tensor_t *x%d = tensor_to(tensor_from_n(d%d, TENSOR_F64, ", n ? "" : "0", o, o);
    c_list(f, s->i + AT_DIMS, leaf_ndim(s));
    fprintf(f, ", %d), %s);", leaf_ndim(s), c_dtype((int)s->i[AT_DTYPE]));
    if (s->i[AT_LAYOUT]) fprintf(f, " x%d = arrange(x%d, '%c');", o, o, (char)s->i[AT_LAYOUT]);
    if (s->i[AT_GRAD]) fprintf(f, " tensor_requires_grad_(x%d, 1);", o);
    fprintf(f, "\n");
    free(v);
}
TEST_FN void write_c(FILE *f, const program_t *p) {
    static const char *const kinds[] = {
        "()", "_no_grad()", "_grad()", "_inference()", "_autocast(TENSOR_F16)", "_autocast(TENSOR_BF16)"};
    int k, depth = 0, j;
    fprintf(f, "/* seed %llu; with tests/calls.h */\n{\n", (unsigned long long)p->seed);
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        int x = s->nin ? s->in[0] : -1;
        fprintf(f, "    ");
        if (s->what < NOPS) {
            c_call(f, s);
            continue;
        }
        switch (s->what - NOPS) {
        case DO_leaf: c_leaf(f, s); break;
        case DO_begin:
            fprintf(f, "tensor_scope_t s%d = tensor_scope_begin%s;\n", depth++, kinds[s->i[0]]);
            break;
        case DO_end:
            depth--;
            if (x >= 0)
                fprintf(f, "tensor_t *x%d = tensor_scope_return(s%d, x%d);\n", s->out, depth, x);
            else
                fprintf(f, "tensor_scope_end(s%d);\n", depth);
            break;
        case DO_reset: fprintf(f, "tensor_scope_reset(s%d);\n", depth - 1); break;
        case DO_mode: fprintf(f, "tensor_set_grad_enabled(%d);\n", (int)s->i[0]); break;
        case DO_pack: fprintf(f, "tensor_set_saved_tensors_hooks(&packing);\n"); break;
        case DO_hook:
            fprintf(f, "tensor_register_hook(x%d, %s, NULL);\n", x, s->i[0] ? "twice" : "seen");
            break;
        case DO_post_hook:
            fprintf(f, "tensor_register_post_accumulate_grad_hook(x%d, done, NULL);\n", x);
            break;
        case DO_unhook: fprintf(f, "tensor_remove_hook(handle[%d]);\n", (int)s->i[0]); break;
        case DO_retain: fprintf(f, "tensor_retain_grad(x%d);\n", x); break;
        case DO_detach_: fprintf(f, "tensor_detach_(x%d);\n", x); break;
        case DO_require: fprintf(f, "tensor_requires_grad_(x%d, %d);\n", x, (int)s->i[0]); break;
        case DO_grad:
            fprintf(f, "tensor_t *g%d[%d]; tensor_autograd_grad(&x%d, 1, &w /* weights(x%d) */, ", s->out,
                    s->nout, x, x);
            c_values(f, s->in + 1, s->nin - 1);
            fprintf(f, ", %d, g%d, %d);\n", s->nin - 1, s->out, (int)s->i[0]);
            for (j = 0; j < s->nout; j++)
                fprintf(f, "    tensor_t *x%d = g%d[%d];\n", s->out + j, s->out, j);
            break;
        case DO_backward:
            fprintf(f, "tensor_backward_with(x%d, weights(x%d), %d);\n", x, x, (int)s->i[0]);
            break;
        case DO_clear: fprintf(f, "tensor_set_grad(x%d, NULL);\n", x); break;
        case DO_set_grad: fprintf(f, "tensor_set_grad(x%d, x%d);\n", x, s->in[1]); break;
        case DO_keep: fprintf(f, "tensor_keep(x%d);\n", x); break;
        case DO_set:
            fprintf(f, "tensor_t *x%d = NULL; tensor_set(&x%d, x%d); tensor_set(&x%d, x%d);\n", s->out,
                    s->out, x, s->out, s->in[1]);
            break;
        case DO_custom:
            if (s->i[0] == CUSTOM_ONE) {
                fprintf(f, "tensor_t *x%d = tensor_apply(&square, NULL, &x%d, 1);\n", s->out, x);
                break;
            }
            fprintf(f, "tensor_t *o%d[2]; tensor_apply_n(&%s, NULL, ", s->out, s->i[0] == CUSTOM_HALF ? "half" : "custom");
            c_values(f, s->in, 2);
            fprintf(f, ", 2, o%d, 2); tensor_t *x%d = o%d[0], *x%d = o%d[1];\n", s->out, s->out, s->out,
                    s->out + 1, s->out);
            break;
        case DO_custom_: fprintf(f, "tensor_t *x%d = tensor_apply(&twice, NULL, &x%d, 1);\n", s->out, x); break;
        case DO_module:
            fprintf(f, "tensor_t *x%d = /* modules.def: %s%s, %s */ (x%d);\n", s->out, module_names[s->i[0]],
                    s->i[1] ? ", in training" : "", detour_names[s->i[2]], x);
            break;
        case DO_optimize:
            fprintf(f, "/* modules.def: two steps of %s, %d, on */ x%d;\n", optimizer_names[s->i[0]],
                    (int)s->i[1], x);
            break;
        case DO_carry: fprintf(f, "tensor_t *x%d = by_%s(x%d);\n", s->out, way_names[s->i[0]], x); break;
        case DO_clip_grads:
            fprintf(f, "%s /* clip, %d, %g */ ", s->nout ? "result" : "", (int)s->i[0], s->f[0]);
            c_values(f, s->in, s->nin);
            fprintf(f, ";\n");
            break;
        case DO_init: fprintf(f, "/* first values, %d, %g, of */ x%d;\n", (int)s->i[0], s->f[0], x); break;
        case DO_look: fprintf(f, "/* look, %d, at */ x%d;\n", (int)s->i[0], x); break;
        default: fprintf(f, "poke(x%d, %g);\n", x, s->f[0]); break;
        }
    }
    fprintf(f, "}\n");
}

#endif

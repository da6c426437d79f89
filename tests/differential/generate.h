// generate.h - a random program from a seed. Statements are run while they are chosen: what fails is left out,
// but for a few, since errors are compared too.
#ifndef DIFFERENTIAL_GENERATE_H
#define DIFFERENTIAL_GENERATE_H
#include "execute.h"

enum { MOST_ELEMENTS = 20000 };
static state_t generating;
static trace_t generated;
static program_t *draft;
static int main_dtype;
static long n_tried, n_errors_kept, n_of_module[MODULES], n_of_optimizer[OPTIMIZERS];
static int constants;                   // leaves want no gradient: the last try of an op in place

static const setting_t plain_setting = {"default", NULL, 1, 0, 0};

// Whether elements of x share memory, though no stride is 0: what a change in place gives is not said.
TEST_FN int laps_over(const tensor_t *x) {
    int64_t extent = 1, k;
    int d, twice = 0;
    char *seen;
    for (d = 0; d < x->ndim; d++) {
        if (x->dims[d] == 0 || (!x->strides[d] && x->dims[d] > 1)) return 0;
        extent += (x->dims[d] - 1) * x->strides[d];
    }
    seen = (char *)calloc((size_t)extent, 1);
    for (k = 0; k < x->numel && !twice; k++) {
        char *p = &seen[place_of(x, k) - x->offset];
        twice = *p;
        *p = 1;
    }
    free(seen);
    return twice;
}
// -> whether the step is now part of the program
TEST_FN int push(step_t *s) {
    int number = draft->n, ok, large = 0, k;
    if (number == MAX_STEPS || draft->values + MAX_RESULTS >= MAX_VALUES) return 0;
    if (s->what < NOPS && ops[s->what].name[strlen(ops[s->what].name) - 1] == '_' && s->in[0] >= 0 &&
        generating.x[s->in[0]].t && laps_over(generating.x[s->in[0]].t))
        return 0;
    n_tried++;
    s->out = draft->values;
    s->nout = MAX_RESULTS;
    if (!execute(&generating, s, number)) return 0;
    if (generated.n > MAX_RECORDS / 2) { // nobody reads what is noted here
        for (k = 0; k < generated.n; k++)
            free(generated.r[k].v), free(generated.r[k].i);
        generated.n = 0;
    }
    for (k = 0; k < generated.made[number]; k++) {
        tensor_t *x = generating.x[s->out + k].t;
        if (x && x->numel > MOST_ELEMENTS) large = 1;
    }
    for (k = 0; k < generated.made[number] && large; k++)
        generating.x[s->out + k].t = NULL;
    if (large) return 0;
    ok = !generated.failed[number];
    if (!ok && !chance(2)) return 0;
    n_errors_kept += !ok;
    s->nout = generated.made[number] < MAX_RESULTS ? generated.made[number] : MAX_RESULTS;
    draft->values += s->nout;
    draft->step[draft->n++] = *s;
    if (s->what < NOPS) ops[s->what].seen += ok;
    if (is(s, DO_module)) n_of_module[s->i[0]] += ok;
    if (is(s, DO_optimize)) n_of_optimizer[s->i[0]] += ok;
    return ok;
}
TEST_FN int pushed(void) {
    return draft->n ? draft->step[draft->n - 1].out : -1;
}
TEST_FN step_t statement(statement_t what) {
    step_t s;
    memset(&s, 0, sizeof s);
    s.what = NOPS + (int)what;
    return s;
}
TEST_FN step_t op_step(const char *name, int x) {
    step_t s;
    memset(&s, 0, sizeof s);
    s.what = find(name);
    s.in[0] = x, s.nin = 1;
    return s;
}

// ---- values that are there ----

TEST_FN tensor_t *value(int x) {
    return x >= 0 ? generating.x[x].t : NULL;
}
enum { ANY_VALUE, NEEDS_GRAD, INNER_GRAD, LEAF_GRAD, REAL_VALUE, OWNED };
TEST_FN int fits(int x, int kind) {
    tensor_t *t = value(x);
    if (!t || t->state != TENSOR__LIVE) return 0;
    switch (kind) {
    case NEEDS_GRAD: return tensor_requires_grad(t);
    case INNER_GRAD: return tensor_requires_grad(t) && !tensor_is_leaf(t);
    case LEAF_GRAD: return tensor_requires_grad(t) && tensor_is_leaf(t);
    case REAL_VALUE: return is_real(t->dtype);
    case OWNED: return generating.x[x].depth == generating.depth;
    default: return 1;
    }
}
TEST_FN int any_value(int kind) {
    int start = (int)below(draft->values ? draft->values : 1), k;
    if (chance(50)) start = draft->values - 1 - start / 4;
    for (k = 0; k < draft->values; k++) {
        int x = (start + k) % draft->values;
        if (fits(x, kind)) return x;
    }
    return -1;
}
TEST_FN void range_of(const tensor_t *t, double *low, double *high) {
    int64_t k;
    *low = (double)INFINITY, *high = -(double)INFINITY;
    for (k = 0; k < t->numel; k++) {
        double v = real_at((char *)t->storage->data + place_of(t, k) * sizes[t->dtype], t->dtype);
        if (!(v >= *low)) *low = v;
        if (!(v <= *high)) *high = v;
    }
}

// x with these sizes, by views. -> its number, -1: it has too few elements
TEST_FN int of_shape(int x, const int64_t *dims, int nd) {
    tensor_t *t = value(x);
    int64_t n = 1, many = t->numel;
    int d, same = t->ndim == nd, turned = nd > 1 && chance(25);
    step_t s;
    for (d = 0; d < nd; d++)
        n *= dims[d], same = same && t->dims[d] == dims[d];
    if (same) return x;
    if (many < n || !n) return -1;
    if (many > n) {
        s = op_step("flatten", x);
        s.ni = 2, s.i[1] = -1;
        if (!push(&s)) return -1;
        s = op_step("narrow", pushed());
        s.ni = 3, s.i[1] = below(many - n + 1), s.i[2] = n;
        if (!push(&s)) return -1;
        x = pushed();
    }
    s = op_step("reshape", x);
    s.ni = nd;
    for (d = 0; d < nd; d++)
        s.i[d] = turned ? dims[nd - 1 - d] : dims[d];
    if (!push(&s)) return -1;
    if (turned) {
        s = op_step("permute", pushed());
        s.ni = nd;
        for (d = 0; d < nd; d++)
            s.i[d] = nd - 1 - d;
        if (!push(&s)) return -1;
    }
    return pushed();
}
// x with values within the range.
TEST_FN int within(int x, double lo, double hi) {
    double low, high;
    step_t s;
    range_of(value(x), &low, &high);
    if (low >= lo && high <= hi) return x;
    s = op_step("sigmoid", x);
    if (!push(&s)) return -1;
    s = op_step("mul_scalar", pushed());
    s.nf = 1, s.f[0] = hi - lo;
    if (!push(&s)) return -1;
    s = op_step("add_scalar", pushed());
    s.nf = 1, s.f[0] = lo;
    return push(&s) ? pushed() : -1;
}

// ---- inputs ----

TEST_FN int leaf(int dtype, const int64_t *dims, int nd, int fill, double lo, double hi, int64_t bound,
                 const char *list) {
    static const char layouts[] = "TSNO";
    step_t s = statement(DO_leaf);
    int d;
    s.i[AT_DTYPE] = dtype;
    s.i[AT_GRAD] = is_real(dtype) && chance(60) && !constants;
    s.i[AT_LAYOUT] = chance(25) ? layouts[below(4)] : 0;
    s.i[AT_FILL] = fill;
    s.i[AT_SEED] = below(1 << 20);
    s.i[AT_BOUND] = bound;
    for (d = 0; d < nd; d++)
        s.i[AT_DIMS + d] = dims[d];
    s.ni = AT_DIMS + nd;
    s.nf = 2, s.f[0] = lo, s.f[1] = hi;
    if (list) snprintf(s.s, sizeof s.s, "%.63s", list);
    return push(&s) ? pushed() : -1;
}
TEST_FN int some_dtype(void) {
    static const int all[] = {TENSOR_F64, TENSOR_F32, TENSOR_F16,  TENSOR_BF16, TENSOR_I64,
                              TENSOR_I32, TENSOR_U8,  TENSOR_BOOL, TENSOR_I8,   TENSOR_I16};
    return chance(92) ? main_dtype : all[below(10)];
}
// A value for one input of a case. -> its number, -2: none
TEST_FN int input_for(const entry_t *op, const case_t *c, const word_t *w) {
    double lo = c->lo < c->hi ? c->lo : op->lo, hi = c->lo < c->hi ? c->hi : op->hi;
    int x, data = is_data(w), sized = has_letter(w, 's') || has_letter(w, 'r') || has_letter(w, 'o');
    int64_t n = 1;
    int d;
    for (d = 0; d < w->nd; d++)
        n *= w->dims[d];
    if (n > MOST_ELEMENTS) return -2;
    if (!(lo < hi)) lo = -2, hi = 2;
    if (has_letter(w, 'p')) lo = 0.1, hi = 0.9;
    if (has_letter(w, 'q')) lo = 1.1, hi = 1.9;
    if (w->absent) return -1;
    if (has_letter(w, 'l') || *w->list) {
        if (strlen(w->list) >= 63) return -2;
        x = leaf(TENSOR_I64, w->dims, w->nd, FILL_LIST, 0, 1, 0, w->list[0] == 'l' ? w->list + 1 : w->list);
        return x < 0 ? -2 : x;
    }
    if (has_letter(w, 'k'))
        x = leaf(chance(85) ? TENSOR_I64 : TENSOR_I32, w->dims, w->nd, FILL_INDEX, 0, 1,
                 w->below ? w->below : 10, NULL);
    else if (has_letter(w, 'm'))
        x = leaf(TENSOR_BOOL, w->dims, w->nd, FILL_MASK, 0, 1, 0, NULL);
    else if (has_letter(w, 'z')) {
        static const int whole[] = {TENSOR_I64, TENSOR_I32, TENSOR_U8, TENSOR_I8, TENSOR_I16, TENSOR_BOOL};
        x = leaf(is_real(main_dtype) ? whole[below(6)] : main_dtype, w->dims, w->nd, FILL_INTEGER, 0, 1, 0,
                 NULL);
    } else if (sized || !data) {
        x = leaf(is_real(main_dtype) ? main_dtype : TENSOR_F64, w->dims, w->nd,
                 has_letter(w, 's')   ? FILL_DEFINITE
                 : has_letter(w, 'r') ? FILL_REGULAR
                                      : FILL_SORTED,
                 -1, 1, 0, NULL);
    } else {
        if (draft->values && chance(65)) {
            x = any_value(chance(80) ? REAL_VALUE : ANY_VALUE);
            if (x >= 0 && !(op->operands && chance(25))) x = of_shape(x, w->dims, w->nd);
            if (x >= 0 && is_real(value(x)->dtype) && value(x)->numel && chance(85)) x = within(x, lo, hi);
            if (x >= 0) return x;
        }
        x = leaf(some_dtype(), w->dims, w->nd,
                 has_letter(w, 'n') && !is_real(main_dtype) ? FILL_POSITIVE : FILL_REAL, lo, hi, 0, NULL);
    }
    return x < 0 ? -2 : x;
}

// ---- ops ----

// Other sizes in place of those of a case, the same for the same.
TEST_FN void resize(case_t *c, int64_t most) {
    int64_t from[32], to[32];
    int k, d, j, n = 0;
    for (k = 0; k < c->nin; k++) {
        word_t *w = &c->in[k];
        if (*w->list) continue;
        for (d = 0; d < w->nd; d++) {
            for (j = 0; j < n && from[j] != w->dims[d]; j++) {}
            if (j == n && n < 32) {
                from[n] = w->dims[d];
                to[n] = chance(50) ? w->dims[d] : chance(4) ? 0 : 1 + below(most);
                n++;
            }
            if (j < 32) w->dims[d] = to[j];
        }
        for (j = 0; j < n; j++)
            if (w->below == from[j] && to[j]) w->below = to[j];
    }
}
// Of some ops a number is an enumerator, which is not negative, or an option, whose 0 is the default.
TEST_FN void vary_numbers(const char *name, case_t *c) {
    const wording_t *w = wording_of(name);
    arguments_t *a = &c->given;
    int k, choices = w && (strstr(w->args, "_t)I(") || strstr(w->args, "RED(")), j;
    int options = w && (strstr(w->args, "= I(") || strstr(w->args, "= F(") || strstr(w->args, "_t)I(") ||
                        strstr(w->args, "COLUMNS") || strstr(w->args, "MAX_POOL"));
    arguments_t was = *a;
    static const char *const fixed[] = {"rnn_cell",      "grid_sample",  "max_unpool1d", "max_unpool2d",
                                        "max_unpool3d",  "lstm",         "gru",          "rnn",
                                        "interpolate",   "linalg_lstsq", "as_strided",   "batch_norm",
                                        "instance_norm", "rms_norm",     "layer_norm",   "group_norm"};
    for (k = 0; k < (int)(sizeof fixed / sizeof fixed[0]); k++)
        if (strcmp(fixed[k], name) == 0) return; // ops.def's call for PyTorch has not all of them
    if (a->ni && chance(50)) {
        k = (int)below(a->ni);
        switch (below(5)) {
        case 0: a->i[k]++; break;
        case 1: a->i[k] -= a->i[k] > 0 || !choices; break;
        case 2: a->i[k] = !a->i[k]; break;
        case 3: a->i[k] = choices ? 0 : -1; break;
        default: a->i[k] = below(4); break;
        }
    }
    if (a->nf && chance(50)) {
        k = (int)below(a->nf);
        switch (below(5)) {
        case 0: a->f[k] *= 0.5; break;
        case 1: a->f[k] *= 2; break;
        case 2: a->f[k] = 0; break;
        case 3: a->f[k] = -a->f[k]; break;
        default: a->f[k] = 1; break;
        }
    }
    for (j = 0; j < MAX_ARGS && options; j++) {
        if (!a->i[j]) a->i[j] = was.i[j];
        if (a->f[j] == 0) a->f[j] = was.f[j];
    }
}
static const struct {
    const char *names, *why;
} left_out[] = {
    {"to_non_blocking pin_memory", "need a device: tests/streams.c"},
};
TEST_FN const char *why_left_out(const char *name) {
    int k;
    for (k = 0; k < (int)(sizeof left_out / sizeof left_out[0]); k++) {
        const char *p = left_out[k].names, *at;
        size_t n = strlen(name);
        for (at = strstr(p, name); at; at = strstr(at + 1, name))
            if ((at == p || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return left_out[k].why;
    }
    return NULL;
}
// Not the same at two places: a program with one of them is not compared with PyTorch.
TEST_FN int is_random(const char *name) {
    const char *why = skipped(name, "FIXTURE");
    return (why && strcmp(why, "random") == 0) || strncmp(name, "dropout", 7) == 0 ||
           strcmp(name, "alpha_dropout") == 0 || strcmp(name, "rrelu") == 0;
}

TEST_FN int one_op(int what, int verbatim) {
    static case_t cases[MAX_CASES];
    const entry_t *op = &ops[what];
    int n = cases_of_op(op, 1, cases, MAX_CASES), k, tries, steps = draft->n;
    if (!n) return 0;
    for (tries = 0; tries < 3; tries++) {
        case_t c = cases[below(n)];
        step_t s;
        arguments_t a;
        int64_t total = 0;
        memset(&s, 0, sizeof s);
        if (tries < 2 && !verbatim) {
            if (chance(60)) resize(&c, chance(4) ? 60 : 6);
            if (chance(30)) vary_numbers(op->name, &c);
        }
        begin_arguments(op, &c, &a);
        if (a.nin > MAX_INPUTS || a.nf > 4) continue;
        s.what = what;
        for (k = 0; k < a.nin && total >= 0; k++) {
            s.in[k] = input_for(op, &c, &c.in[k]);
            if (s.in[k] == -2) break;
            if (s.in[k] >= 0) total += value(s.in[k])->numel;
        }
        if (k < a.nin || total > MOST_ELEMENTS) continue;
        s.nin = a.nin, s.ni = a.ni, s.nf = a.nf;
        memcpy(s.i, a.i, sizeof s.i);
        memcpy(s.f, a.f, sizeof s.f);
        snprintf(s.s, sizeof s.s, "%.63s", a.s);
        if (op->name[strlen(op->name) - 1] != '_' && !is_random(op->name) && chance(6)) {
            s.via = 1 + (int)below(VIAS - 1);
            if (strncmp(op->name, "empty", 5) == 0) s.via = 0;
            if (push(&s)) return 1;
            s.via = 0;
        }
        if (push(&s)) return 1;
        if (draft->n > steps + 12) return 0;
    }
    return 0;
}

// ---- statements ----

TEST_FN int is_wide(int dtype) {
    return dtype == TENSOR_F32 || dtype == TENSOR_F64;
}
// The gradients of up to three leaves.
TEST_FN void clip_some(void) {
    step_t s = statement(DO_clip_grads);
    int k;
    for (k = 0; k < 3; k++) {
        int x = any_value(LEAF_GRAD);
        if (x < 0 || !tensor_grad(value(x)) || !is_wide(value(x)->dtype)) break;
        s.in[s.nin++] = x;
    }
    s.ni = 1, s.i[0] = below(CLIPS), s.nf = 1, s.f[0] = (double)(1 + below(32)) / 8;
    if (s.nin) push(&s);
}
TEST_FN void other_statement(void) {
    int total = 0, k, pick, x, y;
    step_t s;
    for (k = 0; k < DO_COUNT; k++)
        total += statements[k].weight;
    pick = (int)below(total);
    for (k = 0; pick >= statements[k].weight; k++)
        pick -= statements[k].weight;
    s = statement((statement_t)k);
    switch (k) {
    case DO_begin:
        if (generating.depth == MAX_DEPTH) return;
        s.ni = 1, s.i[0] = below(SCOPE_KINDS);
        if (s.i[0] >= CAST_F16 && chance(60)) s.i[0] = PLAIN;
        break;
    case DO_reset:
        if (!generating.depth) return;
        break;
    case DO_mode:
        if (!generating.depth) return;
        s.ni = 1, s.i[0] = below(2);
        break;
    case DO_pack:
        if (!generating.depth) return;
        break;
    case DO_hook:
    case DO_retain:
        s.nin = 1, s.in[0] = any_value(NEEDS_GRAD);
        s.ni = 1, s.i[0] = below(2);
        break;
    case DO_post_hook:
    case DO_clear: s.nin = 1, s.in[0] = any_value(LEAF_GRAD); break;
    case DO_unhook:
        if (!generating.nhooks) return;
        s.ni = 1, s.i[0] = below(generating.nhooks);
        break;
    case DO_optimize:
        s.nin = 1, s.in[0] = any_value(LEAF_GRAD);
        if (s.in[0] < 0 || !tensor_grad(value(s.in[0]))) return;
        s.ni = 2, s.i[0] = (int64_t)(draft->seed / 7 % (uint64_t)OPTIMIZERS), s.i[1] = below(STEPS);
        break;
    case DO_carry:
        s.nin = 1, s.in[0] = any_value(ANY_VALUE);
        s.ni = 1, s.i[0] = below(WAYS);
        break;
    case DO_clip_grads: clip_some(); return;
    case DO_init:
        s.nin = 1, s.in[0] = any_value(REAL_VALUE);
        s.ni = 1, s.i[0] = chance(60) ? below(INIT_UNIFORM) : below(INITS);
        s.nf = 1, s.f[0] = (double)(1 + below(16)) / 8;
        if (s.in[0] < 0 || !is_wide(value(s.in[0])->dtype) || laps_over(value(s.in[0]))) return;
        break;
    case DO_look:
        s.nin = 1, s.in[0] = any_value(ANY_VALUE);
        s.ni = 1, s.i[0] = below(LOOKS);
        break;
    case DO_detach_: s.nin = 1, s.in[0] = any_value(INNER_GRAD); break;
    case DO_require:
        s.nin = 1, s.in[0] = any_value(REAL_VALUE);
        s.ni = 1, s.i[0] = chance(80);
        break;
    case DO_grad:
        x = any_value(INNER_GRAD);
        if (x < 0) return;
        s.in[s.nin++] = x;
        for (pick = 0; pick < 1 + below(3); pick++) {
            y = any_value(chance(60) ? LEAF_GRAD : NEEDS_GRAD);
            if (y >= 0) s.in[s.nin++] = y;
        }
        s.ni = 1, s.i[0] = TENSOR_ALLOW_UNUSED | (chance(50) ? TENSOR_CREATE_GRAPH : TENSOR_RETAIN_GRAPH);
        if (s.nin < 2) return;
        break;
    case DO_backward:
        s.nin = 1, s.in[0] = any_value(INNER_GRAD);
        s.ni = 1, s.i[0] = chance(80) ? TENSOR_RETAIN_GRAPH : chance(50) ? TENSOR_CREATE_GRAPH : 0;
        for (x = 0; x < draft->n; x++) // a leaf whose scope ended could not give up its gradient any more
            if (is(&draft->step[x], DO_end) || is(&draft->step[x], DO_reset)) s.i[0] &= ~TENSOR_CREATE_GRAPH;
        if (s.in[0] >= 0 && value(s.in[0])->numel == 1 && chance(50)) s.ni = 2, s.i[0] = 0, s.i[1] = 1;
        break;
    case DO_set_grad:
        s.nin = 2, s.in[0] = any_value(LEAF_GRAD), s.in[1] = any_value(REAL_VALUE);
        if (s.in[0] < 0 || s.in[1] < 0 || value(s.in[1])->ndim != value(s.in[0])->ndim) return;
        break;
    case DO_set:
    case DO_custom:
        s.nin = 2, s.in[0] = any_value(REAL_VALUE), s.in[1] = any_value(REAL_VALUE);
        if (s.in[1] < 0) return;
        if (k == DO_custom) s.ni = 1, s.i[0] = below(CUSTOMS);
        break;
    case DO_custom_:
        s.nin = 1, s.in[0] = any_value(chance(60) ? INNER_GRAD : REAL_VALUE);
        if (s.in[0] < 0 || laps_over(value(s.in[0]))) return;
        break;
    case DO_poke:
        s.nin = 1, s.in[0] = any_value(REAL_VALUE);
        s.nf = 1, s.f[0] = (double)(below(64) - 32) / 16;
        if (s.in[0] < 0 || !value(s.in[0])->numel) return;
        for (k = 0; k < value(s.in[0])->ndim; k++)
            if (value(s.in[0])->dims[k] > 1 && !value(s.in[0])->strides[k]) return;
        if (value(s.in[0])->dtype != TENSOR_F32 && value(s.in[0])->dtype != TENSOR_F64) return;
        break;
    default: s.nin = 1, s.in[0] = any_value(OWNED); break;
    }
    if (s.nin && s.in[0] < 0) return;
    push(&s);
}
TEST_FN void one_module(int which) {
    const char *p = modules[which].dims;
    step_t s = statement(DO_module);
    int64_t dims[TENSOR_MAX_DIMS];
    char *end;
    int nd = 0, x = -1,
        random = strstr(module_names[which], "dropout") || strstr(module_names[which], "transformer") ||
                 strcmp(module_names[which], "rrelu") == 0;
    for (; *p; p = *end ? end + 1 : end)
        dims[nd++] = strtoll(p, &end, 10);
    if (chance(50)) x = any_value(REAL_VALUE);
    if (x >= 0) x = of_shape(x, dims, nd);
    if (x < 0) x = leaf(is_real(main_dtype) ? main_dtype : TENSOR_F32, dims, nd, FILL_REAL, -2, 2, 0, NULL);
    if (x < 0) return;
    s.nin = 1, s.in[0] = x;
    s.ni = 3, s.i[0] = which, s.i[1] = !random && chance(50), s.i[2] = chance(60) ? below(DETOURS) : 0;
    push(&s);
}
TEST_FN void close_scope(void) {
    step_t s = statement(DO_end);
    int x = chance(70) ? any_value(OWNED) : -1;
    if (x >= 0) s.nin = 1, s.in[0] = x;
    push(&s);
}
// Ops whose results are views, and those in place: what breaks autograd.
TEST_FN int tricky_op(void) {
    static const char *const names[] = {"select",      "narrow",      "slice",        "transpose",
                                        "permute",     "expand",      "view",         "reshape",
                                        "unsqueeze",   "squeeze",     "flatten",      "diagonal",
                                        "unfold_dim",  "chunk",       "split",        "unbind",
                                        "T",           "mT",          "movedim",      "detach",
                                        "at",          "as_strided",  "add_",         "mul_",
                                        "sub_scalar_", "mul_scalar_", "exp_",         "relu_",
                                        "copy_",       "fill_",       "zero_",        "masked_fill_",
                                        "index_add_",  "index_copy_", "scatter_add_", "lerp_",
                                        "addcmul_",    "sigmoid_",    "tanh_",        "neg_",
                                        "sqrt_",       "square_",     "clamp_",       "div_",
                                        "pow_scalar_", "index_put_",  "scatter_",     "index_fill_"};
    return find(names[below((int64_t)(sizeof names / sizeof names[0]))]);
}
TEST_FN void generate(program_t *p, uint64_t seed) {
    int wanted, at, k, n, first = (int)(seed % (uint64_t)(NOPS - ONLY_FIXTURES));
    memset(p, 0, sizeof *p);
    p->seed = seed;
    random_state = mixed(seed);
    draft = p;
    trace_begin(&generated);
    state_begin(&generating, &plain_setting, &generated);
    k = (int)below(100);
    main_dtype = k < 48   ? TENSOR_F64
                 : k < 80 ? TENSOR_F32
                 : k < 84 ? TENSOR_F16
                 : k < 88 ? TENSOR_BF16
                 : k < 94 ? TENSOR_I64
                 : k < 96 ? TENSOR_I32
                 : k < 97 ? TENSOR_U8
                 : k < 98 ? TENSOR_BOOL
                 : k < 99 ? TENSOR_I8
                          : TENSOR_I16;
    wanted = 3 + (int)below(9);
    at = (int)below(wanted);
    for (n = 0; n < wanted && p->n < MAX_STEPS - 16; n++) {
        if (n == at && !why_left_out(ops[first].name)) {
            int dtype = main_dtype;
            if (!one_op(first, 0)) {
                main_dtype = TENSOR_F32;
                constants = 1;
                one_op(first, 1);
                constants = 0;
                main_dtype = dtype;
            }
        } else {
            int what = chance(40) ? tricky_op() : (int)below(NOPS - ONLY_FIXTURES);
            if (is_random(ops[what].name) && !is_random(ops[first].name)) continue;
            if (!why_left_out(ops[what].name)) one_op(what, 0);
        }
        if (n == 0 && chance(60)) one_module((int)(seed / 3 % (uint64_t)MODULES));
        if (chance(45)) other_statement();
        if (generating.depth && chance(25)) close_scope();
    }
    while (generating.depth && p->n < MAX_STEPS)
        close_scope();
    k = any_value(INNER_GRAD);
    if (k >= 0 && chance(75)) {
        step_t s = statement(DO_backward);
        s.nin = 1, s.in[0] = k, s.ni = 1;
        push(&s);
        clip_some();
        s = statement(DO_optimize);
        s.nin = 1, s.in[0] = any_value(LEAF_GRAD);
        s.ni = 2, s.i[0] = (int64_t)(seed / 7 % (uint64_t)OPTIMIZERS), s.i[1] = below(STEPS);
        if (s.in[0] >= 0 && tensor_grad(value(s.in[0])) && chance(50)) push(&s);
    }
    state_end(&generating);
    trace_end(&generated);
}

#endif

// replay.h - a program as a captured step: two replays, whole and in slices, must give its bits again
//
// The leaves are older than the capture. Ops run in it, then a backward; those that the host decides by are
// refused and left out, as are those that fail. A third of the values is freed in it, so that calls have
// results that nobody reads. Before a replay the leaves hold what they held, and all else that the step makes
// holds garbage.
#ifndef DIFFERENTIAL_REPLAY_H
#define DIFFERENTIAL_REPLAY_H
#include "compare.h"

typedef struct older_t {
    tensor__storage_t *storage;
    char *bytes;
} older_t;
static long n_graphs, n_graph_calls, n_replayed, n_uncaptured, n_freed;

TEST_FN int is_older(const older_t *o, int n, const tensor__storage_t *s) {
    int k;
    for (k = 0; k < n; k++) {
        if (o[k].storage == s) { return 1; }
    }
    return 0;
}
TEST_FN int take_older(const state_t *s, older_t *o) {
    int n = 0, k;
    for (k = 0; k < MAX_VALUES; k++) {
        const tensor_t *x = s->x[k].t;
        if (!x || is_older(o, n, x->storage)) { continue; }
        o[n].storage = x->storage;
        o[n].bytes = (char *)malloc(x->storage->bytes + 1);
        memcpy(o[n++].bytes, x->storage->data, x->storage->bytes);
    }
    return n;
}
// All as before the step. Memory of the program (wrap) is not the step's.
TEST_FN void put_back(const state_t *s, const older_t *o, int n) {
    int k;
    for (k = 0; k < MAX_VALUES; k++) {
        const tensor_t *x = s->x[k].t;
        if (!x || x->state != TENSOR__LIVE || x->storage->size_class < 0) { continue; }
        if (!is_older(o, n, x->storage)) { memset(x->storage->data, 0xA5, x->storage->bytes); }
    }
    for (k = 0; k < n; k++) { memcpy(o[k].storage->data, o[k].bytes, o[k].storage->bytes); }
}
TEST_FN void note_all(state_t *s, trace_t *t) {
    int k;
    trace_begin(t);
    s->trace = t;
    for (k = 0; k < MAX_VALUES; k++) {
        if (s->x[k].t) { note(s, 'f', k, -1, s->x[k].t); }
    }
    for (k = 0; k < MAX_VALUES; k++) {
        tensor_t *x = s->x[k].t;
        if (x && x->state == TENSOR__LIVE && x->grad) { note(s, 'g', k, -1, x->grad); }
    }
}
// -> the first element that differs, -1: none, -2: not of one kind
TEST_FN int64_t other_bits(const record_t *a, const record_t *b) {
    int64_t k;
    if (a->kind != b->kind || a->var != b->var || a->n != b->n || a->dtype != b->dtype) { return -2; }
    for (k = 0; k < a->n; k++) {
        if (a->i && a->i[k] != b->i[k]) { return k; }
        if (!a->v || (a->v[k] != a->v[k] && b->v[k] != b->v[k])) { continue; }
        if (a->v[k] != b->v[k] || !signbit(a->v[k]) != !signbit(b->v[k])) { return k; }
    }
    return -1;
}
// What is there before the step: a replay finds it as the program left it.
TEST_FN int is_before(const step_t *s) { return is(s, DO_leaf) || strcmp(name_of(s), "wrap") == 0; }
// Runs the ops that are kept, and a backward. -> the statement that a capture refuses or that fails, which it
// would do in each replay; p->n: the backward is refused; -1: none
TEST_FN int step_in_capture(state_t *s, const program_t *p, const char *left_out) {
    int k;
    for (k = 0; k < p->n; k++) {
        const step_t *step = &p->step[k];
        if (left_out[k] || is_before(step) || step->what >= NOPS || step->via) { continue; }
        execute(s, step, k);
        if (s->trace->failed[k]) { return k; }
    }
    for (k = MAX_VALUES - 1; k >= 0 && !left_out[p->n]; k--) {
        tensor_t *x = s->x[k].t;
        if (!x || x->state != TENSOR__LIVE || !tensor_requires_grad(x) || tensor_is_leaf(x)) { continue; }
        tensor_backward(tensor_sum(tensor_mul_scalar(tensor_to(x, TENSOR_F64), 1.25)));
        if (tensor_error_code() == TENSOR_ERR_UNSUPPORTED) { return p->n; } // some gradients read elements
        tensor_clear_error();                                           // a saved value may have changed
        break;
    }
    return -1;
}
// Frees values that the step made and that are not two variables at once. Memory of the program stays.
TEST_FN void free_some(state_t *s, const program_t *p, const older_t *o, int n) {
    int k, j, others;
    for (k = 0; k < MAX_VALUES; k++) {
        tensor_t *x = s->x[k].t;
        if ((p->seed + (uint64_t)k) % 3 || !x || x->state != TENSOR__LIVE || x->grad) { continue; }
        for (others = j = 0; j < MAX_VALUES; j++) { others += j != k && s->x[j].t == x; }
        if (others || s->x[k].kept || x->storage->size_class < 0 || is_older(o, n, x->storage)) { continue; }
        tensor_free(x);
        CHECK_MSG(tensor_ok(), "seed %llu: free of x%d: %s", (unsigned long long)p->seed, k,
                  tensor_error_text());
        tensor_clear_error();
        s->x[k].t = NULL;
        n_freed++;
    }
}
TEST_FN void replay(state_t *s, const program_t *p, tensor_graph_t *g, const trace_t *want, int slices) {
    static trace_t got;
    int code = 0, r;
    if (slices) {
        while ((code = -USE(tensor_graph_resume)(g, 0)) == 0) {}
    } else {
        code = USE(tensor_graph_replay)(g);
    }
    CHECK_MSG(code == (slices ? -1 : 0), "seed %llu: replay: %s", (unsigned long long)p->seed,
              tensor_error_text());
    tensor_clear_error();
    note_all(s, &got);
    CHECK(got.n == want->n);
    for (r = 0; r < got.n && r < want->n; r++, n_replayed++) {
        const record_t *a = &want->r[r], *b = &got.r[r];
        int64_t k = other_bits(a, b);
        CHECK_MSG(k == -1, "seed %llu: x%d%s%s%s: element %lld is %.17g, after a replay %.17g",
                  (unsigned long long)p->seed, a->var, a->kind == 'g' ? "'s gradient" : "",
                  a->made_by ? " made by " : "", a->made_by ? a->made_by : "", (long long)k,
                  k >= 0 && a->v ? a->v[k] : 0, k >= 0 && b->v ? b->v[k] : 0);
    }
    trace_end(&got);
}
// -> as step_in_capture
TEST_FN int captured(const program_t *p, const char *left_out) {
    static state_t s;
    static trace_t t, want;
    older_t older[MAX_VALUES];
    tensor_generator_t rng;
    tensor_graph_t *g;
    tensor_scope_t scope;
    int n, k, refused;
    trace_begin(&t);
    state_begin(&s, &plain_setting, &t);
    for (k = 0; k < p->n; k++) {
        if (is_before(&p->step[k])) { execute(&s, &p->step[k], k); }
    }
    n = take_older(&s, older);
    rng = tensor_get_generator();
    CHECK(USE(tensor_capture_begin)(TENSOR_CPU) == 0);
    scope = tensor_scope_begin();
    refused = step_in_capture(&s, p, left_out);
    if (refused < 0) { free_some(&s, p, older, n); }
    g = USE(tensor_capture_end)();
    CHECK_MSG(g || refused >= 0, "seed %llu: capture: %s", (unsigned long long)p->seed, tensor_error_text());
    tensor_clear_error();
    if (g && refused < 0) {
        n_graphs++;
        n_graph_calls += (long)USE(tensor_graph_info)(g).calls;
        note_all(&s, &want);
        for (k = 0; k < 2; k++) {
            put_back(&s, older, n);
            tensor_set_generator(rng);
            replay(&s, p, g, &want, k);
        }
        trace_end(&want);
        s.trace = &t;
    }
    CHECK(USE(tensor_graph_free)(g) == 0);
    for (k = 0; k < n; k++) { free(older[k].bytes); }
    for (k = 0; k < MAX_VALUES; k++) {
        if (s.x[k].t && s.x[k].t->state == TENSOR__LIVE && s.x[k].t->grad) {
            tensor_set_grad(s.x[k].t, NULL);
        }
    }
    memset(s.x, 0, sizeof s.x);
    tensor_scope_end(scope);
    state_end(&s);
    trace_end(&t);
    return refused;
}
TEST_FN void check_replays(const program_t *p) {
    char left_out[MAX_STEPS + 1] = {0};
    int refused, tries;
    for (tries = 0; tries <= MAX_STEPS; tries++) {
        refused = captured(p, left_out);
        if (refused < 0) { return; }
        left_out[refused] = 1;
        n_uncaptured++;
    }
}

#endif

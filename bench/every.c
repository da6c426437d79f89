// every.c [threads] - every op of tests/ops.def on the case that its row has to time: "op.NAME  microseconds
// us"
#include "bench.h"

#include "tensor_nn.h"

#include "tests/cases.h"

// An input to time: random, but for what its letters ask for.
static tensor_t *large_input(const word_t *w, const entry_t *op, const case_t *c) {
    tensor_t *x;
    double lo = c->lo < c->hi ? c->lo : op->lo, hi = c->lo < c->hi ? c->hi : op->hi;
    int64_t size = w->nd ? w->dims[w->nd - 1] : 1;
    if (w->absent || *w->list) { return input_of(w, 0, 0, 0, TENSOR_F32); }
    x = tensor_rand_n(w->dims, w->nd);
    if (has_letter(w, 'k')) {
        return tensor_to(tensor_mul_scalar(x, (double)(w->below ? w->below : 10)), TENSOR_I64);
    }
    if (has_letter(w, 'z')) { return tensor_to(tensor_mul_scalar(x, 8), TENSOR_I64); }
    if (has_letter(w, 'm')) { return tensor_gt_scalar(x, 0.67); }
    if (has_letter(w, 'p')) { return tensor_add_scalar(tensor_mul_scalar(x, 0.8), 0.1); }
    if (has_letter(w, 'q')) { return tensor_add_scalar(tensor_mul_scalar(x, 0.8), 1.1); }
    if (!(lo < hi)) { lo = -1, hi = 1; }
    x = tensor_add_scalar(tensor_mul_scalar(x, hi - lo), lo);
    if (has_letter(w, 'o')) { x = tensor_sort(x, -1, 0).values; }
    if (has_letter(w, 's')) { x = tensor_div_scalar(tensor_matmul(x, tensor_mT(x)), (double)size); }
    if (has_letter(w, 's') || has_letter(w, 'r')) {
        x = tensor_add(x, tensor_mul_scalar(tensor_eye(size, size), has_letter(w, 's') ? 1 : (double)size));
    }
    return x;
}
enum { LIMIT_S = 4 };                   // seconds that one call may take, about a sixth of its row's time

typedef struct timed_t {
    const entry_t *op;
    arguments_t a;
} timed_t;
static void repeat_op(void *arg, long repeats) {
    const timed_t *t = (const timed_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        arguments_t a = t->a;
        t->op->call(&a);
    }
    tensor_scope_end(scope);
}
// The case to time: the row's own, or 1024 x 1024 for each operand of its last case. -> 0: none
static int case_to_time(const entry_t *op, case_t *c) {
    static case_t cases[MAX_CASES];
    int n, k;
    if (*op->time) {
        read_case(op->time, c);
        return 1;
    }
    n = cases_of_op(op, 0, cases, MAX_CASES);
    if (!op->operands || n == 0) { return 0; }
    *c = cases[n - 1];
    for (k = 0; k < c->nin; k++) {
        c->in[k].nd = 2;
        c->in[k].dims[0] = c->in[k].dims[1] = 1024;
    }
    return 1;
}
static void every_op(void) {
    int k, i, done = 0, twins = 0, left = 0;
    changes_itself = 1;
    tensor_manual_seed(1);
    for (k = 0; k < NOPS - ONLY_FIXTURES; k++) {
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        const char *why = skipped(ops[k].name, "TIME");
        case_t c;
        timed_t t;
        double took;
        char row[64];
        if (ops[k].twin != ITSELF) {
            twins++;
        } else if (why || !case_to_time(&ops[k], &c)) {
            left++;
            printf("skipped %s: %s\n", ops[k].name, why ? why : "no case to time in tests/ops.def");
        } else {
            t.op = &ops[k];
            t.a = c.given;
            t.a.nin = c.nin;
            for (i = 0; i < c.nin; i++) { t.a.in[i] = large_input(&c.in[i], &ops[k], &c); }
            took = bench_now();
            repeat_op(&t, 1);
            took = bench_now() - took;
            if (!tensor_ok()) { fprintf(stderr, "%s: %s\n", ops[k].name, tensor_error_text()); }
            tensor_clear_error();
            if (took > LIMIT_S) {
                left++;
                printf("skipped %s: one call takes %.1f s, which wants a smaller case\n", ops[k].name, took);
            } else {
                snprintf(row, sizeof row, "op.%s", ops[k].name);
                bench_row(row, 1e6 * bench_median(repeat_op, &t), "us");
                done++;
            }
        }
        tensor_scope_end(scope);
    }
    printf("%d ops timed, skipped: %d, and %d twins, which are timed as their op\n", done, left, twins);
}

int main(int argc, char **argv) {
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    every_op();
    return tensor_shutdown() || test_failed;
}

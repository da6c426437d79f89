// same.c [THREADS] - hashes of results, for bench/same.sh: each result and gradient of every case of
// tests/ops.def, then the losses and the parameters of 20 training steps of examples/char_gpt.c.
#include "cases.h"

#define main char_gpt_main
#include "char_gpt.c"
#undef main

// Its elements, dtype and shape.
static unsigned long long hash_of(tensor_t *x) {
    uint64_t h = (TEST_HASH ^ (uint64_t)tensor_dtype(x)) * 1099511628211u;
    for (int d = 0; d < tensor_ndim(x); d++) { h = (h ^ (uint64_t)tensor_size(x, d)) * 1099511628211u; }
    return test_hash(h, x);
}

// A gradient to start from, with elements of -1 to 1.
static tensor_t *start_of(tensor_t *y) {
    tensor_shape_t shape = tensor_shape(y);
    int64_t n = tensor_numel(y);
    tensor_t *i = tensor_arange(0, (double)n, 1, TENSOR_I64);
    tensor_t *v = tensor_remainder_scalar(tensor_add_scalar(tensor_mul_scalar(i, 37), 5), 101);
    v = tensor_sub_scalar(tensor_div_scalar(tensor_to(v, TENSOR_F64), 50.5), 1);
    return tensor_to(tensor_reshape_n(v, shape.dims, shape.ndim), tensor_dtype(y));
}

static void hash_gradients(const arguments_t *a, tensor_t *const *leaf, int leaves, const char *title) {
    for (int r = 0; r < a->nout; r++) {
        tensor_t *y = a->out[r];
        if (!y || !tensor_requires_grad(y) || !tensor_numel(y)) { continue; }
        tensor_manual_seed(7);
        tensor_backward_with(y, start_of(y), TENSOR_RETAIN_GRAPH);
        if (!tensor_ok()) { printf("%s grad %d: %s\n", title, r, tensor_code_name(tensor_error_code())); }
        for (int k = 0; k < leaves; k++) {
            tensor_t *g = tensor_grad(leaf[k]);
            if (tensor_ok() && !tensor_is_poison(g)) {
                printf("%s grad %d %d: %016llx\n", title, r, k, hash_of(g));
            }
            tensor_set_grad(leaf[k], NULL);
        }
        tensor_clear_error();
    }
}

static void hash_results(const entry_t *op, const case_t *c, tensor_dtype_t dtype, int recorded) {
    tensor_scope_t scope = tensor_scope_begin();
    char title[400];
    tensor_t *leaf[MAX_INPUTS];
    int leaves = 0;
    arguments_t a;
    snprintf(title, sizeof title, "%s|%s|%s", op->name, c->text, tensor_dtype_name(dtype));
    arguments_of(op, c, dtype, &a);
    for (int k = 0; recorded && tensor_ok() && k < a.nin; k++) {
        if (!is_data(&c->in[k]) || has_letter(&c->in[k], 'c') || !tensor_numel(a.in[k])) { continue; }
        leaf[leaves++] = a.in[k] = tensor_requires_grad_(tensor_detach(a.in[k]), 1);
    }
    if (tensor_ok() && (!recorded || leaves)) {
        tensor_manual_seed(7);
        a.nout = 0;
        op->call(&a);
        if (!tensor_ok()) {
            printf("%s: %s\n", title, tensor_code_name(tensor_error_code()));
        } else if (recorded) {
            hash_gradients(&a, leaf, leaves, title);
        } else {
            for (int r = 0; r < a.nout; r++) {
                if (a.out[r]) { printf("%s %d: %016llx\n", title, r, hash_of(a.out[r])); }
            }
        }
    }
    tensor_clear_error();
    tensor_scope_end(scope);
}

static void hash_steps(void) {
    static job_t job;
    if (job_open(&job, NULL)) { return; }
    job.steps = STEPS;
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < 20; i++, tensor_scope_reset(scope)) {
        printf("step %d: %016llx\n", i, hash_of(job_step(&job)));
    }
    nn_named_list_t list = nn_named_parameters(&job.gpt.base);
    for (const nn_named_t *p = list.item; p < list.item + list.count; p++) {
        printf("%s: %016llx\n", p->name, hash_of(p->tensor));
    }
    tensor_scope_end(scope);
}

static void quiet(int code, const char *text, void *user) { (void)code, (void)text, (void)user; }

int main(int argc, char **argv) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_I32,
                                            TENSOR_I64, TENSOR_U8, TENSOR_BOOL, TENSOR_I8, TENSOR_I16};
    static case_t cases[MAX_CASES];
    (void)char_gpt_main;
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    tensor_set_error_handler(quiet, NULL);
    for (int k = 0; k < NOPS; k++) {
        int unset = strncmp(ops[k].name, "empty", 5) == 0;      // whose elements are anything
        int fixture = strcmp(ops[k].torch, "-") == 0 && !ops[k].cases[0];
        int n = unset || fixture ? 0 : cases_of_op(&ops[k], 1, cases, MAX_CASES);
        for (int j = 0; j < n; j++) {
            int trains = !cases[j].no_grad && !skipped(ops[k].name, "GRADIENT");
            for (int d = 0; d < 10; d++) { hash_results(&ops[k], &cases[j], dtypes[d], 0); }
            for (int d = 0; trains && d < 4; d++) { hash_results(&ops[k], &cases[j], dtypes[d], 1); }
        }
    }
    tensor_set_error_handler(NULL, NULL);
    hash_steps();
    return tensor_shutdown();
}

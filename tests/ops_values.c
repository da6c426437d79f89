// ops_values.c - the ops of ops.def against naive references: values, dtypes, every layout the same bits as
// contiguous inputs, every instruction set, threads
#include "ops.h"

static long n_ops, n_values, n_bits, n_errors, n_threads, n_skipped;

// ---- values ----

static const char layouts_used[][OPERANDS] = {{LC, LC, LC}, {LT, LT, LT}, {LS, LS, LS},
                                            {LO, LO, LO}, {LN, LN, LN}, {LE, LE, LE},
                                            {LC, LT, LS}, {LS, LC, LE}, {LE, LO, LT}};

static void run_values(const op_t *op) {
    int c, l, dtype, isa, k;
    n_ops++;
    for (c = 0; c < op->nconfigs; c++) {
        for (l = 0; l < COUNT(layouts_used); l++) {
            const config_t *config = &op->configs[c];
            int useful = l == 0;
            for (k = 0; k < op->nin; k++) { useful |= config->in[k].nd > 0; }
            if (op->nin == 1 && l > 5) { continue; }
            if (!useful) { continue; }
            for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *in[OPERANDS] = {0}, *flat[OPERANDS] = {0}, *y, *z;
                nd_t a[OPERANDS], want;
                char what[96];
                int out = result_dtype(op, dtype), n = 0;
                lcg_state = (uint64_t)(c * 100 + l * 10 + dtype + 1);
                n = sprintf(what, "config %d layout ", c);
                for (k = 0; k < op->nin; k++) {
                    in[k] = input(op, config, k, dtype, layouts_used[l][k]);
                    n += sprintf(what + n, "%c", layout_names[(int)layouts_used[l][k]]);
                }
                sprintf(what + n, " %s", dname(dtype));
                CHECK_OK();
                if (out < 0) { // refused dtype
                    y = run(op, in);
                    CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_DTYPE &&
                                  strstr(tensor_error_text(), dname(dtype)),
                              "%s %s: expected a DTYPE error, got \"%s\"", op->label, what,
                              tensor_error_text());
                    tensor_clear_error();
                    n_errors++;
                    tensor_scope_end(s);
                    continue;
                }
                for (k = 0; k < op->nin; k++) { nd_read(&a[k], in[k]); }
                want.dtype = out;
                op->ref(op, a, &want);
                if (want.nd < 0) {                      // the op has not so many results here
                    for (k = 0; k < op->nin; k++) { nd_free(&a[k]); }
                    nd_free(&want);
                    tensor_scope_end(s);
                    continue;
                }
                if (!is_float(out)) {
                    for (k = 0; k < want.n; k++) { want.i[k] = wrap_int(want.i[k], out); }
                }
                for (k = 0; k < op->nin; k++) { flat[k] = packed(in[k]); }
                for (isa = 0; isa < COUNT(isas); isa++) {
                    char full[128];
                    if (!isa_there[isa]) {
                        n_skipped++;
                        continue;
                    }
                    tensor_set_isa(isas[isa]);
                    sprintf(full, "%s %s", what, isas[isa]);
                    y = run(op, in);
                    n_values++;
                    if (!compare(op, y, &want, out, full)) { break; }
                    if (l && !(op->flags & NO_BITS)) {
                        z = run(op, flat);
                        n_bits++;
                        CHECK_MSG(same_bits(y, z), "%s %s: bits differ from contiguous inputs", op->label,
                                  full);
                    }
                }
                tensor_set_isa(NULL);
                for (k = 0; k < op->nin; k++) { nd_free(&a[k]); }
                nd_free(&want);
                CHECK_OK();
                tensor_scope_end(s);
            }
        }
    }
}

// ---- threads ----

static void run_threads(const op_t *op, const config_t *big) {
    int dtype, k, isa;
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64, TENSOR_F16};
    for (dtype = 0; dtype < COUNT(dtypes); dtype++) {
        for (isa = 0; isa < COUNT(isas); isa++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[OPERANDS] = {0}, *one, *four;
            if (!isa_there[isa] || result_dtype(op, dtypes[dtype]) < 0 || (isa < 3 && dtype)) {
                tensor_scope_end(s);
                continue;
            }
            lcg_state = 99;
            for (k = 0; k < op->nin; k++) {
                in[k] = input(op, big, k, dtypes[dtype], k == 1 && !*big->in[k].list ? LT : LC);
            }
            tensor_set_isa(isas[isa]);
            tensor_set_num_threads(1);
            one = run(op, in);
            tensor_set_num_threads(4);
            four = run(op, in);
            tensor_set_num_threads(1);
            n_threads++;
            if (dtypes[dtype] == TENSOR_F32 && has_gradient(op)) {
                tensor_t *g1[OPERANDS], *g4[OPERANDS];
                int n1 = gradients_of(op, in, g1, 0), n4;
                tensor_set_num_threads(4);
                n4 = gradients_of(op, in, g4, 0);
                tensor_set_num_threads(1);
                for (k = 0; k < n1 && n1 == n4; k++) {
                    CHECK_MSG((!g1[k] && !g4[k]) || (g1[k] && g4[k] && same_bits(g1[k], g4[k])),
                              "%s %s: gradient %d differs between 1 and 4 threads", op->label, isas[isa], k);
                }
                CHECK_MSG(n1 == n4 && n1 >= 0, "%s: %s", op->label, tensor_error_text());
                n_threads++;
            }
            CHECK_MSG(same_bits(one, four), "%s %s %s: 1 and 4 threads differ (%s)", op->label,
                      dname(dtypes[dtype]), isas[isa], tensor_error_text());
            tensor_set_isa(NULL);
            CHECK_OK();
            tensor_scope_end(s);
        }
    }
}

// The shapes that threads share: large ones for each kind of reference.
static config_t rows_config, product_config, column_config, flat_config;
static void config(config_t *c, const char *a, const char *b, const char *d) {
    read_word(a, &c->in[0]);
    read_word(b, &c->in[1]);
    read_word(d, &c->in[2]);
}
static void with_threads(const op_t *op) {
    config(&rows_config, "301x257", "301x257", "301x257");
    config(&product_config, "130x300", "300x257", "257");
    config(&column_config, "301x300", "k300<301", "300x300");
    config(&flat_config, "100003", "100003", "100003");
    if (op->result) { return; }
    if (op->ref == ref_pointwise) {
        run_threads(op, &op->large[0]);
        if (op->nin > 1) { run_threads(op, &op->large[1]); }
    } else if (op->ref == ref_square_times) {
        run_threads(op, &rows_config);
    } else if (op->ref == ref_rows) {
        run_threads(op, &rows_config);
        if (op->p[0] == WHOLE && op->nin == 1) { run_threads(op, &flat_config); }
    } else if (strncmp(op->label, "matmul ", 7) == 0 || strncmp(op->label, "mm ", 3) == 0) {
        run_threads(op, &product_config);
    } else if (op->id == TENSOR_OP_INDEX_SELECT || op->id == TENSOR_OP_INDEX_ADD) {
        if (op->p[0] == 0) { run_threads(op, &column_config); }
    } else if (op->id == TENSOR_OP_GATHER || op->id == TENSOR_OP_SCATTER_ADD) {
        config(&rows_config, "301x257", op->p[0] ? "k301x257<257" : "k301x257<301", "301x257");
        run_threads(op, &rows_config);
    } else if (op->id == TENSOR_OP_PROD_OTHERS) {
        run_threads(op, &op->configs[op->nconfigs - 1]);
    } else if (op->id == TENSOR_OP_TRIL || op->id == TENSOR_OP_TRIU || op->id == TENSOR_OP_FILL) {
        run_threads(op, &rows_config);
    } else {
        run_threads(op, &op->configs[0]);
    }
}
static void values(void) { each(run_values); }
static void threads(void) { each(with_threads); }

int main(void) {
    RUN(prepare);
#if defined(__SANITIZE_THREAD__)
    // One thread cannot race with itself: under the thread sanitizer only what uses several is run.
    RUN(threads);
    printf("skipped under the thread sanitizer: 1 of 2 groups (one thread), %ld thread cases run\n",
           n_threads);
    return test_report();
#endif
    RUN(values);
    RUN(threads);
    printf(
        "%ld ops with their cases, %ld value cases, %ld compared bitwise with contiguous, %ld thread cases, "
        "%ld refused\n",
        n_ops, n_values, n_bits, n_threads, n_errors);
    printf("skipped: %ld for an instruction set this machine lacks\n", n_skipped);
    return test_report();
}

// ops_dtypes.c - dtypes of results as PyTorch's (promotion.h, by promotion.py), mixed operands, the twins of
// ops that take a number, the twins in place
#include "ops.h"
#include "promotion.h"

static long n_values, n_dtypes, n_errors, n_lenient, n_skipped_half, n_skipped_twins;

// ---- dtypes: the table from PyTorch ----

// The first case of an op.
static const op_t *case_named(const char *name) {
    size_t n = strlen(name);
    int k;
    for (k = 0; k < ntested; k++) {
        if (strncmp(tested[k].label, name, n) == 0 &&
            (tested[k].label[n] == ' ' || tested[k].label[n] == 0)) {
            return &tested[k];
        }
    }
    return NULL;
}
static const char dtype_letters[] = "fdilubhgcs";
// Whether (got a result, letter) agree. Dtypes PyTorch refuses and this library takes are counted, except
// those it promises to refuse.
static void promotion_check(const char *op, const char *what, const tensor_t *y, char want, int must_refuse) {
    n_dtypes++;
    if (want == 'x') {
        if (must_refuse) {
            CHECK_MSG(y->state == TENSOR__POISON_STATE && tensor_error_code() == TENSOR_ERR_DTYPE,
                      "%s %s: expected a DTYPE error, got %s", op, what,
                      y->state == TENSOR__POISON_STATE ? tensor_error_text() : dname(y->dtype));
        } else {
            n_lenient += y->state == TENSOR__LIVE;
        }
        tensor_clear_error();
        return;
    }
    CHECK_MSG(y->state == TENSOR__LIVE && dtype_letters[y->dtype] == want,
              "%s %s: result is %s, PyTorch's %s", op, what,
              y->state == TENSOR__LIVE ? dname(y->dtype) : tensor_error_text(),
              dname((int)(strchr(dtype_letters, want) - dtype_letters)));
    tensor_clear_error();
}
// What two dtypes become together in a form (a and b with dims, b 0-d, a 0-d, both 0-d): the row of mul.
static int promoted(int form, int a, int b) {
    const char *letter = NULL;
    int k;
    for (k = 0; k < COUNT(promotion_binary); k++) {
        if (strcmp(promotion_binary[k].op, "mul") == 0) {
            letter = strchr(dtype_letters, promotion_binary[k].pair[form][a * TENSOR_DTYPE_COUNT + b]);
        }
    }
    return letter ? (int)(letter - dtype_letters) : 0;
}
// The value of a mixed pair is that of both operands converted to the computing dtype first.
static void promotion_value(const op_t *op, tensor_t *const *in, tensor_t *y, int compute) {
    tensor_t *same[2], *z;
    nd_t a, b;
    int k, good = 1;
    int64_t j;
    for (k = 0; k < 2; k++) { same[k] = tensor_to(in[k], (tensor_dtype_t)compute); }
    z = run(op, same);
    if (!tensor_ok()) {
        CHECK_OK();
        return;
    }
    nd_read(&a, y), nd_read(&b, z);
    for (j = 0; j < a.n; j++) { good &= (a.v[j] == b.v[j] || a.v[j] != a.v[j]) && a.i[j] == b.i[j]; }
    CHECK_MSG(good && a.dtype == b.dtype, "%s %s %s: differs from operands converted first", op->label,
              dname(in[0]->dtype), dname(in[1]->dtype));
    n_values++;
    nd_free(&a), nd_free(&b);
}
static void pairs(void) {
    static const int64_t three[1] = {3};
    int k, form, a, b;
    for (k = 0; k < COUNT(promotion_binary); k++) {
        const op_t *op = case_named(promotion_binary[k].op);
        int bits, kind;
        CHECK_MSG(op != NULL && op->nin == 2, "%s is in promotion.h and not in ops.def",
                  promotion_binary[k].op);
        if (!op) { continue; }
        bits = op->rule == INTEGERS || op->rule == SHIFTS;
        kind = TENSOR__(row)(op->id)->kind;
        for (form = 0; form < 4; form++) {
            for (a = 0; a < TENSOR_DTYPE_COUNT; a++) {
                for (b = 0; b < TENSOR_DTYPE_COUNT; b++) {
                    tensor_scope_t s = tensor_scope_begin();
                    tensor_t *in[2], *y;
                    int compute = promoted(form, a, b), half = is_float(compute) && compute >= TENSOR_F16;
                    char what[64], want = promotion_binary[k].pair[form][a * TENSOR_DTYPE_COUNT + b];
                    lcg_state = 5;
                    in[0] = make(a, form < 2, three, LC, 0.5, 3, SIGNED, 0);
                    in[1] = make(b, form == 0 || form == 2, three, LC, 0.5, 3, SIGNED, 0);
                    if (b == TENSOR_BOOL) { in[1] = tensor_ones_like(in[1]); }
                    sprintf(what, "%s%s %s%s", dname(a), form < 2 ? "" : " 0-d", dname(b),
                            form == 0 || form == 2 ? "" : " 0-d");
                    y = run(op, in);
                    promotion_check(op->label, what, y, want,
                                    bits || (op->rule == NO_BOOL && a == TENSOR_BOOL && b == TENSOR_BOOL));
                    // a 0-d operand of a half result (of a row computed in double) takes part unrounded
                    if (form % 3 && (half || kind == TENSOR__DBL)) {
                        n_skipped_half++;
                    } else if (want != 'x' && y->state == TENSOR__LIVE && a != b) {
                        promotion_value(op, in, y, compute);
                    }
                    tensor_scope_end(s);
                }
            }
        }
    }
}

// ---- scalar twins, in place ----

// The op, or a twin of it, of x and another tensor, or of x and a number (other is NULL), with the arguments
// of the row's first case.
static tensor_t *call_of(const entry_t *op, const arguments_t *given, tensor_t *x, tensor_t *other,
                         double number) {
    arguments_t a = *given;
    a.in[0] = x, a.in[1] = other, a.nin = other ? 2 : 1;
    if (op->twin == NUMBER || op->twin == NUMBER_HERE) { a.f[0] = number; }
    op->call(&a);
    return a.out[0];
}
static int is_named(const entry_t *op, const char *name) {
    return strcmp(op->name, name) == 0;
}
static const entry_t *entry_named(const char *name) {
    int k = find(name);
    CHECK_MSG(k < NOPS, "%s is not in ops.def", name);
    return k < NOPS ? &ops[k] : &ops[0];
}
// The op a twin belongs to, which stands before it.
static const entry_t *base_of(const entry_t *op) {
    while (op->twin != ITSELF) { op--; }
    return op;
}

// The dtype of every op's result, all data of its first case in one dtype.
static void every_op(void) {
    static case_t cases[MAX_CASES];
    int k, d, i, n = 0, n_different = 0;
    for (k = 0; k < COUNT(promotion_ops); k++) {
        const entry_t *op = entry_named(promotion_ops[k].op);
        const char *different = skipped(op->name, "DTYPE");
        int same = 1;
        cases_of_op(op, 0, cases, MAX_CASES);
        for (i = 0; i < cases[0].nin; i++) {
            if (has_letter(&cases[0].in[i], 'z')) { cases[0].in[i].letters[0] = 0; }       // of any dtype
        }
        for (d = 0; d < TENSOR_DTYPE_COUNT; d++) {
            char want = promotion_ops[k].result[d];
            tensor_scope_t s = tensor_scope_begin();
            arguments_t a;
            tensor_t *y;
            memset(&a, 0, sizeof a);
            arguments_of(op, &cases[0], (tensor_dtype_t)d, &a);
            tensor_manual_seed(1);
            if (tensor_ok()) { op->call(&a); }
            y = a.out[0];
            if (different && tensor_ok() && y && want != 'x' && dtype_letters[y->dtype] != want) {
                same = 0;
            } else if (tensor_ok() && y && !tensor_is_poison(y)) {
                promotion_check(op->name, dname(d), y, want, 0);
            } else if (want != 'x') {
                CHECK_MSG(different != NULL, "%s %s: %s", op->name, dname(d), tensor_error_text());
                same = 0;
            }
            tensor_clear_error();
            tensor_scope_end(s);
            n++;
        }
        CHECK_MSG(!different || !same, "%s: SKIP(.., DTYPE, ..) in ops.def, and it takes what PyTorch does",
                  op->name);
        n_different += different != NULL;
    }
    printf("%d ops, %d dtypes of results, skipped: %d ops refuse dtypes that PyTorch takes or give others, "
           "as ops.def says\n",
           COUNT(promotion_ops), n, n_different);
}

static void twin_of_number(const entry_t *twin, const entry_t *base, int dtype, double v, int j, int isa) {
    static const int64_t dims[2] = {7, 9};
    static const arguments_t none;
    int turned = is_named(twin, "rsub_scalar");         // b - a
    tensor_t *a, *b, *y, *z;
    int weak = dtype;
    if (!is_float(dtype) && v != floor(v)) {
        weak = TENSOR_F32;
    } else if (dtype == TENSOR_BOOL && v != 0 && v != 1) {
        weak = TENSOR_I64;
    }
    if (!isa_there[isa] || (isa && j > 1) ||
        (!is_float(dtype) && weak != TENSOR_F32 && v < 0 && (dtype == TENSOR_U8 || is_named(base, "pow")))) {
        n_skipped_twins++;
        return;
    }
    tensor_set_isa(isas[isa]);
    lcg_state = (uint64_t)(twin - ops) * 10 + (uint64_t)j + 1;
    a = make(dtype, 2, dims, j % 2 ? LT : LC, -3, 3, VALUES, 0);
    b = tensor_scalar(v, (tensor_dtype_t)weak);
    if (turned) {
        y = (tensor_rsub_scalar)(a, v);
        z = tensor_sub(b, tensor_to(a, (tensor_dtype_t)weak));
    } else {
        y = call_of(twin, &none, a, NULL, v);
        z = call_of(base, &none, tensor_to(a, (tensor_dtype_t)weak), b, 0);
    }
    n_values++;
    if (tensor_is_poison(z)) {
        CHECK_MSG(tensor_is_poison(y), "%s %s %g: the tensor form refuses", twin->name, dname(dtype), v);
    } else {
        CHECK_MSG(same_bits(y, z), "%s(%s, %g) on %s differs from the tensor form (%s)", twin->name,
                  dname(dtype), v, isas[isa], tensor_error_text());
    }
    tensor_clear_error();
    tensor_set_isa(NULL);
}
static void scalar_twins(void) {
    static const double numbers[] = {2, 0.5, 3, -1.5, 1, -1};
    int k, dtype, j, isa, n = 0;
    for (k = 0; k < NOPS; k++) {
        const entry_t *base = base_of(&ops[k]);
        if (is_named(&ops[k], "rsub_scalar")) {
            base = entry_named("sub");
        } else if (ops[k].twin != NUMBER) {
            continue;
        }
        n++;
        for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
            for (j = 0; j < COUNT(numbers); j++) {
                for (isa = 0; isa < COUNT(isas); isa++) {
                    tensor_scope_t s = tensor_scope_begin();
                    twin_of_number(&ops[k], base, dtype, numbers[j], j, isa);
                    tensor_scope_end(s);
                }
            }
        }
    }
    CHECK(n > 20);
    { // 64-bit integers that a double does not hold
        int64_t big[2] = {((int64_t)1 << 53) + 1, INT64_MAX};
        tensor_t *a = tensor_from(big, TENSOR_I64, 2), *y = tensor_add_scalar(a, 1);
        CHECK(((const int64_t *)tensor_data(y))[0] == big[0] + 1 &&
              ((const int64_t *)tensor_data(y))[1] == INT64_MIN);
        y = tensor_mul_scalar(a, 3);
        CHECK(((const int64_t *)tensor_data(y))[0] == big[0] * 3);
        y = tensor_eq_scalar(a, (double)((int64_t)1 << 53));
        CHECK(((const uint8_t *)tensor_data(y))[0] == 0);
        n_values += 3;
    }
}

// y is what the op gives, z what its twin left in x: the same, or refused where the dtype cannot hold it.
static void check_in_place(const entry_t *twin, tensor_t *x, tensor_t *y, tensor_t *z, int refused,
                           const char *what) {
    if (y->dtype == TENSOR_BOOL && x->dtype != TENSOR_BOOL) { y = tensor_to(y, x->dtype); }  // a comparison
    if (refused) {
        CHECK_MSG(tensor_is_poison(z) && tensor_error_code() == TENSOR_ERR_DTYPE,
                  "%s %s: expected DTYPE, got %s", twin->name, what, tensor_error_text());
        n_errors++;
    } else {
        CHECK_MSG(z == x && same_bits(y, z), "%s %s differs from the new one: %s", twin->name, what,
                  tensor_error_text());
        n_values++;
    }
    tensor_clear_error();
}
static int category(int dtype) {
    return is_float(dtype) ? 2 : dtype != TENSOR_BOOL;
}
// Every twin in place of one operand and of two, in every dtype and layout: of the same shape, a row that
// broadcasts, a 0-d tensor, a number.
static void here_of_one(const entry_t *twin, const arguments_t *given, int dtype, int layout) {
    static const int64_t dims[2] = {6, 9};
    tensor_t *x = make(dtype, 2, dims, layout, 0.5, 3, VALUES, 0),
             *y = call_of(base_of(twin), given, x, NULL, 0);
    int refused = tensor_is_poison(y) || category(y->dtype) > category(dtype);
    char what[64];
    sprintf(what, "%s %c", dname(dtype), layout_names[layout]);
    tensor_clear_error();
    check_in_place(twin, x, y, call_of(twin, given, x, NULL, 0), refused, what);
}
static void here_of_two(const entry_t *twin, const arguments_t *given, int dtype, int layout, int form) {
    static const int64_t dims[2] = {6, 9}, row[1] = {9};
    const entry_t *number = twin + 1, *number_here = twin + 2;          // x_, x_scalar, x_scalar_
    tensor_t *x = make(dtype, 2, dims, layout, 0.5, 3, VALUES, 0),
             *b = tensor_scalar(2, (tensor_dtype_t)dtype), *y;
    char what[64];
    int refused;
    if (form == 3 && number->twin != NUMBER) { return; }        // logical_and_ has no twin for numbers
    if (form == 0) { b = make(dtype, 2, dims, LT, 0.5, 3, SIGNED, 0); }
    if (form == 1) { b = make(dtype, 1, row, LS, 0.5, 3, SIGNED, 0); }
    if (form == 3) {
        y = call_of(number, given, x, NULL, 2);
    } else {
        y = call_of(base_of(twin), given, x, b, 0);
    }
    refused = tensor_is_poison(y) || category(y->dtype) > category(dtype);
    sprintf(what, "%s %c form %d", dname(dtype), layout_names[layout], form);
    tensor_clear_error();
    if (form == 3) {
        check_in_place(number_here, x, y, call_of(number_here, given, x, NULL, 2), refused, what);
    } else {
        check_in_place(twin, x, y, call_of(twin, given, x, b, 0), refused, what);
    }
}
// Those of other shapes: on the inputs of their cases.
static void here_of_case(const entry_t *twin, const case_t *c, tensor_dtype_t dtype) {
    const entry_t *base = base_of(twin);
    arguments_t a, b;
    tensor_t *y;
    char what[64];
    arguments_of(base, c, dtype, &a);
    b = a;
    b.in[0] = tensor_clone(a.in[0]);
    base->call(&a);
    y = a.out[0];
    twin->call(&b);
    sprintf(what, "%s on its case", dname(dtype));
    check_in_place(twin, b.in[0], y, b.out[0], 0, what);
}
static void filled(int dtype, int layout) {
    static const int64_t dims[2] = {6, 9}, row[1] = {9};
    tensor_t *x = make(dtype, 2, dims, layout, -3, 3, VALUES, 0), *c = packed(x), *y,
             *m = tensor_gt_scalar(c, 1);
    int from;
    if (dtype == TENSOR_BOOL) {
        CHECK_POISON(tensor_clamp_(x, -1, 2), TENSOR_ERR_DTYPE, "clamp_: a result of i64");
    } else {
        CHECK_MSG(same_bits(tensor_clamp_(x, -1, 2), tensor_clamp(c, -1, 2)), "clamp_ %s",
                  dname(dtype));
    }
    y = tensor_masked_fill(c, m, 1);
    CHECK_MSG(same_bits(tensor_masked_fill_(tensor_copy_(x, c), m, 1), y), "masked_fill_ %s",
              dname(dtype));
    CHECK_MSG(same_bits(tensor_fill_(x, 1), tensor_ones_n(dims, 2, (tensor_dtype_t)dtype)),
              "fill_ %s", dname(dtype));
    CHECK_MSG(same_bits(tensor_zero_(x), tensor_zeros_n(dims, 2, (tensor_dtype_t)dtype)),
              "zero_ %s", dname(dtype));
    for (from = 0; from < TENSOR_DTYPE_COUNT; from++) {
        tensor_t *src = make(from, 1, row, LS, 0, 100, VALUES, 0);
        CHECK_MSG(same_bits(tensor_copy_(x, src),
                            tensor_contiguous(
                                tensor_expand(tensor_to(src, (tensor_dtype_t)dtype), 6, 9))),
                  "copy_ %s to %s %c", dname(from), dname(dtype), layout_names[layout]);
        n_values++;
    }
    if (is_float(dtype)) {
        y = tensor_addcmul(c, c, c, 0.5);
        CHECK_MSG(same_bits(tensor_addcmul_(tensor_copy_(x, c), c, c, 0.5), y), "addcmul_ %s",
                  dname(dtype));
    }
    n_values += 5;
    CHECK_OK();
}
static void in_place(void) {
    static case_t cases[MAX_CASES];
    int k, i, dtype, layout, form, n, of[3] = {0, 0, 0};
    changes_itself = 1;
    for (k = 0; k < NOPS; k++) {
        const entry_t *base = base_of(&ops[k]);
        if (ops[k].twin != HERE) { continue; }
        n = cases_of_op(base, 0, cases, MAX_CASES);
        CHECK_MSG(n > 0, "%s has no case", base->name);
        if (cases[0].nin == 1 || (base->operands == 2 && cases[0].nin == 2)) {
            of[cases[0].nin - 1]++;
            for (i = 0; i < n; i++) {
                for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
                    for (layout = LC; layout <= LN; layout++) {
                        for (form = 0; form < (cases[0].nin == 1 ? 1 : 4); form++) {
                            tensor_scope_t s = tensor_scope_begin();
                            if (cases[0].nin == 1) {
                                here_of_one(&ops[k], &cases[i].given, dtype, layout);
                            } else {
                                here_of_two(&ops[k], &cases[i].given, dtype, layout, form);
                            }
                            tensor_scope_end(s);
                        }
                    }
                }
            }
            continue;
        }
        of[2]++;
        for (i = 0; i < n; i++) {
            for (dtype = 0; dtype < 2; dtype++) {
                tensor_scope_t s = tensor_scope_begin();
                here_of_case(&ops[k], &cases[i], dtype ? TENSOR_F64 : TENSOR_F32);
                tensor_scope_end(s);
            }
        }
    }
    changes_itself = 0;
    for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
        for (layout = LC; layout <= LN; layout++) {
            tensor_scope_t s = tensor_scope_begin();
            filled(dtype, layout);
            tensor_scope_end(s);
        }
    }
    printf("in place: %d ops of one operand, %d of two, %d others\n", of[0], of[1], of[2]);
    CHECK(of[0] > 30 && of[1] > 10);
}

int main(void) {
    RUN(prepare);
    RUN(pairs);
    RUN(every_op);
    RUN(scalar_twins);
    RUN(in_place);
    printf("%ld values, %ld dtype pairs, %ld refused\n", n_values, n_dtypes, n_errors);
    printf("skipped: %ld of half results with a 0-d operand, %ld scalar twins (negative numbers on unsigned "
           "dtypes; all "
           "instruction sets only for the first two numbers); %ld dtypes are accepted that PyTorch refuses\n",
           n_skipped_half, n_skipped_twins, n_lenient);
    return test_report();
}

// ops_errors.c - wrong arguments: inputs that are NULL, poison or dead, shapes that do not agree, dims and
// indices outside, dtypes that are refused; each with its code and its text
#include "literals.h"

static long n_errors;

// ---- misuse of every input ----

static void run_misuse(const op_t *op) {
    int k;
    for (k = 0; k < op->nin; k++) {
        tensor_t *in[OPERANDS] = {0}, *dead, *y;
        tensor_scope_t s = tensor_scope_begin(), inner;
        int j;
        for (j = 0; j < op->nin; j++) { in[j] = input(op, &op->configs[0], j, TENSOR_F32, LC); }
        in[k] = NULL;
        y = run(op, in);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER &&
                      strstr(tensor_error_text(), "NULL"),
                  "%s: input %d NULL gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        in[k] = tensor_zeros(-1);
        tensor_clear_error();
        CHECK(tensor_is_poison(in[k]));
        y = run(op, in);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_POISONED,
                  "%s: input %d poison gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        inner = tensor_scope_begin();
        dead = tensor_zeros(2);
        tensor_scope_end(inner);
        in[k] = dead;
        y = run(op, in);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER &&
                      strstr(tensor_error_text(), "scope ended") &&
                      (strstr(tensor_error_text(), ".def:") || strstr(tensor_error_text(), "references.h:")),
                  "%s: input %d dead gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        n_errors += 3;
        tensor_scope_end(s);
    }
}
static void misuse(void) { each(run_misuse); }

// ---- wrong arguments ----

static void errors(void) {
    tensor_t *a = tensor_ones(2, 3), *i = I64S(0, 5), *out[4], *v = tensor_ones(4);
    static const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                         huge[3] = {(int64_t)1 << 40, (int64_t)1 << 40, 2}, twice[2] = {0, 0};
    int k;
#define BAD(expression, code, part)                                                                          \
    do {                                                                                                     \
        CHECK_POISON(expression, TENSOR_ERR_##code, part);                                                   \
        n_errors++;                                                                                          \
    } while (0)
    for (k = 0; k < ntested; k++) {
        const op_t *op = &tested[k];
        tensor_dtype_t dtype = op->rule == INTEGERS || op->rule == SHIFTS ? TENSOR_I32 : TENSOR_F32;
        tensor_t *in[3];
        if (op->ref != ref_pointwise || op->nin < 2) { continue; }
        in[0] = tensor_ones_of((tensor_dtype_t)input_dtype(&op->configs[0].in[0], dtype), 2, 3);
        in[1] = tensor_ones_of(dtype, 4);
        in[2] = tensor_ones(1);
        CHECK_MSG(tensor_is_poison(run(op, in)) && tensor_error_code() == TENSOR_ERR_SHAPE &&
                      strstr(tensor_error_text(), op->entry->name) && strstr(tensor_error_text(), "[2,3]") &&
                      strstr(tensor_error_text(), "[4]") && strstr(tensor_error_text(), ".def:"),
                  "%s of [2,3] and [4]: \"%s\"", op->label, tensor_error_text());
        tensor_clear_error();
        n_errors++;
    }
    BAD(tensor_floor_divide(I32(1, 2), I32(1, 0)), INDEX,
        "floor_divide: integer division by zero at element 1");
    BAD(tensor_remainder(I64S(1, 2), I64S(0, 1)), INDEX, "remainder: integer division by zero at element 0");
    BAD(tensor_fmod(tensor_ones_of(TENSOR_U8, 3), tensor_zeros_of(TENSOR_U8, 1)), INDEX, "division by zero");
    BAD(tensor_floor_divide_scalar(I32(1), 0), INDEX, "division by zero");
    BAD(tensor_remainder_scalar(I32(1), 0), INDEX, "division by zero");
    { // and nothing is written: beyond the first block, in place too
        tensor_t *big = tensor_ones_of(TENSOR_I32, 100000), *d = tensor_ones_of(TENSOR_I32, 100000);
        ((int32_t *)tensor_data_mut(d))[99999] = 0;
        BAD(tensor_floor_divide(big, d), INDEX, "at element 99999");
        tensor_set_num_threads(4);
        BAD(tensor_remainder(big, d), INDEX, "at element 99999");
        tensor_set_num_threads(1);
    }
    BAD(tensor_sub(tensor_ones_of(TENSOR_BOOL, 2), tensor_ones_of(TENSOR_BOOL, 2)), DTYPE,
        "sub: x [2] is bool");
    BAD(tensor_neg(tensor_ones_of(TENSOR_BOOL, 2)), DTYPE, "neg: x [2] is bool");
    BAD(tensor_bitwise_and(v, v), DTYPE, "bitwise_and: x [4] is f32");
    BAD(tensor_bitwise_not(v), DTYPE, "bitwise_not: x [4] is f32");
    BAD(tensor_where(v, v, v), DTYPE, "where");
    BAD(tensor_masked_fill(v, v, 0), DTYPE, "masked_fill: mask [4] must be bool, not f32");
    BAD(tensor_masked_select(v, v), DTYPE, "masked_select: mask [4] must be bool");
    BAD(tensor_masked_select(v, tensor_ones_of(TENSOR_BOOL, 3)), SHAPE, "masked_select");
    BAD(tensor_masked_fill(v, tensor_ones_of(TENSOR_BOOL, 3), 0), SHAPE, "[3]");
    BAD(tensor_to(v, (tensor_dtype_t)42), DTYPE, "to: 42 is neither a dtype");
    // shapes
    BAD(tensor_zeros_n(nine, 9, TENSOR_F32), SHAPE, "9 dims");
    BAD(tensor_zeros_n(nine, -1, TENSOR_F32), SHAPE, "-1 dims");
    BAD(tensor_zeros_n(huge, 3, TENSOR_F32), SHAPE, "too many elements");
    BAD(tensor_empty(2, -3), SHAPE, "[2,-3]");
    BAD(tensor_zeros_n(nine, 1, (tensor_dtype_t)-1), DTYPE, "zeros: dtype -1 must be one of tensor_dtype_t");
    BAD(tensor_from_n(NULL, TENSOR_F32, nine, 1), SHAPE, "from: data is NULL");
    BAD(tensor_wrap_n(NULL, TENSOR_F32, nine, 1, NULL, NULL), SHAPE, "wrap: data is NULL");
    BAD(tensor_wrap_n((void *)(uintptr_t)3, TENSOR_F32, nine, 1, NULL, NULL), SHAPE, "misaligned");
    CHECK(!tensor_is_poison(tensor_from_n(NULL, TENSOR_F32, (const int64_t[]){0}, 1)));
    BAD(tensor_reshape(a, 4, 2), SHAPE, "reshape: x [2,3] (6 elements) does not fit shape [4,2]");
    BAD(tensor_reshape(a, -1, -1), SHAPE, "reshape");
    BAD(tensor_repeat(a, 2, -1), SHAPE, "repeat: repeats [2,-1] of x [2,3], each must be 0 or more");
    tensor_t *far = tensor_expand(tensor_ones(1), (int64_t)1 << 59);
    BAD(tensor_cat(0, far, far, far), SHAPE, "cat: the sizes of dim 0 add up to more than 2^60 at tensor 2");
    BAD(tensor_reshape(a, -1, 4), SHAPE, "reshape");
    BAD(tensor_reshape(a, -2, 3), SHAPE, "reshape");
    BAD(tensor_reshape(tensor_zeros(0), -1, 0), SHAPE, "reshape");
    BAD(tensor_view(tensor_mT(a), 6), SHAPE, "use reshape");
    BAD(tensor_transpose(a, 0, 2), INDEX, "dim 2 is outside -2..1");
    BAD(tensor_mT(v), SHAPE, "mT: x [4] needs at least 2 dims");
    BAD(tensor_permute(a, 0), SHAPE, "permute: x [2,3] has 2 dims, the order 1");
    BAD(tensor_permute(a, 0, 0), INDEX, "dim 0 appears twice");
    BAD(tensor_permute(a, 0, 5), INDEX, "dim 5");
    BAD(tensor_movedim(a, 0, 2), INDEX, "dim 2");
    BAD(tensor_unsqueeze(a, 4), INDEX, "dim 4");
    BAD(tensor_squeeze(a, 2), INDEX, "dim 2");
    BAD(tensor_unsqueeze(tensor_zeros_n(nine, 8, TENSOR_F32), 0), SHAPE, "8 dims already");
    BAD(tensor_expand(a, 4, 3), SHAPE, "expand: x [2,3] does not expand to [4,3]");
    BAD(tensor_expand(a, 3), SHAPE, "expand");
    BAD(tensor_expand(v, -1, 4), SHAPE, "expand");
    BAD(tensor_narrow(a, 0, 1, 2), INDEX, "narrow: start 1, length 2 leave dim 0 of x [2,3]");
    BAD(tensor_narrow(a, 0, 0, -1), INDEX, "narrow");
    BAD(tensor_narrow(a, 0, INT64_MAX, INT64_MAX), INDEX, "narrow");
    BAD(tensor_narrow(tensor_scalar(1, TENSOR_F32), 0, 0, 1), INDEX, "0-d");
    BAD(tensor_select(a, 1, 3), INDEX, "select: index 3 is outside dim 1 of x [2,3]");
    BAD(tensor_select(a, 1, -4), INDEX, "index -4");
    BAD(tensor_select(a, 1, INT64_MIN), INDEX, "select");
    BAD(tensor_slice(a, 0, 0, 2, 0), SHAPE, "slice: step 0");
    BAD(tensor_slice(a, 2, 0, 2, 1), INDEX, "dim 2");
    BAD(tensor_at(a, "0, 0, 0"), INDEX, "indexes 3 dims of x [2,3]");
    BAD(tensor_at(a, "5"), INDEX, "at: index 5 in \"5\" is outside dim 0 of x [2,3]");
    BAD(tensor_at(a, "::-1"), SHAPE, "step");
    BAD(tensor_at(a, "x"), FORMAT, "cannot read \"x\"");
    BAD(tensor_at(a, "0,,1"), FORMAT, "cannot read");
    BAD(tensor_at(a, "..., ..."), FORMAT, "more than one");
    BAD(tensor_at(a, "99999999999999999999"), INDEX, "is outside dim 0");
    BAD(tensor_at(a, NULL), FORMAT, "NULL");
    BAD(tensor_as_strided(a, nine, nine, 2, 6), SHAPE, "leaves the storage");
    BAD(tensor_as_strided(a, (const int64_t[]){7}, nine, 1, 0), SHAPE,
        "leaves the storage of x [2,3] (6 elements)");
    BAD(tensor_as_strided(a, nine, nine, 1, -1), SHAPE, "leaves the storage");
    BAD(tensor_as_strided(a, nine, nine, -1, 0), SHAPE, "leaves the storage");
    BAD(tensor_as_strided(a, (const int64_t[]){2}, (const int64_t[]){INT64_MAX}, 1, 0), SHAPE,
        "leaves the storage");
    BAD(tensor_as_strided_scatter(a, v, nine, nine, 1, 0), SHAPE, "as_strided_scatter");
    CHECK(tensor_split(a, 1, 0, out, 1) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split: dim 0 of x [2,3] in parts of 1 needs 2 places, there are 1");
    CHECK(tensor_split(a, 0, 0, out, 4) == 0 && tensor_is_poison(out[3]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split");
    CHECK(tensor_split(a, 1, 2, out, 4) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim 2");
    CHECK(tensor_chunk(a, 0, 0, out, 4) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "chunk");
    BAD(tensor_flatten(a, 1, 0), INDEX, "flatten: start 1 is after end 0");
    BAD(tensor_repeat(a, 2), SHAPE, "repeat: x [2,3] needs at least 2 repeats, got 1");
    BAD(tensor_repeat(a, 2, -1), SHAPE, "repeat");
    // reductions
    BAD(tensor_sum_dim(a, 2, 0), INDEX, "sum_dim: dim 2 is outside -2..1");
    BAD(tensor_sum_dims(a, twice, 2, 0), INDEX, "sum_dims: dim 0 appears twice");
    BAD(tensor_mean(I32(1)), DTYPE, "mean: x [1] is i32");
    BAD(tensor_softmax(I32(1), 0), DTYPE, "softmax: x [1] is i32");
    BAD(tensor_softmax(a, -3), INDEX, "softmax: dim -3");
    BAD(tensor_var(I32(1), 0), DTYPE, "var");
    BAD(tensor_norm(I32(1)), DTYPE, "norm");
    BAD(tensor_cumsum(a, 5), INDEX, "cumsum: dim 5");
    BAD(tensor_logsumexp(a, 5, 0), INDEX, "logsumexp: dim 5");
    BAD(tensor_argmax_dim(a, 9, 0), INDEX, "argmax_dim: dim 9");
    BAD(tensor_max_dim(a, 9, 0).indices, INDEX, "argmax: dim 9");
    // products
    BAD(tensor_matmul(a, a), SHAPE, "matmul: a [2,3] and b [2,3] do not agree on K (3 vs 2)");
    BAD(tensor_matmul(a, tensor_scalar(1, TENSOR_F32)), SHAPE, "at least 1 dim");
    BAD(tensor_matmul(a, tensor_to(a, TENSOR_F64)), DTYPE, "convert one with tensor_to");
    BAD(tensor_matmul(tensor_ones(2, 2, 3), tensor_ones(3, 3, 2)), SHAPE, "batch dims");
    BAD(tensor_mm(a, v), SHAPE, "mm: a [2,3] and b [4] must have 2 and 2 dims");
    BAD(tensor_bmm(tensor_ones(2, 2, 3), tensor_ones(3, 3, 2)), SHAPE, "bmm");
    BAD(tensor_mv(a, v), SHAPE, "K (3 vs 4)");
    BAD(tensor_dot(v, tensor_ones(3)), SHAPE, "K (4 vs 3)");
    BAD(tensor_dot(a, v), SHAPE, "dot");
    BAD(tensor_outer(a, v), SHAPE, "outer");
    BAD(tensor_addmm(tensor_ones(5), a, tensor_ones(3, 2), 1, 1), SHAPE, "[5]");
    BAD(tensor_addmm(tensor_ones(4, 2, 2), a, tensor_ones(3, 2), 1, 1), SHAPE,
        "addmm"); // x must broadcast to [M, N]
    BAD(tensor_tril(v, 0), SHAPE, "tril: x [4] needs at least 2 dims");
    BAD(tensor_triu(v, 0), SHAPE, "triu");
    // joining, indices
    BAD((tensor_cat_n)(NULL, 0, 0), SHAPE, "cat: needs at least one tensor");
    BAD(tensor_cat(0, a, v), SHAPE, "cat: tensor 1 [4] does not fit the first [2,3] along dim 0");
    BAD(tensor_cat(2, a, a), INDEX, "cat: dim 2");
    BAD(tensor_cat(0, tensor_scalar(1, TENSOR_F32), tensor_scalar(1, TENSOR_F32)), SHAPE, "0-d");
    BAD(tensor_cat(0, a, (tensor_t *)NULL), OWNER, "NULL");
    BAD(tensor_stack(0, a, v), SHAPE, "stack: tensor 1 [4] must have the shape of the first [2,3]");
    BAD(tensor_stack(3, a, a), INDEX, "stack: dim 3");
    BAD(tensor_index_select(a, 0, i), INDEX,
        "index_select: index 5 at element 1 of index [2] is outside 0..1 (x [2,3])");
    BAD(tensor_index_select(a, 0, I64S(-1)), INDEX, "index -1 at element 0");
    BAD(tensor_index_select(a, 0, v), DTYPE, "index [4] must be i64 or i32, not f32");
    BAD(tensor_index_select(a, 2, i), INDEX, "dim 2");
    BAD(tensor_index_select(a, 0, tensor_zeros_of(TENSOR_I64, 1, 1)), SHAPE, "index_select");
    BAD(tensor_index_add(a, 0, I64S(2), tensor_ones(1, 3)), INDEX,
        "index_add: index 2 at element 0 of index [1] is outside 0..1 (x [2,3])");
    BAD(tensor_index_add(a, 0, I64S(0), tensor_ones(2, 3)), SHAPE, "index_add");
    BAD(tensor_index_add(a, 0, I64S(0), tensor_ones_of(TENSOR_F64, 1, 3)), DTYPE,
        "src [1,3] is f64, must be f32 as x");
    BAD(tensor_gather(a, 1, tensor_full_of(TENSOR_I64, 3, 2, 1)), INDEX,
        "gather: index 3 at element 0 of index [2,1] is outside 0..2 (x [2,3])");
    BAD(tensor_gather(a, 1, tensor_zeros_of(TENSOR_I64, 3, 1)), SHAPE,
        "gather: index [3,1] does not fit x [2,3] along dim 1");
    BAD(tensor_gather(a, 1, i), SHAPE, "gather");
    BAD(tensor_scatter(a, 1, tensor_full_of(TENSOR_I64, -1, 2, 1), a), INDEX, "scatter: index -1");
    BAD(tensor_scatter(a, 1, tensor_zeros_of(TENSOR_I64, 2, 4), a), SHAPE, "scatter");
    BAD(tensor_scatter_add(a, 0, tensor_full_of(TENSOR_I32, 7, 1, 3), a), INDEX, "scatter_add: index 7");
    BAD(tensor_one_hot(I64S(0, 3), 3), INDEX, "index 3");
    BAD(tensor_one_hot(I64S(0), 0), SHAPE, "one_hot");
    BAD(tensor_one_hot(v, 3), DTYPE, "f32");
    // getters and the rest
    CHECK(tensor_size(a, 2) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim 2");
    CHECK(tensor_stride(a, -3) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim -3");
    CHECK(tensor_item(a) != tensor_item(a));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "item: x [2,3] must have exactly one element");
    CHECK(tensor_item_i64(tensor_zeros(0)) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "[0]");
    CHECK(tensor_copy_out(a, out, 5) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "copy_out: x [2,3] f32 needs 24 bytes, got 5");
    CHECK(tensor_set_isa("mmx") == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "mmx");
    CHECK(tensor_set_num_threads(0) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "set_num_threads");
    CHECK(tensor_set_num_threads(1000) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "256");
    n_errors += 13;
}

int main(void) {
    RUN(prepare);
    RUN(misuse);
    RUN(errors);
    printf("%ld error cases\n", n_errors);
    return test_report();
}

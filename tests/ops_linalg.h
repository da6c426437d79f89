// ops_linalg.h - the rows of torch.linalg as functions of any matrices [.., 3, 3], so that their gradients
// can be checked; values, errors and more gradients are in linalg.c
#ifndef TEST_OPS_LINALG_H
#define TEST_OPS_LINALG_H
#include "ops.h"

typedef tensor_t *(*call_t)(tensor_t *const *in, int n, void *user);
TEST_FN tensor_t *linalg_spd(tensor_t *x) {
    return tensor_add(tensor_matmul(x, tensor_mT(x)), tensor_to(tensor_eye(3, 3), TENSOR_F64));
}
TEST_FN tensor_t *linalg_strong(tensor_t *x) {
    return tensor_add(x, tensor_mul_scalar(tensor_to(tensor_eye(3, 3), TENSOR_F64), 9));
}
#define LINALG_CALL(name, ...)                                                                               \
    static tensor_t *call_of_##name(tensor_t *const *in, int n, void *user) {                                \
        (void)n, (void)user;                                                                                 \
        __VA_ARGS__                                                                                          \
    }
LINALG_CALL(linalg_cholesky, return tensor_linalg_cholesky(linalg_spd(in[0]), 0);)
LINALG_CALL(linalg_cholesky_ex, return tensor_linalg_cholesky_ex(linalg_spd(in[0]), 1).result;)
LINALG_CALL(linalg_det, return tensor_linalg_det(in[0]);)
LINALG_CALL(linalg_eigh, tensor_eigh_t e = tensor_linalg_eigh(linalg_spd(in[0]), 0);
            return tensor_matmul(tensor_square(e.eigenvectors), tensor_unsqueeze(e.eigenvalues, -1));)
LINALG_CALL(linalg_lu_factor, return tensor_linalg_lu_factor(linalg_strong(in[0])).lu;)
LINALG_CALL(linalg_pinv, return tensor_linalg_pinv(linalg_strong(in[0]), -1);)
LINALG_CALL(linalg_qr, tensor_qr_t q = tensor_linalg_qr(linalg_strong(in[0]), NULL);
            return tensor_add(tensor_sin(q.q), q.r);)
LINALG_CALL(linalg_solve, return tensor_linalg_solve(linalg_strong(in[0]), in[1]);)
LINALG_CALL(linalg_solve_triangular,
            return tensor_linalg_solve_triangular(linalg_strong(in[0]), in[1], 1, 1, 0);)
LINALG_CALL(linalg_svd, tensor_linalg_svd_t s = tensor_linalg_svd(in[0], 0);
            return tensor_matmul(tensor_mul(s.u, tensor_unsqueeze(tensor_sin(s.s), -2)), s.vh);)

static const struct { int id; call_t call; } linalg_list[] = {
    {TENSOR_OP_LINALG_CHOLESKY, call_of_linalg_cholesky},
    {TENSOR_OP_LINALG_CHOLESKY_EX, call_of_linalg_cholesky_ex},
    {TENSOR_OP_LINALG_DET, call_of_linalg_det},
    {TENSOR_OP_LINALG_EIGH, call_of_linalg_eigh},
    {TENSOR_OP_LINALG_LU_FACTOR, call_of_linalg_lu_factor},
    {TENSOR_OP_LINALG_PINV, call_of_linalg_pinv},
    {TENSOR_OP_LINALG_QR, call_of_linalg_qr},
    {TENSOR_OP_LINALG_SOLVE, call_of_linalg_solve},
    {TENSOR_OP_LINALG_SVD, call_of_linalg_svd},
    {TENSOR_OP_LINALG_SOLVE_TRIANGULAR, call_of_linalg_solve_triangular},
};
enum { LINALG_CASES = COUNT(linalg_list) };

#endif

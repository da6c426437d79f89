// compile_face.cpp - the C++ face: variadic templates, options, scope guard, tensor_ref and its operators.
// Prints "fine" when all of it works.
#include "tensor_nn.h"

#include <cstdio>

static int use() {
    int bad = 0;
    tensor_ref kept;
    {
        tensor_scope_guard scope;
        tensor_t *a = tensor_full(2, 2, 3), *b = tensor_ones(3);
        tensor_ref r = tensor_clone(a);
        kept = 2 * r * b + 1.0 - r;
        bad += tensor_item(tensor_sum(r / b)) != 12;
        bad += tensor_item(tensor_sum(b - r)) != -6;
        bad += tensor_size(tensor_cat(0, a, a), 0) != 4;
        bad += tensor_ndim(tensor_reshape(a, -1)) != 1;
        bad += tensor_dtype(tensor_zeros_of(TENSOR_I64, 2)) != TENSOR_I64;
        bad += tensor_item(tensor_einsum("ij,j->", a, b)) != 12;
        bad += tensor_size(tensor_linalg_multi_dot(a, tensor_mT(a), a), 1) != 3;
        bad += tensor_item(tensor_select(tensor_linalg_svd(tensor_eye(2, 2), 0).s, 0, 1)) != 1;
        int64_t rows = 0, cols = 3;
        tensor_rearrange_args_t sizes = tensor_rearrange_args_t();
        sizes.h = 1;
        bad += tensor_check(a, "rows cols", &rows, &cols) != 0 || rows != 2 || tensor_check(a, "2 _") != 0;
        bad += tensor_ndim(tensor_rearrange(a, "(h b) c -> h c b", sizes)) != 3;
        bad += tensor_ndim(tensor_rearrange(a, "b c -> c", "max")) != 1;
        bad += tensor_ndim(tensor_rearrange(a, "b c -> b c 1")) != 3;
        bad += tensor_size(tensor_index(a, nullptr, tensor_arange(0, 2, 1, TENSOR_I64)), 1) != 2;
        bad += tensor_size(tensor_hstack(a, a), 1) != 6 || tensor_ndim(tensor_unflatten(a, 1, 3, 1)) != 3;
        bad += tensor_size(tensor_flip(tensor_tile(a, 2), 0, 1), 1) != 6;
        tensor_index_put_(a, tensor_zeros(1), 0, tensor_arange(0, 1, 1, TENSOR_I64));
        tensor_fill_(a, 2);
        tensor_ref moved = static_cast<tensor_ref &&>(r);
        bad += r.get() != nullptr || moved.get() == nullptr;
        tensor_conv_args_t conv = tensor_conv_args_t();
        conv.padding = 1;
        tensor_t *image = tensor_ones(1, 2, 4, 5), *y = tensor_conv2d(image, tensor_ones(3, 2, 3, 3), conv);
        bad += tensor_size(y, 3) != 5 || tensor_size(tensor_pad(image, 1, 2), 3) != 8;
        bad += tensor_size(tensor_max_pool2d_with_indices(image, 2).indices, 2) != 2;
        bad += scope.reset() != 0;
    }
    bad += tensor_item(tensor_sum(kept)) != 18;
    return bad;
}

int main() {
    int bad = use();
    bad += tensor_shutdown();
    if (bad) std::printf("%d bad\n", bad);
    else std::printf("fine\n");
    return bad != 0;
}

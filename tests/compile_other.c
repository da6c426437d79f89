// compile_other.c - the second file of compile_use.c: it must see the same library.
#include "tensor_nn.h"

int compile_other(void);
int compile_other(void) {
    tensor_scope_t scope = tensor_scope_begin();
    int bad = tensor_item(tensor_sum(tensor_ones(5))) != 5.0;
    bad += tensor_version() / 100 != TENSOR_VERSION_MAJOR * 100 + TENSOR_VERSION_MINOR;
    return bad + (tensor_scope_end(scope) != 0);
}

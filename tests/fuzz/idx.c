// idx.c - examples/kit/idx.h: IDX files. FORMAT, or as many elements as the file holds
#include "fuzz.h"

#define KIT_IDX_IMPLEMENTATION
#include "../../examples/kit/idx.h"

static void idx_setup(void) {}
static void idx(const uint8_t *data, size_t size) {
    uint8_t *file = (uint8_t *)malloc(size + 1);
    tensor_t *x;
    int code;
    if (!file) { abort(); }
    if (size) { memcpy(file, data, size); }
    x = kit_parse_idx(file, size, "fuzz");
    code = tensor_error_code();
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    if (!tensor_is_poison(x)) {
        size_t bytes = (size_t)tensor_numel(x) * tensor_dtype_size(tensor_dtype(x));
        PROMISE(bytes + 4 + 4 * (size_t)tensor_ndim(x) == size, "%llu bytes of %llu",
                (unsigned long long)bytes, (unsigned long long)size);
    }
    free(file);
}
FUZZ_TARGET(idx, idx_setup)

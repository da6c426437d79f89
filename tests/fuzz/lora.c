// lora.c - examples/kit/lora.h: a file of adapters is refused, and then no adapter has changed, or it has all of
// the net's adapters and nothing else
#include "fuzz.h"

#define KIT_LORA_IMPLEMENTATION
#include "../../examples/kit/lora.h"

static nn_module_t *lora_net;
static char lora_path[64];

static void lora_setup(void) {
    if (lora_net) { return; }
    fuzz_path(lora_path, sizeof lora_path, "lora");
    lora_net = nn_sequential(nn_linear(2, 2));
    kit_lora_t how;
    memset((void *)&how, 0, sizeof how);
    how.rank = 1;
    if (kit_lora(lora_net, "0", how) != 1) { abort(); }
}

static uint64_t lora_hash(void) {
    nn_named_list_t list = nn_named_parameters(lora_net);
    uint64_t h = TEST_HASH;
    for (int64_t i = 0; i < list.count; i++) { h = test_hash(h, list.item[i].tensor); }
    return h;
}

static void lora(const uint8_t *data, size_t size) {
    size_t bytes;
    uint8_t *file = file_of(data, size, &bytes);
    FILE *f = fopen(lora_path, "wb");
    if (!f || fwrite(file, 1, bytes, f) != bytes || fclose(f) != 0) { abort(); }
    free(file);
    const uint64_t before = lora_hash();
    const int code = kit_lora_load(lora_path, lora_net);
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED ||
                code == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    PROMISE(code == tensor_error_code(), "code %d, error %d", code, tensor_error_code());
    PROMISE(code == 0 || lora_hash() == before, "a refused file changed the net");
    remove(lora_path);
}
FUZZ_TARGET(lora, lora_setup)

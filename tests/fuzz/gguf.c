// gguf.c - examples/kit/gguf.h: refused as a whole by the file's name, or every tensor can be read or is
// UNSUPPORTED, and settings are inside the file
#include "fuzz.h"

#define KIT_GGUF_IMPLEMENTATION
#include "../../examples/kit/gguf.h"

static void gguf_setup(void) {}

static void gguf_setting(const kit_gguf_t *f, const char *key, const uint8_t *data, size_t size) {
    double value;
    size_t n = 0;
    int64_t most = kit_gguf_length(f, key);
    kit_gguf_number(f, key, &value);
    PROMISE(most <= (int64_t)size, "\"%s\" has %lld entries", key, (long long)most);
    for (int64_t i = 0; i <= most && i < 8; i++) {
        const char *text = kit_gguf_text(f, key, i, &n);
        if (!text) { continue; }
        PROMISE((const uint8_t *)text >= data && n <= size && (const uint8_t *)text + n <= data + size,
                "\"%s\" is not in the file", key);
    }
}

static void gguf(const uint8_t *data, size_t size) {
    static const char *const keys[] = {"general.alignment", "general.name", "tokenizer.ggml.tokens", "k"};
    kit_gguf_t *f = kit_gguf_parse(data, size, "fuzz.gguf");
    int code = tensor_error_code();
    if (!f) {
        PROMISE(code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED ||
                    code == TENSOR_ERR_OUT_OF_MEMORY,
                "%s", tensor_error_text());
        PROMISE(strncmp(tensor_error_text(), "fuzz.gguf: ", 11) == 0, "%s", tensor_error_text());
        return;
    }
    PROMISE(code == 0, "%s", tensor_error_text());
    int64_t count = kit_gguf_count(f);
    PROMISE(!kit_gguf_name(f, count) && !kit_gguf_name(f, -1), "a name that is not there");
    for (int64_t i = 0; i < count && i < 64; i++) {
        const char *name = kit_gguf_name(f, i);
        PROMISE(i == 0 || strcmp(kit_gguf_name(f, i - 1), name) < 0, "\"%s\" is out of order", name);
        tensor_t *x = kit_gguf_get(f, name);
        code = tensor_error_code();
        PROMISE(tensor_is_poison(x) == (code != 0), "%s", tensor_error_text());
        PROMISE(code == 0 || code == TENSOR_ERR_UNSUPPORTED || code == TENSOR_ERR_OUT_OF_MEMORY, "%s",
                tensor_error_text());
        // 32 elements take 18 bytes at least.
        PROMISE(code != 0 || (uint64_t)tensor_numel(x) <= 2 * (uint64_t)size, "%lld elements of %llu bytes",
                (long long)tensor_numel(x), (unsigned long long)size);
        tensor_clear_error();
    }
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) { gguf_setting(f, keys[k], data, size); }
    kit_gguf_close(f);
}
FUZZ_TARGET(gguf, gguf_setup)

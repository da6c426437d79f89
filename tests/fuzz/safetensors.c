// safetensors.c - the reader of safetensors: refused as a whole, or every tensor can be read (or is
// UNSUPPORTED), and what is written from them is read back as it was; a module loads the file as a whole or
// is unchanged, and so it is by the file's own test
#include "fuzz.h"

enum { SAFE_MOST = 64 }; // tensors of a file that are looked at

static nn_module_t *safe_net;

static void safetensors_setup(void) {
    if (!safe_net) { safe_net = nn_linear(3, 2); }
}
static int safe_known(int code) {
    return code == TENSOR_OK || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_OUT_OF_MEMORY;
}

// Writes the tensors and reads them again.
static void safe_written(const char *const *names, tensor_t *const *tensors, int n) {
    tensor_t *file = nn_safetensors_format(names, tensors, n, NULL, 0);
    nn_safetensors_t *r;
    int i;
    if (tensor_is_poison(file)) {
        PROMISE(tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY, "%s", tensor_error_text());
        tensor_clear_error();
        return;
    }
    r = nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file));
    PROMISE(r != NULL, "what was written is refused: %s", tensor_error_text());
    for (i = 0; i < n && r; i++) {
        PROMISE(test_same_bits(nn_safetensors_get(r, names[i]), tensors[i]), "\"%s\" came back otherwise",
                names[i]);
    }
    nn_safetensors_close(r);
    tensor_clear_error();
}

static void safe_module(const uint8_t *file, size_t bytes) {
    tensor_t *w = nn_get(safe_net, "weight"), *b = nn_get(safe_net, "bias");
    int partial;
    for (partial = 0; partial < 2; partial++) {
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        uint64_t before = test_hash(test_hash(TEST_HASH, w), b), after;
        int code = nn_load_memory(file, bytes, safe_net, partial);
        after = test_hash(test_hash(TEST_HASH, w), b);
        PROMISE(safe_known(code), "%s", tensor_error_text());
        PROMISE(code == TENSOR_OK || before == after, "a refused file changed the module");
        tensor_clear_error();
        tensor_scope_end(scope);
    }
}

static uint64_t safe_hash(void) {
    return test_hash(test_hash(TEST_HASH, nn_get(safe_net, "weight")), nn_get(safe_net, "bias"));
}

static void safe_unchanged(int code, uint64_t before) {
    PROMISE(code == tensor_error_code(), "code %d, error %d", code, tensor_error_code());
    PROMISE(code != TENSOR_ERR_INTERNAL, "%s", tensor_error_text());
    PROMISE(code == 0 || before == safe_hash(), "a refused file changed the module");
    tensor_clear_error();
}

// The file's own test, whose numbers and tensors are the file's; a file with one is also loaded by its path.
static void safe_tested(nn_safetensors_t *r, const uint8_t *file, size_t bytes) {
    char path[64];
    uint64_t before = safe_hash();
    safe_unchanged(nn_self_test(r, safe_net), before);
    PROMISE(before == safe_hash(), "a test changed the module");
    if (!nn_safetensors_metadata(r, "test.inputs")) { return; }
    fuzz_path(path, sizeof path, "tested");
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file, 1, bytes, f) != bytes || fclose(f) != 0) { abort(); }
    safe_unchanged(nn_load_tested(path, safe_net), before);
    before = safe_hash();
    safe_unchanged(nn_load(path, safe_net, .partial = 1, .prefix = "test/"), before);
    remove(path);
}

static void safetensors(const uint8_t *data, size_t size) {
    const char *names[SAFE_MOST];
    tensor_t *tensors[SAFE_MOST];
    size_t bytes;
    uint8_t *file = file_of(data, size, &bytes);
    nn_safetensors_t *r = nn_safetensors_parse(file, bytes);
    int64_t i, count = nn_safetensors_count(r);
    int n = 0;
    PROMISE(r || tensor_error_code() == TENSOR_ERR_FORMAT || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    tensor_clear_error();
    for (i = 0; i < count && n < SAFE_MOST; i++) {
        int code;
        names[n] = nn_safetensors_name(r, i);
        tensors[n] = nn_safetensors_get(r, names[n]);
        code = tensor_error_code();
        PROMISE(code == 0 || code == TENSOR_ERR_UNSUPPORTED || code == TENSOR_ERR_SHAPE ||
                    code == TENSOR_ERR_OUT_OF_MEMORY,
                "\"%s\": %s", names[n], tensor_error_text());
        n += code == 0;
        tensor_clear_error();
    }
    PROMISE(nn_safetensors_name(r, count) == NULL && nn_safetensors_name(r, -1) == NULL,
            "a name that is not there");
    nn_safetensors_metadata(r, "format");
    if (n && n == count) { safe_written(names, tensors, n); }
    if (r) { safe_tested(r, file, bytes); }
    nn_safetensors_close(r);
    safe_module(file, bytes);
    free(file);
}
FUZZ_TARGET(safetensors, safetensors_setup)

// shards.c - the index of a safetensors file in parts: refused as a whole by its name, or every tensor can be
// read from the part beside it
#include "fuzz.h"

static char shards_index[64], shards_part[64];
static uint8_t shards_bytes[400];
static size_t shards_size;

static void shards_write(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) { abort(); }
}

static void shards_setup(void) {
    const char *const names[2] = {"a", "b.weight"};
    if (shards_size) { return; }
    fuzz_path(shards_index, sizeof shards_index, "shards.json");
    fuzz_path(shards_part, sizeof shards_part, "part");
    tensor_t *t[2] = {tensor_arange(0, 6, 1, TENSOR_F32), tensor_ones(2, 2)};
    tensor_t *file = nn_safetensors_format(names, t, 2, NULL, 0);
    shards_size = (size_t)tensor_numel(file);
    if (shards_size > sizeof shards_bytes) { abort(); }
    memcpy(shards_bytes, tensor_data(file), shards_size);
}

// The text of an index, in which @ is the name of the part.
static size_t shards_text(bytes_t *b, char *text, size_t room) {
    const char *slash = strrchr(shards_part, '/'), *name = slash ? slash + 1 : shards_part;
    size_t n = 0;
    while (b->p < b->end && n + sizeof shards_part < room) {
        char c = (char)next_byte(b);
        if (c == '@') {
            memcpy(text + n, name, strlen(name));
            n += strlen(name);
        } else {
            text[n++] = c;
        }
    }
    return n;
}

// The first byte of an input: odd, the part is mapped.
static void shards(const uint8_t *data, size_t size) {
    static char text[1 << 16];
    bytes_t b = {data, data + size};
    const int map = (int)(next_byte(&b) % 2);
    shards_write(shards_part, shards_bytes, shards_size);
    shards_write(shards_index, text, shards_text(&b, text, sizeof text));
    nn_safetensors_t *r = map ? nn_safetensors_map(shards_index) : nn_safetensors_open(shards_index);
    int code = tensor_error_code();
    if (!r) {
        PROMISE(code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_IO || code == TENSOR_ERR_OUT_OF_MEMORY, "%s",
                tensor_error_text());
        // An IO error is of a part that is not there, by that part's name.
        PROMISE(code != TENSOR_ERR_FORMAT || strstr(tensor_error_text(), "tensor-fuzz-") != NULL, "%s",
                tensor_error_text());
    } else {
        int64_t count = nn_safetensors_count(r);
        PROMISE(code == 0 && count <= 2, "%lld tensors: %s", (long long)count, tensor_error_text());
        for (int64_t i = 0; i < count; i++) {
            tensor_t *x = nn_safetensors_get(r, nn_safetensors_name(r, i));
            PROMISE(tensor_numel(x) == 6 || tensor_numel(x) == 4, "%s", tensor_error_text());
        }
        nn_safetensors_close(r);
    }
    remove(shards_index);
    remove(shards_part);
}
FUZZ_TARGET(shards, shards_setup)

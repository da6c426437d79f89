// dlpack.c - tensors of other libraries: an error or a tensor of the same shape and elements; either way the
// memory is given back once
#include "fuzz.h"

typedef struct dlpack_tensor_t {
    void *data;
    int32_t device, id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dlpack_tensor_t;
typedef struct dlpack_t { // DLManagedTensorVersioned
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dlpack_t *);
    uint64_t flags;
    dlpack_tensor_t t;
} dlpack_t;
typedef struct dlpack_old_t { // DLManagedTensor
    dlpack_tensor_t t;
    void *manager;
    void (*deleter)(struct dlpack_old_t *);
} dlpack_old_t;

enum { DLPACK_HALF = 1 << 15 }; // bytes before and behind data
static char dlpack_memory[2 * DLPACK_HALF];
static int dlpack_given_back;

static void dlpack_setup(void) {}
static void dlpack_deleter(dlpack_t *m) {
    dlpack_given_back += m != NULL;
}
static void dlpack_old_deleter(dlpack_old_t *m) {
    dlpack_given_back += m != NULL;
}

// A size that is small, or with a mark from 128 on one that overflows somewhere.
static int64_t dlpack_number(bytes_t *b, int *huge) {
    static const int64_t numbers[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 31, INT64_C(1) << 32,
                                      INT64_C(1) << 58, INT64_C(1) << 62, 65536};
    unsigned first = next_byte(b);
    if (first < 128) { return (int64_t)first % 12; }
    *huge = 1;
    return numbers[first % 8];
}

// 0 = equal elements
static int dlpack_differs(tensor_t *x, const dlpack_t *m, const int64_t *strides) {
    tensor_t *c = tensor_contiguous(x);
    const size_t size = tensor_dtype_size(tensor_dtype(c));
    const char *have = (const char *)tensor_data(c);
    for (int64_t i = 0; i < tensor_numel(c); i++) {
        int64_t at = 0, rest = i;
        for (int d = m->t.ndim - 1; d >= 0; d--) {
            at += rest % m->t.shape[d] * strides[d];
            rest /= m->t.shape[d];
        }
        const char *want = (const char *)m->t.data + m->t.byte_offset + at * (int64_t)size;
        // A truth that is neither 0 nor 1 may become 1.
        if (m->t.code == 6 && !have[i] == !*want) { continue; }
        if (memcmp(have + (size_t)i * size, want, size) != 0) { return 1; }
    }
    return 0;
}

static void dlpack(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    int64_t shape[12], strides[12], rows[12], low = 0, high = 0, row = 1;
    int huge = 0;
    dlpack_t m;
    dlpack_old_t old;
    for (size_t i = 0; i < sizeof dlpack_memory; i++) {
        dlpack_memory[i] = (char)((i * 7 + i / 251) & 0x3F); // no NaN, whose bits a copy may change
    }
    memset(&m, 0, sizeof m);
    const unsigned head = next_byte(&b);
    m.major = head % 8 == 7 ? next_byte(&b) : 1;
    const int unversioned = head % 8 == 6;
    m.flags = head / 8 % 2;
    m.deleter = head & 16 ? NULL : dlpack_deleter;
    m.t.device = head & 32 ? (int32_t)next_byte(&b) - 1 : 1;
    m.t.ndim = head & 64 ? (int32_t)next_byte(&b) % 12 - 1 : (int32_t)next_byte(&b) % 4;
    m.t.code = (uint8_t)(next_byte(&b) % 8);
    m.t.bits = (uint8_t)(8u << next_byte(&b) % 5);
    m.t.lanes = (uint16_t)(next_byte(&b) % 16 != 15);
    m.t.byte_offset = next_byte(&b) % 64;
    m.t.shape = shape;
    m.t.strides = next_byte(&b) % 4 ? strides : NULL;
    m.t.data = head & 128 ? NULL : dlpack_memory + DLPACK_HALF;
    for (int d = 0; d < 12; d++) {
        shape[d] = dlpack_number(&b, &huge);
        strides[d] = (int64_t)next_byte(&b) % 64 - 32;
    }
    for (int d = m.t.ndim - 1; d >= 0 && !huge; d--) {
        const int64_t stride = m.t.strides ? strides[d] : row, reach = stride * (shape[d] - 1);
        rows[d] = stride;
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
        row *= shape[d] ? shape[d] : 1;
        if (row > DLPACK_HALF) { huge = 1; }
    }
    low = low * (m.t.bits / 8), high = (high + 1) * (m.t.bits / 8) + 64;
    if (low < -DLPACK_HALF || high > DLPACK_HALF) { huge = 1; }
    if (huge) { // what is copied is read: such sizes only look at memory
        for (int d = 0; d < 12; d++) { strides[d] = strides[d] < 0 ? -strides[d] : strides[d]; }
        m.t.byte_offset = 0;
    }
    dlpack_given_back = 0;
    tensor_scope_t scope = tensor_scope_begin();
    memset(&old, 0, sizeof old);
    old.t = m.t;
    old.deleter = m.deleter ? dlpack_old_deleter : NULL;
    tensor_t *x = unversioned ? tensor_from_dlpack_unversioned((struct DLManagedTensor *)(void *)&old)
                              : tensor_from_dlpack((struct DLManagedTensorVersioned *)(void *)&m);
    int code = tensor_error_code(), most = m.deleter != NULL;
    PROMISE(tensor_is_poison(x) == (code != 0), "%s", tensor_error_text());
    PROMISE(code == 0 || code == TENSOR_ERR_UNSUPPORTED || code == TENSOR_ERR_SHAPE ||
                code == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    if (code == 0) {
        PROMISE(m.major == 1 && m.t.lanes == 1 && tensor_ndim(x) == m.t.ndim, "a tensor of another kind");
        for (int d = 0; d < m.t.ndim; d++) {
            PROMISE(tensor_size(x, d) == shape[d], "dim %d is %lld", d, (long long)tensor_size(x, d));
        }
        PROMISE(huge || !dlpack_differs(x, &m, rows), "other elements");
    }
    PROMISE(code == 0 || dlpack_given_back == most, "given back %d times", dlpack_given_back);
    tensor_clear_error();
    tensor_scope_end(scope);
    PROMISE(dlpack_given_back == most, "given back %d times", dlpack_given_back);
}
FUZZ_TARGET(dlpack, dlpack_setup)

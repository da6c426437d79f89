// formats.c - npy and npz by NumPy and for it, memory shared by DLPack, wrapped memory with strides
//
//   formats                runs the tests
//   formats write FOLDER   one npy file for each dtype and an npz archive of all, for tests/interop.py
//   formats check FOLDER   reads what tests/interop.py made of them
#include "test.h"

#define IN "tests/fixtures/formats/"

// The rule of tests/fixtures/formats.py.
static double rule(int64_t k, int dtype) {
    int64_t v = (3 * k + 1) % 7;
    if (dtype == TENSOR_BOOL) { return (double)(v % 2); }
    return (double)(dtype == TENSOR_U8 ? v : v - 2);
}

static int follows(tensor_t *t, int dtype, double more) {
    tensor_t *f = tensor_reshape(tensor_to(t, TENSOR_F64), -1);
    const double *p = (const double *)tensor_data(f);
    if (!tensor_ok() || (int)tensor_dtype(t) != dtype) { return 0; }
    for (int64_t k = 0; k < tensor_numel(t); k++) {
        if (p[k] != rule(k, dtype) + more) { return 0; }
    }
    return 1;
}

static tensor_t *ruled(int dtype, const int64_t *dims, int ndim) {
    tensor_t *t = tensor_zeros_n(dims, ndim, TENSOR_F64);
    double *p = (double *)tensor_data_mut(t);
    for (int64_t k = 0; k < tensor_numel(t); k++) { p[k] = rule(k, dtype); }
    return tensor_to(t, dtype);
}

static const struct {
    const char *name;
    int dtype;
} types[] = {{"f4", TENSOR_F32}, {"f8", TENSOR_F64}, {"f2", TENSOR_F16}, {"i4", TENSOR_I32},
             {"i8", TENSOR_I64}, {"i2", TENSOR_I16}, {"i1", TENSOR_I8},  {"u1", TENSOR_U8},
             {"b1", TENSOR_BOOL}};
enum { TYPES = (int)(sizeof types / sizeof types[0]) };

static tensor_t *fixture(const char *name) {
    char path[200];
    snprintf(path, sizeof path, IN "%s", name);
    return nn_read_npy(path);
}

static tensor_t *file_bytes(const char *name) {
    static unsigned char bytes[20000];
    char path[200];
    snprintf(path, sizeof path, IN "%s", name);
    FILE *f = fopen(path, "rb");
    int64_t n = f ? (int64_t)fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) { fclose(f); }
    CHECK(n > 0);
    return tensor_from_n(bytes, TENSOR_U8, &n, 1);
}

static void npy_reads(void) {
    char name[40];
    for (int k = 0; k < TYPES; k++) {
        snprintf(name, sizeof name, "%s.npy", types[k].name);
        tensor_t *t = fixture(name);
        CHECK_MSG(tensor_ndim(t) == 2 && tensor_size(t, 0) == 2 && tensor_size(t, 1) == 3 &&
                      follows(t, types[k].dtype, 0),
                  "%s: %s", name, tensor_error_text());
    }
    tensor_t *wide = fixture("u2.npy");
    CHECK(tensor_dtype(wide) == TENSOR_I32 && tensor_item_i64(tensor_at(wide, "0, 1")) == 65004);
    wide = fixture("u4.npy");
    CHECK(tensor_dtype(wide) == TENSOR_I64 && tensor_item_i64(tensor_at(wide, "0, 1")) == 4294967004);
    CHECK(follows(fixture("big.npy"), TENSOR_F32, 0));
    CHECK(follows(fixture("big_i8.npy"), TENSOR_I64, 0));
    CHECK(follows(fixture("version2.npy"), TENSOR_F32, 0));
    CHECK(follows(fixture("version3.npy"), TENSOR_F32, 0));
    tensor_t *t = fixture("fortran.npy");
    CHECK(tensor_is_contiguous(t) && tensor_size(t, 0) == 2 && tensor_size(t, 2) == 4 &&
          follows(t, TENSOR_F32, 0));
    t = fixture("scalar.npy");
    CHECK(tensor_ndim(t) == 0 && follows(t, TENSOR_F64, 0));
    t = fixture("one.npy");
    CHECK(tensor_ndim(t) == 1 && tensor_numel(t) == 5 && follows(t, TENSOR_I32, 0));
    t = fixture("empty.npy");
    CHECK(tensor_numel(t) == 0 && tensor_size(t, 1) == 3);
    CHECK_OK();
    CHECK_POISON(fixture("complex.npy"), TENSOR_ERR_UNSUPPORTED, "dtype <c8 is not supported");
    CHECK_POISON(fixture("text.npy"), TENSOR_ERR_UNSUPPORTED, "dtype <U2 is not supported");
    CHECK_POISON(fixture("object.npy"), TENSOR_ERR_UNSUPPORTED, "Python objects");
    CHECK_POISON(fixture("struct.npy"), TENSOR_ERR_UNSUPPORTED, "structured");
    CHECK_POISON(fixture("absent.npy"), TENSOR_ERR_IO, "absent.npy");
}

// What is written has the bytes that numpy.save writes, and every layout comes back.
static void npy_writes(void) {
    char name[40];
    static const int64_t dims[2] = {2, 3};
    for (int k = 0; k < TYPES; k++) {
        tensor_t *t = ruled(types[k].dtype, dims, 2), *bytes = nn_format_npy(t);
        snprintf(name, sizeof name, "%s.npy", types[k].name);
        CHECK_MSG(tensor_equal(bytes, file_bytes(name)), "%s: other bytes than NumPy's", name);
        CHECK(test_same_bits(nn_parse_npy(tensor_data(bytes), (size_t)tensor_numel(bytes)), t));
    }
    CHECK(tensor_equal(nn_format_npy(ruled(TENSOR_I32, (const int64_t[]){5}, 1)), file_bytes("one.npy")));
    CHECK(tensor_equal(nn_format_npy(ruled(TENSOR_F64, NULL, 0)), file_bytes("scalar.npy")));
    tensor_t *x = tensor_transpose(ruled(TENSOR_F32, dims, 2), 0, 1), *bytes = nn_format_npy(x);
    CHECK(tensor_equal(nn_parse_npy(tensor_data(bytes), (size_t)tensor_numel(bytes)), x));
    CHECK(nn_write_npy("build/formats.npy", x) == 0 && tensor_equal(nn_read_npy("build/formats.npy"), x));
    remove("build/formats.npy");
    CHECK_POISON(nn_format_npy(tensor_to(x, TENSOR_BF16)), TENSOR_ERR_UNSUPPORTED, "NumPy has no bf16");
    CHECK(nn_write_npy("build/nowhere/x.npy", x) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "npy: cannot create");
}

static void npz(void) {
    nn_npz_t *r = nn_npz_open(IN "stored.npz");
    CHECK(nn_npz_count(r) == 3 && !nn_npz_name(r, 3) && !nn_npz_name(r, -1));
    CHECK_TEXT(nn_npz_name(r, 0), "x");
    CHECK_TEXT(nn_npz_name(r, 2), "a name");
    CHECK(follows(nn_npz_get(r, "x"), TENSOR_F32, 0) && follows(nn_npz_get(r, "y"), TENSOR_I64, 0));
    CHECK(follows(nn_npz_get(r, "a name"), TENSOR_BOOL, 0));
    CHECK_POISON(nn_npz_get(r, "z"), TENSOR_ERR_INDEX, "no array \"z\"");
    tensor_t *kept = nn_npz_get(r, "y");
    CHECK(nn_npz_close(r) == 0 && nn_npz_close(NULL) == 0);
    CHECK(follows(kept, TENSOR_I64, 0));
    r = nn_npz_open(IN "deflated.npz");
    CHECK_POISON(nn_npz_get(r, "x"), TENSOR_ERR_UNSUPPORTED, "numpy.savez_compressed");
    nn_npz_close(r);

    tensor_t *x = tensor_randn(3, 4), *y = tensor_arange(0, 7, 1, TENSOR_I16), *none = tensor_zeros(0, 2);
    const char *names[3] = {"x", "layer.0/y", "none"};
    tensor_t *all[3] = {x, y, none}, *bytes = nn_npz_format(names, all, 3);
    r = nn_npz_parse(tensor_data(bytes), (size_t)tensor_numel(bytes));
    CHECK(nn_npz_count(r) == 3 && test_same_bits(nn_npz_get(r, "x"), x));
    CHECK(test_same_bits(nn_npz_get(r, "layer.0/y"), y) && test_same_bits(nn_npz_get(r, "none"), none));
    nn_npz_close(r);
    CHECK(nn_npz_write("build/formats.npz", names, all, 3) == 0);
    r = nn_npz_open("build/formats.npz");
    CHECK(test_same_bits(nn_npz_get(r, "layer.0/y"), y));
    nn_npz_close(r);
    remove("build/formats.npz");
    bytes = nn_npz_format(NULL, NULL, 0);
    r = nn_npz_parse(tensor_data(bytes), (size_t)tensor_numel(bytes));
    CHECK(r && nn_npz_count(r) == 0);
    nn_npz_close(r);
    CHECK_OK();
    names[2] = "x";
    CHECK_POISON(nn_npz_format(names, all, 3), TENSOR_ERR_FORMAT, "two tensors are called \"x\"");
    names[2] = "";
    CHECK_POISON(nn_npz_format(names, all, 3), TENSOR_ERR_FORMAT, "name no file may hold");
}

// A changed byte of an array's data is found by the checksum.
static void npz_damaged(void) {
    tensor_t *x = tensor_ones(4), *bytes = nn_npz_format((const char *const[]){"x"}, &x, 1);
    unsigned char *p = (unsigned char *)tensor_data_mut(bytes);
    p[30 + 5 + 128 + 1] ^= 1;
    nn_npz_t *r = nn_npz_parse(p, (size_t)tensor_numel(bytes));
    CHECK_POISON(nn_npz_get(r, "x"), TENSOR_ERR_FORMAT, "checksum");
    nn_npz_close(r);
}

// ---- DLPack ----

typedef struct dl_tensor_t {
    void *data;
    int32_t device, id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor_t;
typedef struct DLManagedTensor {
    dl_tensor_t t;
    void *manager;
    void (*deleter)(struct DLManagedTensor *);
} plain_t;
typedef struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    dl_tensor_t t;
} versioned_t;

static int n_deleted;
static void plain_deleted(plain_t *m) { n_deleted += m != NULL; }
static void versioned_deleted(versioned_t *m) { n_deleted += m != NULL; }

static void dlpack_out(void) {
    static const int codes[TENSOR_DTYPE_COUNT][2] = {{2, 32}, {2, 64}, {0, 32}, {0, 64}, {1, 8},
                                                     {6, 8},  {2, 16}, {4, 16}, {0, 8},  {0, 16}};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_transpose(tensor_arange(0, 24, 1, TENSOR_F32), 0, 0);
    x = tensor_narrow(tensor_transpose(tensor_reshape(x, 4, 6), 0, 1), 0, 1, 4);
    versioned_t *m = tensor_to_dlpack(x);
    CHECK(m->major == 1 && m->flags == 0 && m->t.device == 1 && m->t.id == 0 && m->t.ndim == 2);
    CHECK(m->t.code == 2 && m->t.bits == 32 && m->t.lanes == 1 && m->t.byte_offset == 0);
    CHECK(m->t.shape[0] == 4 && m->t.shape[1] == 4 && m->t.strides[0] == 1 && m->t.strides[1] == 6);
    tensor_scope_end(scope);
    CHECK(((float *)m->t.data)[0] == 1 && ((float *)m->t.data)[6] == 7); // held beyond its scope
    m->deleter(m);
    for (int k = 0; k < TENSOR_DTYPE_COUNT; k++) {
        plain_t *p = tensor_to_dlpack_unversioned(tensor_ones_of((tensor_dtype_t)k, 3));
        CHECK_MSG(p->t.code == codes[k][0] && p->t.bits == codes[k][1], "%s",
                  tensor_dtype_name((tensor_dtype_t)k));
        tensor_t *back = tensor_from_dlpack_unversioned(p);
        CHECK((int)tensor_dtype(back) == k && tensor_equal(back, tensor_ones_of((tensor_dtype_t)k, 3)));
    }
    m = tensor_to_dlpack(tensor_zeros(0, 2));
    CHECK(m->t.data == NULL && m->t.shape[1] == 2);
    m->deleter(m);
    CHECK_OK();
    CHECK(tensor_to_dlpack(tensor_requires_grad_(tensor_ones(2), 1)) == NULL);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "tensor_detach");
}

static versioned_t foreign(void *data, int64_t *shape, int64_t *strides, int ndim) {
    versioned_t m;
    memset(&m, 0, sizeof m);
    m.major = 1;
    m.deleter = versioned_deleted;
    m.t.data = data;
    m.t.device = 1;
    m.t.ndim = ndim;
    m.t.code = 2;
    m.t.bits = 32;
    m.t.lanes = 1;
    m.t.shape = shape;
    m.t.strides = strides;
    return m;
}

static void dlpack_in(void) {
    float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int64_t shape[2] = {3, 2}, strides[2] = {1, 4}, back[2] = {-4, 1}, big[2] = {INT64_MAX, 2};
    versioned_t m = foreign(data, shape, strides, 2);
    m.t.byte_offset = 4;
    tensor_scope_t scope = tensor_scope_begin();
    n_deleted = 0;
    tensor_t *x = tensor_from_dlpack(&m), *view = tensor_select(x, 1, 1);
    CHECK(tensor_item(tensor_at(x, "2, 1")) == 7 && tensor_stride(x, 1) == 4);
    tensor_add_scalar_(view, 100);
    CHECK(data[5] == 105 && data[6] == 106 && data[7] == 107 && n_deleted == 0);
    view = tensor_keep(view);
    tensor_scope_end(scope);
    CHECK(n_deleted == 0 && ((const float *)tensor_data(view))[0] == 105);
    tensor_free(view);
    CHECK(n_deleted == 1); // once, with the last view

    m = foreign(data, shape, NULL, 2);
    m.flags = 1; // read-only
    scope = tensor_scope_begin();
    x = tensor_from_dlpack(&m);
    CHECK(tensor_item(tensor_at(x, "2, 1")) == 105); // rows
    CHECK_POISON(tensor_add_scalar_(x, 1), TENSOR_ERR_OWNER, "read-only");
    CHECK(tensor_data_mut(x) == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "read-only");
    CHECK(tensor_to_dlpack_unversioned(x) == NULL);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "read-only");
    versioned_t *again = tensor_to_dlpack(x);
    CHECK((again->flags & 1) == 1);
    again->deleter(again);
    CHECK(n_deleted == 1);
    tensor_scope_end(scope);
    CHECK(n_deleted == 2);

    m = foreign(data + 8, shape, back, 2); // from below upwards: a copy
    x = tensor_from_dlpack(&m);
    CHECK(n_deleted == 3 && tensor_item(tensor_at(x, "0, 1")) == 9 && tensor_item(tensor_at(x, "2, 0")) == 0);

    CHECK_OK();
    plain_t p;
    memset(&p, 0, sizeof p);
    p.t = m.t;
    p.t.strides = strides;
    p.t.data = (char *)data + 2; // misaligned: a copy
    p.t.shape = shape;
    p.deleter = plain_deleted;
    x = tensor_from_dlpack_unversioned(&p);
    CHECK(n_deleted == 4 && tensor_numel(x) == 6);
    p.deleter = NULL;
    p.t.data = data;
    scope = tensor_scope_begin();
    CHECK(tensor_numel(tensor_from_dlpack_unversioned(&p)) == 6);
    tensor_scope_end(scope);
    CHECK_OK();

    static const struct {
        const char *what;
        uint32_t major;
        int device, ndim, code, bits, lanes, shape, code_of;
    } bad[] = {
        {"version 2", 2, 1, 2, 2, 32, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"tensor_cuda_wrap", 1, 2, 2, 2, 32, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"9 dims", 1, 1, 9, 2, 32, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"-1 dims", 1, 1, -1, 2, 32, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"code 5 with 64 bits", 1, 1, 2, 5, 64, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"2 lanes", 1, 1, 2, 2, 32, 2, 0, TENSOR_ERR_UNSUPPORTED},
        {"4 bits", 1, 1, 2, 0, 4, 1, 0, TENSOR_ERR_UNSUPPORTED},
        {"overflow", 1, 1, 2, 2, 32, 1, 1, TENSOR_ERR_SHAPE},
        {"overflow", 1, 1, 2, 2, 32, 1, 2, TENSOR_ERR_SHAPE},
        {"NULL", 1, 1, 2, 2, 32, 1, 3, TENSOR_ERR_SHAPE},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        int64_t wide[2] = {INT64_MAX / 2, INT64_MAX / 2}, minus[2] = {3, -1}, *at = shape;
        if (bad[k].shape == 1) { at = big; }
        if (bad[k].shape == 2) { at = minus; }
        m = foreign(bad[k].shape == 3 ? NULL : data, at, bad[k].shape ? wide : strides, bad[k].ndim);
        m.major = bad[k].major;
        m.t.device = bad[k].device;
        m.t.code = (uint8_t)bad[k].code;
        m.t.bits = (uint8_t)bad[k].bits;
        m.t.lanes = (uint16_t)bad[k].lanes;
        if (bad[k].shape == 3) { m.t.strides = strides; }
        n_deleted = 0;
        CHECK_POISON(tensor_from_dlpack(&m), bad[k].code_of, bad[k].what);
        CHECK_MSG(n_deleted == 1, "%s: the deleter ran %d times", bad[k].what, n_deleted);
    }
    CHECK_POISON(tensor_from_dlpack(NULL), TENSOR_ERR_POISONED, "from_dlpack");

    // No element, but the strides of its rows would overflow.
    int64_t none[3] = {INT64_MAX, 2, 0}, turned[3] = {0, 2, INT64_MAX};
    for (int k = 0; k < 2; k++) {
        m = foreign(data, k ? turned : none, NULL, 3);
        n_deleted = 0;
        CHECK_POISON(tensor_from_dlpack(&m), TENSOR_ERR_SHAPE, "overflow");
        CHECK(n_deleted == 1);
    }
}

// ---- wrapped memory with strides ----

static int n_given;
static void given(void *data, void *user) {
    CHECK(data == user);
    n_given++;
}

static void strided(void) {
    static const float table[6] = {0, 1, 2, 3, 4, 5};
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t dims[2] = {2, 3}, columns[2] = {1, 2}, repeat[2] = {0, 1}, minus[2] = {-1, 1};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_wrap_strided(data, TENSOR_F32, dims, columns, 2, 0, given, data);
    CHECK(tensor_item(tensor_at(x, "1, 2")) == 5 && !tensor_is_contiguous(x));
    tensor_mul_scalar_(x, 2);
    CHECK(data[5] == 10 && data[6] == 6); // nothing behind the last element
    CHECK(tensor_item(tensor_sum(tensor_matmul(x, tensor_ones(3, 1)))) == 30);
    tensor_t *y = tensor_wrap_strided(table, TENSOR_F32, dims, repeat, 2, TENSOR_READ_ONLY, NULL, NULL);
    CHECK(tensor_item(tensor_sum(y)) == 6);
    CHECK_POISON(tensor_fill_(y, 1), TENSOR_ERR_OWNER, "read-only");
    y = tensor_wrap_strided(table, TENSOR_F32, dims, columns, 2, TENSOR_READ_ONLY, NULL, NULL);
    CHECK_POISON(tensor_copy_(y, x), TENSOR_ERR_OWNER, "read-only");
    CHECK_POISON(tensor_relu_(tensor_select(y, 0, 1)), TENSOR_ERR_OWNER, "read-only");
    CHECK(table[5] == 5 && tensor_equal(tensor_add_scalar_(tensor_clone(y), 0), y));
    CHECK_POISON(tensor_wrap_strided(data, TENSOR_F32, dims, minus, 2, 0, NULL, NULL), TENSOR_ERR_SHAPE,
                 "stride -1 of dim 0");
    minus[0] = INT64_MAX;
    CHECK_POISON(tensor_wrap_strided(data, TENSOR_F32, dims, minus, 2, 0, NULL, NULL), TENSOR_ERR_SHAPE,
                 "too large");
    CHECK_POISON(tensor_wrap_strided(NULL, TENSOR_F32, dims, columns, 2, 0, NULL, NULL), TENSOR_ERR_SHAPE,
                 "wrap_strided: data is NULL for 6 elements");
    dims[0] = 0; // no elements: no memory is needed
    y = tensor_wrap_strided(NULL, TENSOR_F32, dims, columns, 2, TENSOR_READ_ONLY, NULL, NULL);
    CHECK(tensor_numel(y) == 0 && tensor_size(y, 1) == 3 && tensor_stride(y, 1) == 2);
    CHECK(tensor_item(tensor_sum(tensor_wrap_n(NULL, TENSOR_F64, dims, 2, NULL, NULL))) == 0);
    CHECK(tensor_numel(tensor_wrap_strided(data, TENSOR_F32, dims, columns, 2, 0, given, data)) == 0);
    CHECK(n_given == 0);
    tensor_scope_end(scope);
    CHECK(n_given == 2);
}

// Parameters and statistics over constants: what changes them is an error, not a crash.
static void constants(void) {
    static const float zeros[8] = {0};
    int64_t dims[2] = {2, 2}, one = 1, strides[2] = {2, 1};
    tensor_t *w = tensor_wrap_strided(zeros, TENSOR_F32, dims, strides, 2, TENSOR_READ_ONLY, NULL, NULL);
    nn_module_t m;
    memset((void *)&m, 0, sizeof m);
    nn_module_init(&m, "Constants", NULL, NULL);
    nn_parameter(&m, "w", w);
    nn_optimizer_t *o = nn_sgd(&m, .lr = 0.1);
    tensor_backward(tensor_sum(tensor_matmul(w, w)));
    CHECK(nn_step(o) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "read-only");
    nn_optimizer_free(o);
    nn_free(&m);
    int64_t n = 2;
    tensor_t *mean = tensor_wrap_strided(zeros, TENSOR_F32, &n, &one, 1, TENSOR_READ_ONLY, NULL, NULL);
    CHECK_POISON(tensor_batch_norm(tensor_randn(4, 2), .running_mean = mean, .running_var = tensor_ones(2),
                                   .training = 1),
                 TENSOR_ERR_OWNER, "read-only");
    CHECK(zeros[0] == 0);
}

// ---- mapped safetensors ----

// Tensors look into the file, outlive the reader, and a change of one stays in memory.
static void mapped(void) {
    const char *names[4] = {"f", "b", "h", "none"};
    tensor_t *all[4] = {tensor_randn(5, 3), tensor_ones_of(TENSOR_BOOL, 3), tensor_ones_of(TENSOR_F16, 7),
                        tensor_zeros(0, 2)};
    const char *path = "build/formats.safetensors";
    CHECK(nn_safetensors_write(path, names, all, 4, NULL, 0) == 0);
    for (int round = 0; round < 2; round++) {
        tensor_scope_t scope = tensor_scope_begin();
        nn_safetensors_t *r = nn_safetensors_map(path);
        CHECK(nn_safetensors_count(r) == 4);
        for (int k = 0; k < 4; k++) { CHECK(test_same_bits(nn_safetensors_get(r, names[k]), all[k])); }
        tensor_t *f = nn_safetensors_get(r, "f");
        nn_safetensors_close(r);
        CHECK(test_same_bits(f, all[0]));
        tensor_fill_(f, 3);
        CHECK(tensor_item(tensor_sum(f)) == 45);
        tensor_scope_end(scope);
    }
    FILE *f = fopen(path, "r+b");
    CHECK(f && fwrite("\377\377", 1, 2, f) == 2);
    if (f) { fclose(f); }
    CHECK(nn_safetensors_map(path) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "exceeds the file");
    CHECK(nn_safetensors_map("build/absent.safetensors") == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "absent");
    remove(path);
}

// ---- files in parts ----

static void put_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(text, f) >= 0);
    if (f) { fclose(f); }
}

static void parts(void) {
    const char *index = "build/formats.index.json", *one = "build/formats-1.safetensors",
               *two = "build/formats-2.safetensors";
    const char *first[2] = {"0.weight", "unused"}, *second[1] = {"0.bias"};
    tensor_t *w[2] = {tensor_randn(2, 3), tensor_ones(1)}, *b[1] = {tensor_randn(2)};
    CHECK(nn_safetensors_write(one, first, w, 2, NULL, 0) == 0);
    CHECK(nn_safetensors_write(two, second, b, 1, NULL, 0) == 0);
    put_text(index, "{\"metadata\": {\"total_size\": 3.2e1, \"a\": [null, {\"b\": \"}\"}]}, \"weight_map\": {"
                    "\"0.weight\": \"formats-1.safetensors\", \"0.bias\": \"formats-2.safetensors\"}}\n");
    for (int map = 0; map < 2; map++) {
        nn_safetensors_t *r = map ? nn_safetensors_map(index) : nn_safetensors_open(index);
        CHECK(nn_safetensors_count(r) == 2 && test_same_bits(nn_safetensors_get(r, "0.weight"), w[0]) &&
              test_same_bits(nn_safetensors_get(r, "0.bias"), b[0]));
        CHECK_POISON(nn_safetensors_get(r, "unused"), TENSOR_ERR_INDEX, "no tensor");
        nn_safetensors_close(r);
    }
    nn_module_t *m = nn_sequential(nn_linear(3, 2));
    CHECK(nn_load(index, m) == 0 && tensor_equal(nn_get(m, "0.bias"), b[0]));
    CHECK(nn_safetensors_open(index) != NULL); // tensor_shutdown closes it
    nn_free(m);
    static const struct {
        const char *text;
        int code;
        const char *error;
    } bad[] = {
        {"", TENSOR_ERR_FORMAT, "does not begin with {"},
        {"{}", TENSOR_ERR_FORMAT, "a string is expected"},
        {"{\"metadata\":{}}", TENSOR_ERR_FORMAT, "weight_map is missing"},
        {"{\"metadata\":[[1,2}", TENSOR_ERR_FORMAT, "a value is expected"},
        {"{\"metadata\":,\"weight_map\":{}}", TENSOR_ERR_FORMAT, "a value is expected"},
        {"{\"weight_map\":{},\"weight_map\":{}}", TENSOR_ERR_FORMAT, "twice"},
        {"{\"weight_map\":[]}", TENSOR_ERR_FORMAT, "an object is expected"},
        {"{\"weight_map\":{\"a\":1}}", TENSOR_ERR_FORMAT, "a string is expected"},
        {"{\"weight_map\":{\"a\":\"../x\"}}", TENSOR_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", TENSOR_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"c:x\"}}", TENSOR_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"\"}}", TENSOR_ERR_FORMAT, "beside the index"},
        {"{\"weight_map\":{\"a\":\"formats-3.safetensors\"}}", TENSOR_ERR_IO, "formats-3"},
        {"{\"weight_map\":{\"a\":\"formats.index.json\"}}", TENSOR_ERR_FORMAT, "exceeds the file"},
        {"{\"weight_map\":{\"a\":\"formats-1.safetensors\"}}", TENSOR_ERR_FORMAT, "a is not in formats-1"},
        {"{\"weight_map\":{\"unused\":\"formats-1.safetensors\",\"unused\":\"formats-1.safetensors\"}}",
         TENSOR_ERR_FORMAT, "two tensors of this name"},
        {"{\"weight_map\":{}}x", TENSOR_ERR_FORMAT, "text after"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        put_text(index, bad[k].text);
        CHECK_MSG(nn_safetensors_open(index) == NULL, "%s", bad[k].text);
        CHECK_ERROR(bad[k].code, bad[k].error);
    }
    char deep[400] = "{\"metadata\":";
    memset(deep + strlen(deep), '[', 100);
    put_text(index, deep);
    CHECK(nn_safetensors_open(index) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "too many brackets");
    remove(index), remove(one), remove(two);
}

// ---- checkpoints with all of a training, loads with other names ----

static uint64_t next_rows(nn_data_loader_t *l, int batches) {
    uint64_t h = TEST_HASH;
    nn_batch_t b;
    for (int k = 0; k < batches; k++) {
        if (nn_next(l, &b)) { h = test_hash(h, b.x); }
    }
    return h;
}

// What could not be loaded is not saved, and a scaler that cannot be changed refuses the load as a whole.
static void refused_trainings(const char *path, nn_training_t *from, nn_training_t *to) {
    tensor_t *weight = nn_get(from->module, "weight");
    nn_data_loader_t *loader = to->loader;
    tensor_t *scaler = to->scaler;
    from->loader = to->loader = NULL;
    CHECK(nn_save_training(path, from) == 0);
    nn_plateau_t good = *from->plateau;
    for (int k = 0; k < 8; k++) {
        nn_plateau_t *p = from->plateau;
        *p = good;
        p->factor = k == 0 ? 1e300 : p->factor;
        p->threshold = k == 1 ? -1e300 : p->threshold;
        p->min_lr = k == 2 ? (double)NAN : p->min_lr;
        p->patience = k == 3 ? INT64_MAX : p->patience;
        p->cooldown = k == 4 ? INT64_MAX : p->cooldown;
        p->seen = k == 5 ? -1 : p->seen;
        p->bad = k == 6 ? -1 : p->bad;
        p->resting = k == 7 ? -1 : p->resting;
        CHECK_MSG(nn_save_training(path, from) == TENSOR_ERR_SHAPE, "number %d is saved", k);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "the plateau has a number that is not possible; counts are 0..2^53");
    }
    *from->plateau = good;

    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_fill_(weight, 5);
    tensor_scope_end(scope);
    scope = tensor_scope_begin_inference();
    to->scaler = tensor_keep(tensor_clone(scaler));
    tensor_scope_end(scope);
    CHECK(nn_load_training(path, to) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "load_checkpoint: x [6] was made in inference mode");
    CHECK(tensor_item(tensor_min(weight)) == 5 && tensor_item(tensor_max(weight)) == 5);
    tensor_free(to->scaler);
    to->scaler = scaler;
    CHECK(nn_load_training(path, to) == 0 && tensor_item(tensor_max(weight)) < 5);
    to->loader = loader;
}

static void trainings(void) {
    const char *path = "build/formats.checkpoint";
    tensor_t *x = tensor_randn(20, 3);
    for (int workers = 0; workers < 2; workers++) {
        nn_module_t *m = nn_linear(3, 2);
        nn_optimizer_t *o = nn_adam(m, .lr = 0.1);
        nn_plateau_t p, q;
        memset((void *)&p, 0, sizeof p);
        q = p;
        nn_training_t c = {m, o, nn_grad_scaler(1024, 3), &p, NULL, 17};
        c.loader = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 3, .shuffle = 1, .seed = 6,
                                  .num_workers = workers);
        (void)next_rows(c.loader, 10); // into the second epoch
        p.maximize = 1;
        p.best = 0.25;
        p.bad = 4;
        nn_scaler_update(c.scaler);
        CHECK(nn_save_training(path, &c) == 0);
        uint64_t want = next_rows(c.loader, 9);
        tensor_t *state = tensor_clone(c.scaler);
        nn_data_loader_free(c.loader);
        nn_training_t d = {m, o, nn_grad_scaler(2, 5), &q, NULL, 0};
        d.loader = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 3, .shuffle = 1, .seed = 1,
                                  .num_workers = 1 - workers);
        CHECK(nn_load_training(path, &d) == 0 && d.step == 17);
        CHECK(tensor_equal(d.scaler, state) && q.maximize == 1 && q.best == 0.25 && q.bad == 4);
        CHECK(next_rows(d.loader, 9) == want);
        int64_t step = 0; // what is not asked for is passed over
        CHECK(nn_load_checkpoint(path, m, o, &step) == 0 && step == 17);
        CHECK_OK();
        CHECK(nn_save_checkpoint(path, m, o, 2) == 0 && nn_load_training(path, &d) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT, "training/scaler is missing");
        CHECK(d.step == 17);
        refused_trainings(path, &c, &d);
        nn_data_loader_free(d.loader);
        tensor_free(c.scaler);
        tensor_free(d.scaler);
        nn_optimizer_free(o);
        nn_free(m);
    }
    remove(path);
}

// A place counts batches, so it is another one in batches of another size: nothing of the file is taken.
static void another_batch_size(void) {
    const char *path = "build/formats.batches";
    tensor_t *x = tensor_randn(20, 3);
    nn_module_t *m = nn_linear(3, 2), *other = nn_linear(3, 2);
    nn_training_t c, d;
    memset((void *)&c, 0, sizeof c);
    c.module = m;
    c.loader = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 4, .shuffle = 1, .seed = 6);
    (void)next_rows(c.loader, 2);
    c.step = 2;
    CHECK(nn_save_training(path, &c) == 0);
    uint64_t want = next_rows(c.loader, 3);

    d = c;
    d.module = other;
    d.step = 7;
    d.loader = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 2, .shuffle = 1, .seed = 1);
    uint64_t first = next_rows(d.loader, 3);
    CHECK(nn_seek(d.loader, 0) == 0);
    CHECK(nn_load_training(path, &d) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "holds the place of a loader with batch_size 4, this one has 2");
    CHECK(d.step == 7 && !tensor_equal(nn_get(m, "weight"), nn_get(other, "weight")));
    CHECK(next_rows(d.loader, 3) == first);

    nn_data_loader_free(d.loader);
    d.loader = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 4, .shuffle = 1, .seed = 1);
    CHECK(nn_load_training(path, &d) == 0 && d.step == 2 && next_rows(d.loader, 3) == want);
    CHECK(tensor_equal(nn_get(m, "weight"), nn_get(other, "weight")));
    nn_data_loader_free(d.loader);
    nn_data_loader_free(c.loader);
    nn_free(other);
    nn_free(m);
    remove(path);
}

// nn_load says what a checkpoint is for.
static void a_checkpoint_as_weights(void) {
    const char *path = "build/formats.checkpoint";
    nn_module_t *m = nn_linear(3, 2);
    nn_optimizer_t *o = nn_adam(m);
    tensor_backward(tensor_sum(nn_forward(m, tensor_ones(1, 3))));
    nn_step(o);
    CHECK(nn_save_checkpoint(path, m, o, 1) == 0);
    CHECK(nn_load(path, m) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "is a checkpoint, for nn_load_checkpoint: 7 unexpected [optimizer/");
    CHECK(nn_load(path, m, .partial = 1) == 0);
    nn_optimizer_free(o);
    nn_free(m);
    nn_module_t *wide = nn_linear(4, 2);
    CHECK(nn_load_checkpoint(path, wide, NULL, NULL) == TENSOR_ERR_FORMAT);
    CHECK(strstr(tensor_error_text(), "nn_load_checkpoint") == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "of another shape");
    nn_free(wide);
    remove(path);
}

static void renames(void) {
    const char *path = "build/formats.renamed";
    nn_module_t *from = nn_sequential(nn_linear(3, 2), nn_linear(2, 1)), *to = nn_sequential(nn_linear(3, 2));
    static const nn_rename_t last[1] = {{"1.", "0."}};
    CHECK(nn_save(path, from) == 0 && nn_load(path, to, .partial = 1) == 0);
    CHECK(tensor_equal(nn_get(to, "0.weight"), nn_get(from, "0.weight")));
    nn_free(to);
    to = nn_sequential(nn_linear(2, 1));
    CHECK(nn_load(path, to, .renames = last, .nrenames = 1, .partial = 1) == 0);
    CHECK(tensor_equal(nn_get(to, "0.weight"), nn_get(from, "1.weight")));
    CHECK(nn_load(path, to, .renames = last, .nrenames = 1) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "2 unexpected [0.bias, 0.weight]");
    // A name that was renamed is not there under its old one; of two renamings that fit, the first counts.
    static const nn_rename_t away[2] = {{"1.", "skipped."}, {"1.", "0."}};
    CHECK(nn_load(path, to, .renames = away, .nrenames = 2, .partial = 1) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "0.weight [2,3] (module: [1,2])");
    nn_module_t *both = nn_sequential(nn_linear(3, 2), nn_linear(2, 1));
    tensor_t *head = tensor_clone(nn_get(both, "1.weight"));
    CHECK(nn_load(path, both, .renames = away, .nrenames = 2, .partial = 1) == 0);
    CHECK(tensor_equal(nn_get(both, "1.weight"), head));
    CHECK(tensor_equal(nn_get(both, "0.weight"), nn_get(from, "0.weight")));
    nn_free(both);
    CHECK(nn_load(path, to, .renames = last, .partial = 1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "load: nrenames is 0 and renames is a list; both must be given, or none");
    CHECK(nn_load(path, to, .partial = 1) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "0.weight [2,3] (module: [1,2])"); // both shapes
    nn_free(from);
    nn_free(to);
    remove(path);
}

// ---- for tests/interop.py ----

static int exchange(const char *mode, const char *folder) {
    static const int64_t dims[2] = {2, 3};
    const char *names[TYPES];
    tensor_t *all[TYPES];
    char path[300];
    int bad = 0;
    for (int k = 0; k < TYPES; k++) {
        names[k] = types[k].name;
        all[k] = ruled(types[k].dtype, dims, 2);
        snprintf(path, sizeof path, "%s/%s.npy", folder, types[k].name);
        if (strcmp(mode, "write") == 0) {
            bad += nn_write_npy(path, all[k]) != 0;
        } else {
            bad += !test_same_bits(nn_read_npy(path), tensor_add_scalar(all[k], k == TYPES - 1 ? 0 : 1));
        }
    }
    snprintf(path, sizeof path, "%s/all.npz", folder);
    if (strcmp(mode, "write") == 0) {
        bad += nn_npz_write(path, names, all, TYPES) != 0;
    } else {
        nn_npz_t *r = nn_npz_open(path);
        bad += nn_npz_count(r) != TYPES;
        for (int k = 0; k < TYPES; k++) { bad += !test_same_bits(nn_npz_get(r, names[k]), all[k]); }
    }
    return tensor_shutdown() != 0 || bad != 0;
}

// The last letters of two bytes, and one beyond 16 bits as an escape.
static void letters(void) {
    const char *name = "\xDF\xBF";
    tensor_t *x = tensor_ones(2), *bytes = nn_npz_format(&name, &x, 1);
    nn_npz_t *r = nn_npz_parse(tensor_data(bytes), (size_t)tensor_numel(bytes));
    CHECK(r && test_same_bits(nn_npz_get(r, name), x));
    nn_npz_close(r);
    static const char header[] =
        "{\"\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    unsigned char file[8 + sizeof header] = {(unsigned char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    file[sizeof file - 1] = 9;
    nn_safetensors_t *s = nn_safetensors_parse(file, sizeof file);
    CHECK_TEXT(nn_safetensors_name(s, 0), "\xF0\x9F\x98\x80");
    CHECK(tensor_item(nn_safetensors_get(s, "\xF0\x9F\x98\x80")) == 9);
    nn_safetensors_close(s);
}

int main(int argc, char **argv) {
    if (argc == 3) { return exchange(argv[1], argv[2]); }
    RUN(letters);
    RUN(npy_reads);
    RUN(npy_writes);
    RUN(npz);
    RUN(npz_damaged);
    RUN(dlpack_out);
    RUN(dlpack_in);
    RUN(strided);
    RUN(constants);
    RUN(mapped);
    RUN(parts);
    RUN(trainings);
    RUN(another_batch_size);
    RUN(a_checkpoint_as_weights);
    RUN(renames);
    return test_report();
}

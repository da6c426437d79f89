// kit_torchfile.c - examples/kit/torchfile.h: files that PyTorch 2.15 wrote (tests/fixtures/torchfile.py),
// and files that lie: programs for the machine wrapped into an archive here, and damaged archives
#include "kit.h"

#define KIT_TORCHFILE_IMPLEMENTATION
#include "../examples/kit/torchfile.h"

static int try_torch(const void *data, size_t size, const char *name) {
    kit_torch_t *f = kit_torch_parse(data, size, name);
    for (int64_t i = 0; i < kit_torch_count(f); i++) {
        tensor_t *x = kit_torch_get(f, kit_torch_name(f, i));
        // An expanded view may have as many elements as it likes.
        CHECK(tensor_is_poison(x) || tensor_numel(x) > 1 << 20 || test_hash(TEST_HASH, x) != 1);
    }
    kit_torch_close(f);
    return f != NULL;
}

static kit_torch_t *fixture(const char *name, unsigned char **data) {
    size_t size;
    *data = kit_fixture(name, &size);
    kit_torch_t *f = kit_torch_parse(*data, size, name);
    CHECK_OK();
    return f;
}

// ---- programs ----

static size_t put(unsigned char *p, size_t at, uint64_t value, int bytes) {
    for (int k = 0; k < bytes; k++) { p[at + (size_t)k] = (unsigned char)(value >> 8 * k); }
    return at + (size_t)bytes;
}

// An archive of a program, a storage "0" of 8 bytes and a byte order.   -> its size
static size_t archive(unsigned char *p, const char *program, size_t length, const char *order) {
    const char *names[] = {"a/data.pkl", "a/data/0", "a/byteorder"},
               *data[] = {program, "\1\2\3\4\5\6\7\10", order};
    const size_t sizes[] = {length, 8, strlen(order)};
    size_t offsets[3], at = 0, directory;
    for (int k = 0; k < 3; k++) {
        offsets[k] = at;
        memset(p + at, 0, 30);
        put(p, at, 0x04034B50, 4);
        put(p, at + 26, strlen(names[k]), 2);
        memcpy(p + at + 30, names[k], strlen(names[k]));
        at += 30 + strlen(names[k]);
        memcpy(p + at, data[k], sizes[k]);
        at += sizes[k];
    }
    directory = at;
    for (int k = 0; k < 3; k++) {
        memset(p + at, 0, 46);
        put(p, at, 0x02014B50, 4);
        put(p, at + 20, sizes[k], 4);
        put(p, at + 24, sizes[k], 4);
        put(p, at + 28, strlen(names[k]), 2);
        put(p, at + 42, offsets[k], 4);
        memcpy(p + at + 46, names[k], strlen(names[k]));
        at += 46 + strlen(names[k]);
    }
    memset(p + at, 0, 22);
    put(p, at, 0x06054B50, 4);
    put(p, at + 8, 3, 2);
    put(p, at + 10, 3, 2);
    put(p, at + 12, at - directory, 4);
    put(p, at + 16, directory, 4);
    return at + 22;
}

#define TENSOR_V2 "ctorch._utils\n_rebuild_tensor_v2\n("
#define STORAGE(type, key, count) "(U\7storagectorch\n" type "\n" key "U\3cpu" count "tQ"
#define GOOD STORAGE("ByteStorage", "U\0010", "K\10")
#define REST                                                                                                 \
    "\x89"                                                                                                   \
    "ccollections\nOrderedDict\n)RtR"
#define PROGRAM(text) text, sizeof text - 1
#define UNFOLDED TENSOR_V2 GOOD "K\1K\5K\3\x86K\1K\1\x86" REST "."

static void every_dtype(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_I64,
                                            TENSOR_I32, TENSOR_I16, TENSOR_I8,  TENSOR_U8,   TENSOR_BOOL};
    static const char *const names[] = {"float32", "float64", "float16", "bfloat16", "int64",
                                        "int32",   "int16",   "int8",    "uint8",    "bool"};
    unsigned char *data;
    kit_torch_t *f = fixture("every.pt", &data);
    CHECK(kit_torch_count(f) == 15);
    for (int k = 0; k < 10; k++) {
        tensor_t *want = tensor_reshape(tensor_arange(0, 12, 1, TENSOR_I64), 3, 4);
        if (dtypes[k] == TENSOR_BOOL) { want = tensor_remainder_scalar(want, 2); }
        CHECK_TEXT(kit_torch_name(f, k), names[k]);
        CHECK(test_same_bits(kit_torch_get(f, names[k]), tensor_to(want, dtypes[k])));
    }
    tensor_t *base = tensor_reshape(tensor_arange(0, 48, 1, TENSOR_F32), 6, 8);
    CHECK(test_same_bits(kit_torch_get(f, "base"), base));
    CHECK(test_same_bits(kit_torch_get(f, "transposed"), tensor_contiguous(tensor_T(base))));
    CHECK(test_same_bits(kit_torch_get(f, "part"), tensor_contiguous(tensor_at(base, "1:4, 2::3"))));
    CHECK(tensor_ndim(kit_torch_get(f, "scalar")) == 0 && tensor_item(kit_torch_get(f, "scalar")) == 2.5);
    CHECK(tensor_size(kit_torch_get(f, "empty"), 0) == 0 && tensor_size(kit_torch_get(f, "empty"), 1) == 3);
    CHECK_POISON(kit_torch_get(f, "none"), TENSOR_ERR_INDEX, "there is no tensor \"none\"");
    CHECK(!kit_torch_name(f, -1) && !kit_torch_name(f, 15));
    kit_torch_close(f);
    free(data);
    // Views whose elements share memory are as they were: of expand, and of unfold (offset 1, rows 1 apart).
    f = fixture("expanded.pt", &data);
    tensor_t *x = kit_torch_get(f, "");
    CHECK(tensor_ndim(x) == 1 && tensor_size(x, 0) == 4 && tensor_equal(x, tensor_ones(4)));
    kit_torch_close(f);
    free(data);
    unsigned char file[4096];
    f = kit_torch_parse(file, archive(file, PROGRAM(UNFOLDED), "little"), "unfolded.pt");
    CHECK_OK();
    const uint8_t want[] = {2, 3, 4, 3, 4, 5, 4, 5, 6, 5, 6, 7, 6, 7, 8};
    const int64_t dims[2] = {5, 3};
    CHECK(tensor_equal(kit_torch_get(f, ""), tensor_from_n(want, TENSOR_U8, dims, 2)));
    kit_torch_close(f);
    f = fixture("one.pt", &data);
    CHECK(kit_torch_count(f) == 1 && tensor_equal(kit_torch_get(f, ""), tensor_arange(0, 5, 1, TENSOR_I64)));
    CHECK_TEXT(kit_torch_name(f, 0), "");
    kit_torch_close(f);
    kit_torch_close(NULL);
    CHECK(!kit_torch_parse(NULL, 100, "a"));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "a: ");
    free(data);
}

// A module loaded from the state of PyTorch's gives PyTorch's outputs.
static void modules(void) {
    static const char *const files[] = {"checkpoint.pt", "protocol4.pt"};
    nn_module_t *net = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4), nn_relu(), nn_linear(4, 2));
    nn_module_t *other = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4), nn_relu(), nn_linear(5, 2));
    unsigned char *data;
    nn_eval(net);
    for (int k = 0; k < 2; k++) {
        kit_torch_t *f = fixture(files[k], &data);
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        nn_init_zeros_(nn_get(net, "0.weight"));
        CHECK(kit_torch_load(f, net, "model.") == 0);
        CHECK(tensor_allclose(nn_forward(net, kit_torch_get(f, "x")), kit_torch_get(f, "y"), 1e-5, 1e-6));
        tensor_scope_end(scope);
        CHECK(tensor_item(tensor_sum(kit_torch_get(f, "list.0"))) == 2 &&
              tensor_item(kit_torch_get(f, "list.1")) == 0);
        CHECK(tensor_item(tensor_sum(kit_torch_get(f, "parameter"))) == 2);
        CHECK(tensor_item(tensor_sum(kit_torch_get(f, "7"))) == 14);
        CHECK(kit_torch_load(f, net, NULL) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, "kit_torch_load: the file has no 0.weight; the first of its ");
        uint64_t before = test_hash(TEST_HASH, nn_get(other, "0.weight"));
        CHECK(kit_torch_load(f, other, "model.") == TENSOR_ERR_SHAPE);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "model.3.weight is [2, 5] here and [2, 4] in the file");
        CHECK(before == test_hash(TEST_HASH, nn_get(other, "0.weight")));
        kit_torch_close(f);
        free(data);
    }
    kit_torch_t *f = kit_torch_open("tests/fixtures/kit/net.pt");
    CHECK(kit_torch_load(f, net, NULL) == 0);
    kit_torch_close(f);
    CHECK(!kit_torch_open("tests/fixtures/kit/none.pt"));
    CHECK_ERROR(TENSOR_ERR_IO, "none.pt");
    nn_free(net);
    nn_free(other);
}

static void refused_by_name(void) {
    static const struct {
        const char *file, *part;
    } cases[] = {
        {"evil.pt", "this global is not allowed: posix.system"},
        {"complex.pt", "this global is not allowed: torch.ComplexFloatStorage"},
        {"negated.pt", "a view that negates or conjugates"},
        {"legacy.pt", "the form before PyTorch 1.6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        unsigned char *data = kit_fixture(cases[i].file, &size);
        KIT_REFUSED(try_torch, data, size, cases[i].part);
        free(data);
    }
}

static void hostile_programs(void) {
    static const struct {
        const char *program;
        size_t length;
        const char *part;
    } cases[] = {
        {PROGRAM(""), "the program ends too early"},
        {PROGRAM("\x80\2"), "the program ends too early"},
        {PROGRAM("."), "leaves no value"},
        {PROGRAM("NN."), "leaves no value"},
        {PROGRAM("cos\nsystem\n(U\4truetR."), "not allowed: os.system"},
        {PROGRAM("U\2osU\6system\x93."), "not allowed: os.system"},
        {PROGRAM("cbuiltins\neval\n."), "not allowed: builtins.eval"},
        {PROGRAM("ctorch._utils\n_rebuild_tensor\n."), "not allowed: torch._utils._rebuild_tensor"},
        {PROGRAM("ctorch\n"), "ends too early"},
        {PROGRAM("ctorch\nSize"), "ends too early"},
        {PROGRAM("NN\x93."), "a global without a name"},
        {PROGRAM("\x93."), "the stack is empty"},
        {PROGRAM("R."), "the stack is empty"},
        {PROGRAM("N)R."), "not a function"},
        {PROGRAM("ctorch\nByteStorage\n)R."), "not a function"},
        {PROGRAM("ctorch\nSize\nNR."), "not a function"},
        {PROGRAM("ctorch\nSize\n)R."), "a size without numbers"},
        {PROGRAM("ctorch._utils\n_rebuild_parameter\nN\x85R."), "a parameter without tensor"},
        {PROGRAM("ccollections\nOrderedDict\nN\x85R."), "OrderedDict with arguments"},
        {PROGRAM(TENSOR_V2 "tR."), "a tensor is not described"},
        {PROGRAM(TENSOR_V2 "NK\0K\1\x85K\1\x85" REST "."), "a tensor is not described"},
        {PROGRAM(TENSOR_V2 GOOD "J\xFF\xFF\xFF\xFFK\1\x85K\1\x85" REST "."), "a tensor is not described"},
        {PROGRAM(TENSOR_V2 GOOD "K\0J\xFF\xFF\xFF\xFF\x85K\1\x85" REST "."), "a tensor is not described"},
        {PROGRAM(TENSOR_V2 GOOD "K\0K\1K\1\x86K\1\x85" REST "."), "a tensor is not described"},
        {PROGRAM(TENSOR_V2 GOOD "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t(K\1K\1K\1K\1K\1K\1K\1K\1K\1t" REST "."),
         "over 8 dims"},
        {PROGRAM(TENSOR_V2 GOOD "K\0K\11\x85K\1\x85" REST "."), "reaches beyond"},
        {PROGRAM(TENSOR_V2 GOOD "K\0K\4K\4\x86K\1K\2\x86" REST "."), "more elements"},
        {PROGRAM(TENSOR_V2 GOOD "K\0\x8A\10\0\0\0\0\0\0\0\10K\4\x86K\0K\0\x86" REST "."), "more elements"},
        {PROGRAM(TENSOR_V2 GOOD "K\1K\10\x85K\1\x85" REST "."), "reaches beyond"},
        {PROGRAM(TENSOR_V2 GOOD "K\10K\1\x85K\1\x85" REST "."), "reaches beyond"},
        {PROGRAM(TENSOR_V2 GOOD "K\0K\2\x85K\10\x85" REST "."), "reaches beyond"},
        {PROGRAM(TENSOR_V2 GOOD "K\0\x8A\10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\x85K\0\x85" REST "."),
         "more elements"},
        {PROGRAM(TENSOR_V2 GOOD "K\0K\2\x85\x8A\10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\x85" REST "."),
         "reaches beyond"},
        {PROGRAM(TENSOR_V2 GOOD "\x8A\10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FK\2\x85K\1\x85" REST "."),
         "elements"},
        {PROGRAM(TENSOR_V2 GOOD "K\0J\0\0\1\0J\0\0\1\0J\0\0\1\0J\0\0\1\0(tK\0\x85" REST "."),
         "a tensor is not described"},
        {PROGRAM(STORAGE("ByteStorage", "U\0011", "K\10") "."), "the archive lacks the storage 1"},
        {PROGRAM(STORAGE("ByteStorage", "U\0010", "K\11") "."), "too few bytes in the storage 0"},
        {PROGRAM(STORAGE("LongStorage", "U\0010", "K\2") "."), "too few bytes in the storage 0"},
        {PROGRAM(STORAGE("DoubleStorage", "U\0010", "\x8A\10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F") "."),
         "too few bytes"},
        {PROGRAM(STORAGE("ByteStorage", "U\0010", "J\xFF\xFF\xFF\xFF") "."), "not described as one"},
        {PROGRAM(STORAGE("Size", "U\0010", "K\1") "."), "not described as one"},
        {PROGRAM(STORAGE("ByteStorage", "K\0", "K\1") "."), "not described as one"},
        {PROGRAM(STORAGE("ByteStorage", "U\0010", "\x8A\11\1\1\1\1\1\1\1\1\1") "."), "not described as one"},
        {PROGRAM("(NNtQ."), "not described as one"},
        {PROGRAM("Q."), "not described as one"},
        {PROGRAM("t."), "no mark"},
        {PROGRAM("\x87."), "the stack is empty"},
        {PROGRAM("NN\x87."), "the stack is empty"},
        {PROGRAM("a."), "items without a container"},
        {PROGRAM("Na."), "items without a container"},
        {PROGRAM("}Na."), "items without a container"},
        {PROGRAM("]NNs."), "items without a container"},
        {PROGRAM("}(Nu."), "items without a container"},
        {PROGRAM("(Nu."), "items without a container"},
        {PROGRAM("e."), "no mark"},
        {PROGRAM("(Nd."), "a key without value"},
        {PROGRAM("h\0."), "a memory cell is empty"},
        {PROGRAM("j\xFF\xFF\xFF\x7F."), "a memory cell is empty"},
        {PROGRAM("Nr\xFF\xFF\xFF\xFF."), "a memory cell is wrong"},
        {PROGRAM("q\0."), "a memory cell is wrong"},
        {PROGRAM("N}b."), "an object with state"},
        {PROGRAM("b."), "an object with state"},
        {PROGRAM("X\xFF\xFF\xFF\xFF"
                 "a."),
         "ends too early"},
        {PROGRAM("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
                 "a."),
         "a number is too large"},
        {PROGRAM("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"
                 "a."),
         "ends too early"},
        {PROGRAM("\x8B\xFF\xFF\xFF\xFF."), "ends too early"},
        {PROGRAM("i."), "an instruction that torch.save does not write"},
        {PROGRAM("o."), "an instruction"},
        {PROGRAM("\x81."), "an instruction"},
        {PROGRAM("P0\n."), "an instruction"},
        {PROGRAM("\x82\1."), "an instruction"},
        {PROGRAM("\0."), "an instruction"},
        {PROGRAM("]q\0h\0a."), "nested too deeply"},
        {PROGRAM("}q\0U\1ah\0s."), "nested too deeply"},
        {PROGRAM("}U\3a\0bNs."), "a name is wrong"},
    };
    unsigned char file[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = archive(file, cases[i].program, cases[i].length, "little");
        KIT_REFUSED(try_torch, file, size, cases[i].part);
    }
    printf("%d malformed programs\n", (int)(sizeof cases / sizeof *cases));
    size_t size = archive(file, PROGRAM(TENSOR_V2 GOOD "K\0K\2K\4\x86K\4K\1\x86" REST "."), "little");
    CHECK(kit_try(try_torch, file, size, "a good program"));
    size = archive(file, PROGRAM(TENSOR_V2 GOOD "K\0K\2K\4\x86K\4K\1\x86" REST "."), "big");
    KIT_REFUSED(try_torch, file, size, "big-endian");
}

// Each level has the level before it twice: all that is left on the stack is the last one.
static void laughing_lists(void) {
    unsigned char file[4096], program[1000];
    size_t n = 0;
    memcpy(program, "]q\0", 3);
    n = 3;
    for (int k = 1; k < 31; k++) {
        const unsigned char level[] = {'h', (unsigned char)(k - 1), 0x86, 'q', (unsigned char)k};
        memcpy(program + n, level, sizeof level);
        n += sizeof level;
    }
    program[n++] = '.';
    KIT_REFUSED(try_torch, file, archive(file, (const char *)program, n, "little"), "too many values");
}

static void damaged_archives(void) {
    static const char *const files[] = {"one.pt", "net.pt"};
    unsigned char file[4096];
    for (int k = 0; k < 2; k++) {
        size_t size;
        unsigned char *data = kit_fixture(files[k], &size);
        CHECK(kit_try(try_torch, data, size, files[k]));
        kit_try_truncations(try_torch, data, size, 1);
        if (k == 0) { kit_try_damage(try_torch, data, size, 0, size); }
        free(data);
    }
    size_t size = archive(file, PROGRAM(TENSOR_V2 GOOD "K\0K\2K\4\x86K\4K\1\x86" REST "."), "little");
    kit_try_damage(try_torch, file, size, 0, size);
    KIT_REFUSED(try_torch, "", 0, "not a zip archive");
    KIT_REFUSED(try_torch, "this is a text and no archive at all", 36, "not a zip archive");
    put(file, size - 12, 0xFFFF, 2);
    KIT_REFUSED(try_torch, file, size, "the zip directory is damaged");
    size = archive(file, PROGRAM("N."), "little");
    file[size - 22 - 57 - 54 - 56 + 10] = 8;
    KIT_REFUSED(try_torch, file, size, "compressed");
    size = archive(file, PROGRAM("N."), "little");
    file[size - 22 - 57 - 54 - 56 + 46 + 5] = 'x';
    KIT_REFUSED(try_torch, file, size, "no data.pkl");
}

int main(void) {
    RUN(every_dtype);
    RUN(modules);
    RUN(refused_by_name);
    RUN(hostile_programs);
    RUN(laughing_lists);
    RUN(damaged_archives);
    return test_report();
}

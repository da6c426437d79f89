// traps.c - mistakes that a compiler lets pass (or only warns about) are errors with a text that names them:
// data of another C type than the dtype's, a number for a tensor, a function for a module, a loop without a
// reset. What the compiler itself must refuse is in tests/traps.sh.
#include "test.h"

// ---- data and dtype ----

enum { SHORT, USHORT, INT, UINT, LLONG, ULLONG, FLOAT, DOUBLE, BOOLEAN, BYTES, SCHAR, VECTORS, NOTHING };
typedef struct vec3 { float x, y, z; } vec3;
static short shorts[64];
static unsigned short ushorts[64];
static int ints[64];
static unsigned uints[64];
static long long longs[64];
static unsigned long long ulongs[64];
static float floats[64];
static double doubles[64];
#ifdef __cplusplus
static bool bools[64];
#else
static _Bool bools[64];
#endif
static unsigned char bytes[64 * 8];
static signed char schars[64 * 8];
static vec3 vectors[64];

// Whether tensor_from, tensor_wrap and tensor_copy_out take data of that type for that dtype.
static int taken(int type, tensor_dtype_t dtype) {
    tensor_t *from = NULL, *wrap = NULL, *x = tensor_zeros_of(dtype, 4);
    size_t size = 4 * tensor_dtype_size(dtype);
    int copied = -1, good;
    void *nothing = bytes;
#define GIVE(TYPE, data)                                                                                     \
    case TYPE:                                                                                               \
        from = tensor_from(data, dtype, 4);                                                                  \
        wrap = tensor_wrap(data, dtype, 2, 2);                                                               \
        copied = tensor_copy_out(x, data, size);                                                             \
        break;
    switch (type) {
        GIVE(SHORT, shorts)
        GIVE(USHORT, ushorts)
        GIVE(INT, ints)
        GIVE(UINT, uints)
        GIVE(LLONG, longs)
        GIVE(ULLONG, ulongs)
        GIVE(FLOAT, floats)
        GIVE(DOUBLE, doubles)
        GIVE(BOOLEAN, bools)
        GIVE(BYTES, bytes)
        GIVE(SCHAR, schars)
        GIVE(VECTORS, vectors)
        GIVE(NOTHING, nothing)
    }
#undef GIVE
    good = !tensor_is_poison(from);
    CHECK_MSG(good == !tensor_is_poison(wrap), "type %d, %s: from and wrap differ", type,
              tensor_dtype_name(dtype));
    CHECK_MSG(good == (copied == 0), "type %d, %s: from and copy_out differ", type,
              tensor_dtype_name(dtype));
    if (!good) CHECK_ERROR(TENSOR_ERR_DTYPE, "from: data is ");
    CHECK_OK();
    return good;
}

static void data_types(void) {
    // Per type the dtypes it fits, as their enumerators go: f32 f64 i32 i64 u8 bool f16 bf16 i8 i16.
    static const struct { int type; const char *fits; } cases[] = {
        {SHORT, "......xx.x"}, {USHORT, "......xx.x"}, {INT, "..x......."}, {UINT, "x.x......."},
        {LLONG, "...x......"}, {ULLONG, ".x.x......"}, {FLOAT, "x........."}, {DOUBLE, ".x........"},
        {BOOLEAN, "....xx..x."}, {BYTES, "xxxxxxxxxx"}, {SCHAR, "xxxxxxxxxx"}, {VECTORS, "xxxxxxxxxx"},
        {NOTHING, "xxxxxxxxxx"},
    };
    size_t i;
    int d;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (d = 0; d < TENSOR_DTYPE_COUNT; d++)
            CHECK_MSG(taken(cases[i].type, (tensor_dtype_t)d) == (cases[i].fits[d] == 'x'), "type %d, %s",
                      cases[i].type, tensor_dtype_name((tensor_dtype_t)d));
}

static void data_texts(void) {
    const int four[] = {1, 2, 3, 4};
    double two[] = {1, 2};
    float *rows[] = {floats, floats};
    tensor_t *x = tensor_ones(4);
    CHECK_POISON(tensor_from(four, TENSOR_I64, 4), TENSOR_ERR_DTYPE,
                 "from: data is int (4 bytes an element), dtype i64 wants int64_t (8)");
    CHECK_POISON(tensor_from(four, TENSOR_F32, 4), TENSOR_ERR_DTYPE,
                 "data is int (4 bytes an element), dtype f32 wants float (4)");
    CHECK_POISON(tensor_from(two, TENSOR_F32, 2), TENSOR_ERR_DTYPE,
                 "data is double (8 bytes an element), dtype f32 wants float (4)");
    CHECK_POISON(tensor_wrap(two, TENSOR_BOOL, 2), TENSOR_ERR_DTYPE, "wrap: data is double");
    CHECK_POISON(tensor_from(rows, TENSOR_F32, 2, 4), TENSOR_ERR_DTYPE, "data is an array of pointers");
    tensor_t *handle = tensor_ones(2, 3);
    CHECK_POISON(tensor_from(handle, TENSOR_F32, 4), TENSOR_ERR_DTYPE,
                 "from: data is a tensor; tensor_clone copies one");
    CHECK(tensor_copy_out(x, ints, sizeof(float) * 4) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "copy_out: data is int (4 bytes an element), dtype f32 wants float (4)");
    // The text names the call.
    tensor_from(two, TENSOR_F32, 2);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "traps.c:");
}

// An array that is too short is refused before it is read, where the compiler knows its size.
static void data_room(void) {
#if defined(__GNUC__) || defined(__clang__)
    float five[5] = {1, 2, 3, 4, 5};
    struct { float before, rest[3]; } s = {1, {2, 3, 4}};
    CHECK_POISON(tensor_from(five, TENSOR_F32, 6), TENSOR_ERR_SHAPE,
                 "from: data has 20 bytes, shape [6] of dtype f32 needs 24 at traps.c:");
    CHECK_POISON(tensor_from(five + 1, TENSOR_F32, 5), TENSOR_ERR_SHAPE, "data has 16 bytes");
    CHECK_POISON(tensor_wrap(five, TENSOR_F32, 2, 3), TENSOR_ERR_SHAPE,
                 "wrap: data has 20 bytes, shape [2,3]");
    CHECK(tensor_item(tensor_sum(tensor_from(five, TENSOR_F32, 5))) == 15);
    CHECK(tensor_item(tensor_sum(tensor_from(five + 1, TENSOR_F32, 4))) == 14);
    CHECK(tensor_item(tensor_sum(tensor_from(&s.before, TENSOR_F32, 4))) == 10);    // one object
    CHECK(tensor_numel(tensor_from(five, TENSOR_F32, 0, 6)) == 0);
    int calls = 0;
    float *const table[] = {five, five};
    CHECK(tensor_item(tensor_sum(tensor_from(table[calls++], TENSOR_F32, 2))) == 3 && calls == 1);
#else
    printf("skipped 9 tests of arrays that are too short: the compiler does not say their sizes\n");
#endif
}

static void data_forms(void) {
    float grid[2][3] = {{1, 2, 3}, {4, 5, 6}}, cube[2][1][2] = {{{1, 2}}, {{3, 4}}};
    const double line[2] = {1, 2};
    const int table[2][2] = {{1, 2}, {3, 4}};
    const void *raw = grid;
    int64_t dims[] = {2, 3};
    float *p = grid[0];
    char text[] = "abcd";
    int square[2][2] = {{1, 2}, {3, 4}};
    CHECK(tensor_item(tensor_sum(tensor_from(grid, TENSOR_F32, 2, 3))) == 21);
    CHECK(tensor_item(tensor_sum(tensor_from(cube, TENSOR_F32, 2, 1, 2))) == 10);
    CHECK(tensor_item(tensor_sum(tensor_from(line, TENSOR_F64, 2))) == 3);
    CHECK(tensor_item_i64(tensor_sum(tensor_from(table, TENSOR_I32, 2, 2))) == 10);
    CHECK(tensor_item(tensor_sum(tensor_from(raw, TENSOR_F32, 6))) == 21);
    CHECK(tensor_item(tensor_sum(tensor_from(&grid[0][1], TENSOR_F32, 2))) == 5);
    CHECK(tensor_item(tensor_sum(tensor_from(p++, TENSOR_F32, 3))) == 6 && p == &grid[0][1]);
    CHECK(tensor_item(tensor_sum(tensor_from_n(grid, TENSOR_F32, dims, 2))) == 21);
    CHECK(tensor_item_i64(tensor_sum(tensor_from("\1\2", TENSOR_U8, 2))) == 3);
    CHECK(tensor_item_i64(tensor_sum(tensor_from(text, TENSOR_U8, 4))) == 'a' + 'b' + 'c' + 'd');
    CHECK(tensor_numel(tensor_from((vec3 *)vectors, TENSOR_F32, 4, 3)) == 12);
    CHECK(tensor_numel(tensor_from(NULL, TENSOR_F32, 0)) == 0);
    CHECK_POISON(tensor_from(NULL, TENSOR_F32, 2), TENSOR_ERR_SHAPE, "data is NULL");
    CHECK_POISON(tensor_from(square, TENSOR_F32, 2, 2), TENSOR_ERR_DTYPE, "data is int");
    CHECK_POISON(tensor_from(table, TENSOR_I64, 2, 2), TENSOR_ERR_DTYPE, "data is int");
}

// ---- a number for a tensor ----

static void numbers(void) {
    tensor_t *x = tensor_ones(16), *one = (tensor_t *)(uintptr_t)1, *page = (tensor_t *)(uintptr_t)4095;
    tensor_t *list[2], *none = NULL;
    list[0] = x;
    list[1] = one;
#if defined(__unix__) || defined(__APPLE__) || defined(_WIN32)
    CHECK_POISON(tensor_add(x, one), TENSOR_ERR_OWNER, "add: argument b is the number 1, not a tensor");
    CHECK_POISON(tensor_add(page, x), TENSOR_ERR_OWNER, "add: argument a is the number 4095");
    CHECK_POISON(tensor_matmul(x, one), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_relu(one), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_where(one, x, x), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_pow_scalar(one, 2), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_add_(x, one), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_cat_n(list, 2, 0), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_reshape(one, 4, 4), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_sum_dim(one, 0, 0), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_linear(x, one, NULL), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_keep(one), TENSOR_ERR_OWNER, "keep: argument t is the number 1");
    CHECK(tensor_free(one) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "free: argument t is the number 1");
    CHECK(tensor_backward(one) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "is the number 1");
    CHECK(tensor_item(one) != tensor_item(one));
    CHECK_ERROR(TENSOR_ERR_OWNER, "is the number 1");
    CHECK(tensor_ndim(one) == 0 && tensor_numel(one) == 0 && !tensor_is_poison(one));
    CHECK(tensor_data(one) == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_conv2d(one, x, NULL), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_mse_loss(x, one), TENSOR_ERR_OWNER, "is the number 1");
    CHECK_POISON(tensor_layer_norm(x, 1, one), TENSOR_ERR_OWNER, "is the number 1");
#else
    (void)one, (void)page;
    printf("numbers: no page is known to be unmapped here; not tested\n");
#endif
    // NULL has the text it had.
    CHECK_POISON(tensor_add(x, NULL), TENSOR_ERR_OWNER, "add: argument b is NULL");
    CHECK_POISON(tensor_add(x, none), TENSOR_ERR_OWNER, "add: argument b is NULL");
    CHECK(tensor_free(NULL) == 0);
}

// ---- a function for a module ----

static void modules(void) {
    union { nn_module_t *(*function)(void); nn_module_t *module; } u;
    nn_module_t *net = nn_sequential(nn_linear(2, 3)), *list[3], *none = NULL, zeroed, noise;
    u.function = nn_relu;
    list[0] = nn_linear(2, 2);
    list[1] = u.module;
    list[2] = nn_tanh();
    CHECK(nn_append(net, u.module) == net);
    CHECK_ERROR(TENSOR_ERR_POISONED, "the child is not a module (a function without its parentheses?)");
    CHECK_POISON(nn_forward(net, tensor_ones(1, 2)), TENSOR_ERR_POISONED, "failed when it was made");
    nn_free(net);
    net = nn_sequential_n(list, 3);
    CHECK_ERROR(TENSOR_ERR_POISONED, "sequential: argument 2 is not a module");
    nn_free(net);
    CHECK_POISON(nn_forward(u.module, tensor_ones(1, 2)), TENSOR_ERR_POISONED, "is not a module");
    CHECK(nn_free(u.module) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "free: the argument is not a module");
    memset(&zeroed, 0, sizeof zeroed);
    memset(&noise, 0x5A, sizeof noise);
    CHECK_POISON(nn_forward(&zeroed, tensor_ones(1, 2)), TENSOR_ERR_POISONED, "was never initialised");
    CHECK_POISON(nn_forward(&noise, tensor_ones(1, 2)), TENSOR_ERR_POISONED, "is not a module");
    CHECK(nn_free(&zeroed) == 0 && nn_free(none) == 0);
    CHECK_POISON(nn_forward(NULL, tensor_ones(1, 2)), TENSOR_ERR_POISONED, "the module is NULL");
    // Freed ones have the text they had.
    net = nn_relu();
    CHECK(nn_free(net) == 0 && nn_free(net) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed already");
    CHECK_POISON(nn_forward(net, tensor_ones(1)), TENSOR_ERR_POISONED, "was freed");
}

// ---- a dtype or a list among the sizes, where the compiler does not refuse it ----

static void sizes(void) {
    int (*volatile count)(void) = tensor__size_is_dtype;
    int (*volatile length)(void) = tensor__size_is_list;
    int64_t dims[] = {2, 3, TENSOR_I64};
    CHECK_POISON(tensor_zeros_n(dims, count(), TENSOR_F32), TENSOR_ERR_DTYPE, "a dtype is among the sizes");
    CHECK_POISON(tensor_zeros_n(dims, length(), TENSOR_F32), TENSOR_ERR_SHAPE, "write tensor_zeros(2, 3)");
    CHECK(tensor_ndim(tensor_zeros(2, 3)) == 2 && tensor_ndim(tensor_full(1, 2, 3)) == 2);
    CHECK(tensor_ndim(tensor_zeros(TENSOR_MAX_DIMS, (int)TENSOR_DTYPE_COUNT)) == 2);
}

// ---- a loop without a reset ----

static int notes;
static char note[400];
static void hear(int code, const char *text, void *user) {
    (void)user;
    CHECK_MSG(code == TENSOR_OK, "code %d: %s", code, text);
    notes++;
    snprintf(note, sizeof note, "%s", text);
}

static void growth(void) {
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_scope_t scope;
    tensor_t *x;
    int k, turn;
    tensor_set_error_handler(hear, NULL);
    // With a reset in each turn nothing is said, however long the loop.
    scope = tensor_scope_begin();
    x = tensor_keep(tensor_ones(1));
    for (k = 0; k < 300000; k++) {
        tensor_mul(x, x);
        tensor_scope_reset(scope);
    }
    CHECK(notes == 0);
    // Nor while fewer than 131072 live.
    for (turn = 0; turn < 2; turn++) {
        for (k = 0; k < 131000; k++) tensor_detach(x);
        CHECK(notes == 0);
        tensor_scope_reset(scope);
    }
    // Then once, with the line that most come from.
    for (turn = 0; turn < 2; turn++) {
        for (k = 0; k < 70000; k++) {
            tensor_detach(x);
            tensor_detach(x);
            if (k % 3 == 0) tensor_detach(x);
        }
        CHECK(notes == 1);
        tensor_scope_reset(scope);
    }
    CHECK_MSG(strstr(note, " tensors live in one scope, ") != NULL, "%s", note);
    CHECK_MSG(strncmp(note, "131072 ", 7) == 0, "%s", note);
    CHECK_MSG(strstr(note, " made by ") != NULL && strstr(note, "traps.c:") != NULL, "%s", note);
    CHECK(tensor_ok());
    tensor_free(x);
    tensor_scope_end(scope);
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);
}

int main(void) {
    RUN(data_types);
    RUN(data_texts);
    RUN(data_room);
    RUN(data_forms);
    RUN(numbers);
    RUN(modules);
    RUN(sizes);
    RUN(growth);
    return test_report();
}

// tested.c - weight files that test themselves: written here and by PyTorch, run on load, refused with the
// tensor, the difference and the tolerance where anything has changed; what a refusal leaves as it was
#include "test.h"

static const char path[] = "tested.safetensors";

static nn_module_t *image_net(void) {
    return nn_sequential(nn_conv2d(1, 3, 3, .padding = 1), nn_batch_norm2d(3), nn_relu(), nn_flatten(),
                         nn_dropout(0.5), nn_linear(48, 5));
}

// tests/fixtures/layers.py: the output in the file is PyTorch's.
static void pytorchs_file(void) {
    static const char theirs[] = "tests/fixtures/kit/tested.safetensors";
    nn_module_t *net = image_net(), *other = image_net();
    CHECK_MSG(nn_load_tested(theirs, net) == 0, "%s", tensor_error_text());
    CHECK(net->training && nn_get_child(net, "4")->training);
    CHECK(nn_load(theirs, other) == 0 && tensor_equal(nn_get(other, "5.weight"), nn_get(net, "5.weight")));
    nn_safetensors_t *r = nn_safetensors_open(theirs);
    CHECK(nn_self_test(r, net) == 0);
    tensor_add_scalar_(tensor_select(nn_get(nn_requires_grad_(net, 0), "5.bias"), 0, 3), 0.25);
    CHECK(nn_self_test(r, net) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT,
                "test/output [2,5] differs by up to 0.25, the tolerance is 1e-05: element ");
    CHECK(nn_load_tested(theirs, net) == 0 && nn_self_test(r, net) == 0);
    // In f64, from where it was: what f32 left out is far below the tolerance.
    CHECK(nn_to(net, TENSOR_F64) == 0 && nn_self_test(r, net) == 0);
    nn_safetensors_close(r);
    nn_free(net);
    nn_free(other);
}

static void saved_here(void) {
    nn_module_t *net = image_net(), *other = image_net();
    nn_forward(net, tensor_randn(6, 1, 4, 4));
    nn_eval(nn_get_child(net, "1"));
    tensor_t *x = tensor_randn(2, 1, 4, 4);
    CHECK(nn_save_tested(path, net, 0, x) == 0);
    CHECK(net->training && !nn_get_child(net, "1")->training && nn_get_child(net, "4")->training);
    CHECK(nn_load_tested(path, other) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    CHECK_TEXT(nn_safetensors_metadata(r, "test.inputs"), "1");
    CHECK(tensor_equal(nn_safetensors_get(r, "test/input0"), x));
    CHECK(tensor_equal(nn_safetensors_get(r, "test/output"), nn_forward(nn_eval(net), x)));
    nn_safetensors_close(r);
    // A transposed input is written as its elements.
    CHECK(nn_save_tested(path, net, 1e-6, tensor_transpose(x, 2, 3)) == 0);
    CHECK(nn_load_tested(path, other) == 0);
    remove(path);
    nn_free(net);
    nn_free(other);
}

// Another activation has the same names and shapes; only the output says so. The weights stay as they were.
static void another_net(void) {
    nn_module_t *net = nn_sequential(nn_linear(4, 8), nn_gelu(), nn_linear(8, 2));
    nn_module_t *other = nn_sequential(nn_linear(4, 8), nn_relu(), nn_linear(8, 2));
    tensor_t *before = tensor_clone(nn_get(other, "2.weight"));
    CHECK(nn_save_tested(path, net, 1e-6, tensor_randn(3, 4)) == 0);
    CHECK(nn_load_tested(path, other) == TENSOR_ERR_FORMAT);
    CHECK(strstr(tensor_error_text(), "tested.safetensors\": test/output [3,2] differs by up to ") != NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "the tolerance is 1e-06");
    CHECK(tensor_equal(nn_get(other, "2.weight"), before) && tensor_requires_grad(nn_get(other, "2.weight")));
    CHECK(nn_load(path, other) == 0 && !tensor_equal(nn_get(other, "2.weight"), before));
    // A shape that is another one before the test.
    nn_module_t *wide = nn_sequential(nn_linear(4, 9), nn_gelu(), nn_linear(9, 2));
    CHECK(nn_load_tested(path, wide) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "of another shape");
    // And one that the test finds.
    nn_module_t *flat = nn_sequential(nn_linear(4, 8), nn_gelu(), nn_linear(8, 2), nn_flatten_dims(0, 1));
    CHECK(nn_load_tested(path, flat) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "test/output is [3,2], the module gives [6]");
    // A forward that fails says where.
    nn_module_t *broken = nn_sequential(nn_linear(4, 8), nn_unflatten(1, 3, 3), nn_linear(8, 2));
    CHECK(nn_load_tested(path, broken) != 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "unflatten");
    remove(path);
    nn_module_t *all[] = {net, other, wide, flat, broken};
    for (int i = 0; i < 5; i++) {
        nn_free(all[i]);
    }
}

// Options of nn_load; several inputs, one of them left out.
static void options_and_inputs(void) {
    nn_module_t *net = nn_sequential(nn_linear(3, 4)), *whole = nn_sequential(net);
    tensor_t *mask = tensor_zeros(5, 5);
    CHECK(nn_save_tested(path, whole, 1e-6, tensor_randn(2, 3)) == 0);
    nn_module_t *part = nn_sequential(nn_linear(3, 4));
    CHECK(nn_load_tested(path, part, .prefix = "0.") == 0);
    CHECK(tensor_equal(nn_get(part, "0.weight"), nn_get(net, "0.weight")));
    static const nn_rename_t away[1] = {{"0.", ""}};
    CHECK(nn_load_tested(path, part, .renames = away) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "load_tested: nrenames is 0 and renames is a list");
    CHECK(nn_load_tested(path, part, .renames = away, .nrenames = 1) == 0);
    nn_module_t *encoder = nn_transformer_encoder_layer(8, 2, .feedforward = 16);
    nn_module_t *again = nn_transformer_encoder_layer(8, 2, .feedforward = 16);
    tensor_t *pad = tensor_zeros_of(TENSOR_BOOL, 2, 5);
    tensor_fill_(tensor_select(pad, 1, 4), 1);
    CHECK(nn_save_tested(path, encoder, 1e-5, tensor_randn(5, 2, 8), NULL, pad) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    CHECK_TEXT(nn_safetensors_metadata(r, "test.inputs"), "3");
    CHECK(nn_load_tested(path, again) == 0);
    CHECK(nn_save_tested(path, encoder, 1e-5, tensor_randn(5, 2, 8), mask) == 0);
    CHECK(nn_load_tested(path, again) == 0);
    nn_safetensors_close(r);
    remove(path);
    nn_module_t *all[] = {whole, part, encoder, again};
    for (int i = 0; i < 4; i++) {
        nn_free(all[i]);
    }
}

// Numbers that are none: equal NaN and infinities agree, others differ by infinity. Integers count, too.
static tensor_t *odd(nn_module_t *m, tensor_t *x) {
    return tensor_div(x, nn_get(m, "by"));
}

static tensor_t *best(nn_module_t *m, tensor_t *x) {
    return tensor_argmax_dim(tensor_mul(x, nn_get(m, "by")), 1, 0);
}

static void odd_numbers(void) {
    nn_module_t m, n;
    float zeros[] = {0, 1, 0}, x[] = {0, 1, 2};
    nn_module_init(&m, "Odd", odd, NULL);
    nn_module_init(&n, "Best", best, NULL);
    nn_parameter(&m, "by", tensor_from(zeros, TENSOR_F32, 3));
    nn_parameter(&n, "by", tensor_from(x, TENSOR_F32, 3));
    CHECK(nn_save_tested(path, &m, 1e-3, tensor_from(x, TENSOR_F32, 3)) == 0);
    CHECK(nn_load_tested(path, &m) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_fill_(nn_get(&m, "by"), 1);
    tensor_scope_end(scope);
    CHECK(nn_self_test(r, &m) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "differs by up to inf");
    nn_safetensors_close(r);
    CHECK(nn_save_tested(path, &n, 0, tensor_randn(4, 3)) == 0 && nn_load_tested(path, &n) == 0);
    r = nn_safetensors_open(path);
    CHECK(tensor_dtype(nn_safetensors_get(r, "test/output")) == TENSOR_I64);
    nn_safetensors_close(r);
    remove(path);
    nn_free(&m);
    nn_free(&n);
}

static void misuse(void) {
    nn_module_t *net = nn_sequential(nn_linear(3, 4));
    tensor_t *x = tensor_randn(2, 3), *many[65] = {x};
    CHECK(nn_save_tested(path, net, -1, x) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "tolerance must be >= 0 (got -1)");
    CHECK(nn_save_tested(path, net, (double)NAN, x) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "tolerance");
    CHECK(nn_save_tested_n(path, net, 0, NULL, 0) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "0 inputs");
    CHECK(nn_save_tested_n(path, net, 0, many, 65) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "65 inputs, takes 1..64");
    CHECK(nn_save_tested(path, net, 0, tensor_zeros(0, 3)) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "no elements to compare");
    CHECK(nn_save_tested(path, net, 0, tensor_zeros(2, 7)) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "linear");
    CHECK(nn_save_tested(path, NULL, 0, x) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(fopen(path, "rb") == NULL);
    // A file without a test; one whose test is not possible; no reader.
    CHECK(nn_save(path, net) == 0 && nn_load_tested(path, net) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "has no test; nn_save_tested writes one");
    CHECK(nn_self_test(NULL, net) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "reader");
    CHECK(nn_load_tested("no such file", net) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, NULL);
    static const struct {
        const char *inputs;
        double tolerance;
        int dtype;
    } bad[] = {{"0", 1, TENSOR_F64}, {"65", 1, TENSOR_F64}, {"99999999999999999999", 1, TENSOR_F64},
               {"x", 1, TENSOR_F64}, {"1", -1, TENSOR_F64}, {"1", NAN, TENSOR_F64},
               {"1", 1, TENSOR_F32}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *names[] = {"test/input0", "test/output", "test/tolerance"};
        tensor_t *t[] = {x, x, tensor_full_n(NULL, 0, bad[i].tolerance, (tensor_dtype_t)bad[i].dtype)};
        nn_metadata_t meta[] = {{"test.inputs", bad[i].inputs}};
        tensor_t *file = nn_safetensors_format(names, t, 3, meta, 1);
        nn_safetensors_t *r = nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file));
        CHECK(nn_self_test(r, net) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT, "test/tolerance must be an f64 >= 0, test.inputs in 1..64");
        nn_safetensors_close(r);
    }
    // A tensor named test/.. is unexpected in a file that has no test.
    const char *names[] = {"0.weight", "0.bias", "test/input0"};
    tensor_t *t[] = {nn_get(net, "0.weight"), nn_get(net, "0.bias"), x};
    CHECK(nn_safetensors_write(path, names, t, 3, NULL, 0) == 0 && nn_load(path, net) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "1 unexpected [test/input0]");
    remove(path);
    nn_free(net);
}

int main(void) {
    RUN(pytorchs_file);
    RUN(saved_here);
    RUN(another_net);
    RUN(options_and_inputs);
    RUN(odd_numbers);
    RUN(misuse);
    return test_report();
}

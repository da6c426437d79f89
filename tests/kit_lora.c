// kit_lora.c - examples/kit/lora.h: outputs, gradients and a training of PyTorch (tests/fixtures/layers.py);
// merged is unmerged; what is frozen, saved and loaded
#include "test.h"

#define KIT_LORA_IMPLEMENTATION
#include "../examples/kit/lora.h"

static const char path[] = "lora.safetensors";

static nn_module_t *plain_net(void) {
    return nn_sequential(nn_linear(5, 6), nn_tanh(), nn_linear(6, 3));
}

static tensor_t *from(nn_safetensors_t *r, const char *what, const char *name) {
    char text[80];
    snprintf(text, sizeof text, "lora/%s%s", what, name);
    return nn_safetensors_get(r, text);
}

static double apart(tensor_t *a, tensor_t *b) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    double d = tensor_item(tensor_max(tensor_abs(tensor_sub(a, b))));
    tensor_scope_end(scope);
    return d;
}

// The net of the fixture with its adapters, in f64.
static nn_module_t *fixture_net(nn_safetensors_t *r) {
    static const char *const names[] = {"0.lora_A", "0.lora_B", "2.lora_A", "2.lora_B"};
    const kit_lora_t how = {2, 3, 0};
    char weight[40];
    nn_module_t *net = plain_net();
    nn_to(net, TENSOR_F64);
    CHECK(nn_load("tests/fixtures/kit/layers.safetensors", net, .partial = 1, .prefix = "lora/net.") == 0);
    CHECK_MSG(kit_lora(net, "*", how) == 2, "%s", tensor_error_text());
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (int i = 0; i < 4; i++) {
        snprintf(weight, sizeof weight, "%s.weight", names[i]);
        CHECK(tensor_dtype(nn_get(net, weight)) == TENSOR_F64);
        tensor_copy_(nn_get(net, weight), from(r, "", names[i]));
    }
    tensor_scope_end(scope);
    return net;
}

static void pytorch(void) {
    nn_safetensors_t *r = nn_safetensors_open("tests/fixtures/kit/layers.safetensors");
    nn_module_t *net = fixture_net(r);
    tensor_t *x = tensor_requires_grad_(from(r, "", "x"), 1), *y = from(r, "", "y");
    tensor_t *out = nn_forward(net, x), *losses = from(r, "", "losses");
    CHECK_NEAR(apart(out, from(r, "", "out")), 0, 1e-14);
    tensor_backward(tensor_mse_loss(out, y));
    CHECK_NEAR(apart(tensor_grad(x), from(r, "grad.", "x")), 0, 1e-15);
    nn_named_list_t list = nn_named_parameters(net);
    int trained = 0;
    for (int64_t i = 0; i < list.count; i++) {
        tensor_t *t = list.item[i].tensor;
        char name[20];
        CHECK_MSG(tensor_requires_grad(t) == kit_lora__is_adapter(list.item[i].name), "%s",
                  list.item[i].name);
        if (!tensor_requires_grad(t)) {
            CHECK(tensor_grad(t) == NULL);
            continue;
        }
        snprintf(name, sizeof name, "%.8s", list.item[i].name);
        CHECK_NEAR(apart(tensor_grad(t), from(r, "grad.", name)), 0, 1e-15);
        trained++;
    }
    CHECK(trained == 4);
    tensor_t *base = tensor_clone(nn_get(net, "0.weight"));
    nn_optimizer_t *opt = nn_adamw(net, .lr = 0.02);
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 10; step++, tensor_scope_reset(scope)) {
        nn_zero_grad(opt);
        tensor_t *loss = tensor_mse_loss(nn_forward(net, tensor_detach(x)), y);
        tensor_backward(loss);
        nn_step(opt);
        CHECK_NEAR(tensor_item(loss), tensor_item(tensor_select(losses, 0, step)), 1e-12);
    }
    tensor_scope_end(scope);
    CHECK(tensor_equal(base, nn_get(net, "0.weight")));
    nn_optimizer_free(opt);
    nn_safetensors_close(r);
    nn_free(net);
}

static void merged(void) {
    nn_safetensors_t *r = nn_safetensors_open("tests/fixtures/kit/layers.safetensors");
    nn_module_t *net = fixture_net(r), *plain = plain_net();
    tensor_t *x = from(r, "", "x"), *base = tensor_clone(nn_get(net, "0.weight"));
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *before = nn_forward(net, x);
    nn_to(plain, TENSOR_F64);
    CHECK(kit_lora_save_merged(path, net) == 0 && tensor_equal(base, nn_get(net, "0.weight")));
    CHECK_MSG(nn_load(path, plain) == 0, "%s", tensor_error_text());
    CHECK_NEAR(apart(nn_forward(plain, x), before), 0, 1e-14);
    for (int twice = 0; twice < 2; twice++) {
        CHECK(kit_lora_merge(net) == 0);
        CHECK(apart(base, nn_get(net, "0.weight")) > 0.01);
        CHECK_NEAR(apart(nn_forward(net, x), before), 0, 1e-14);
        CHECK_NEAR(apart(nn_get(plain, "2.weight"), nn_get(net, "2.weight")), 0, 0);
    }
    CHECK(kit_lora_save_merged(path, net) == 0 && nn_load(path, plain) == 0);
    CHECK_NEAR(apart(nn_forward(plain, x), before), 0, 1e-14);
    for (int twice = 0; twice < 2; twice++) {
        CHECK(kit_lora_unmerge(net) == 0);
        CHECK_NEAR(apart(base, nn_get(net, "0.weight")), 0, 1e-15);
        CHECK_NEAR(apart(nn_forward(net, x), before), 0, 1e-14);
    }
    tensor_scope_end(scope);
    remove(path);
    nn_safetensors_close(r);
    nn_free(net);
    nn_free(plain);
}

// A new adapter changes nothing; it learns what the frozen net did not know; only it is in the file.
static void fine_tune(void) {
    const kit_lora_t how = {4, 8, 0.1};
    nn_module_t *net =
        nn_sequential(nn_linear(5, 32), nn_tanh(), nn_linear(32, 32), nn_tanh(), nn_linear(32, 3));
    nn_module_t *twin = nn_clone(net);
    tensor_t *x = tensor_randn(64, 5), *y = nn_forward(net, tensor_flip(x, 1)), *before = nn_forward(net, x);
    y = tensor_detach(y);
    CHECK(kit_lora(net, "?", how) == 3 && kit_lora(twin, "*", how) == 3);
    CHECK(tensor_equal(nn_forward(net, x), before));
    CHECK(nn_num_parameters(net) ==
          5 * 32 + 32 + 32 * 32 + 32 + 32 * 3 + 3 + 4 * (5 + 32 + 32 + 32 + 32 + 3));
    nn_optimizer_t *opt = nn_adamw(net, .lr = 0.01);
    double first = 0, last = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 300; step++, tensor_scope_reset(scope)) {
        nn_zero_grad(opt);
        tensor_t *loss = tensor_mse_loss(nn_forward(net, x), y);
        tensor_backward(loss);
        nn_step(opt);
        last = tensor_item(loss);
        first = step == 0 ? last : first;
    }
    tensor_scope_end(scope);
    CHECK_MSG(last < 0.25 * first, "loss from %g to %g", first, last);
    // Dropout acts on the adapter alone, in training alone.
    CHECK(!tensor_equal(nn_forward(net, x), nn_forward(net, x)));
    nn_eval(net);
    nn_eval(twin);
    tensor_t *after = nn_forward(net, x);
    CHECK(tensor_equal(after, nn_forward(net, x)) && !tensor_equal(after, nn_forward(twin, x)));
    CHECK(kit_lora_save(path, net) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    CHECK(nn_safetensors_count(r) == 6 && strstr(nn_safetensors_name(r, 0), "lora_") != NULL);
    nn_safetensors_close(r);
    CHECK(kit_lora_load(path, twin) == 0 && tensor_equal(after, nn_forward(twin, x)));
    remove(path);
    nn_optimizer_free(opt);
    nn_free(net);
    nn_free(twin);
}

// A pointer that a program holds, attention, a net in f16, and a second call that leaves the first adapters.
static void elsewhere(void) {
    const kit_lora_t how = {0, 0, 0};
    nn_module_t *layer =
        nn_transformer_encoder_layer(16, 4, .feedforward = 32, .dropout = (double)TENSOR_ZERO);
    nn_module_t *held = nn_get_child(layer, "linear1");
    CHECK(kit_lora(layer, "linear?", how) == 2);
    CHECK(kit_lora(layer, "self_attn.out_proj", how) == 1);
    CHECK(tensor_requires_grad(nn_get(layer, "linear1.lora_A.weight")));
    CHECK(!tensor_requires_grad(nn_get(layer, "self_attn.in_proj_weight")));
    CHECK(nn_get_child(layer, "linear1") == held && tensor_size(nn_get(held, "lora_A.weight"), 0) == 8);
    tensor_t *x = tensor_randn(3, 2, 16), *y = nn_forward(layer, x);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_normal_(nn_get(layer, "self_attn.out_proj.lora_B.weight"), 0, 0.1);
    tensor_scope_end(scope);
    CHECK(apart(nn_forward(layer, x), y) > 1e-3);
    y = nn_forward(layer, x);
    CHECK(kit_lora_merge(layer) == 0);
    CHECK_NEAR(apart(nn_forward(layer, x), y), 0, 1e-5);
    nn_module_t *half = nn_sequential(nn_linear(4, 4));
    CHECK(nn_to(half, TENSOR_F16) == 0 && kit_lora(half, "0", how) == 1);
    CHECK(tensor_dtype(nn_get(half, "0.lora_B.weight")) == TENSOR_F16);
    CHECK(tensor_dtype(nn_forward(half, tensor_to(tensor_randn(2, 4), TENSOR_F16))) == TENSOR_F16);
    nn_free(layer);
    nn_free(half);
}

static void misuse(void) {
    const kit_lora_t how = {2, 2, 0}, negative = {-1, 2, 0}, often = {2, 2, 1.5};
    nn_module_t *net = nn_sequential(nn_linear(4, 3), nn_relu(), nn_linear(3, 2));
    CHECK(kit_lora(net, "1", how) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "no linear");
    CHECK(tensor_requires_grad(nn_get(net, "0.weight")));
    CHECK(kit_lora(net, "*", negative) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "rank must be >= 1");
    CHECK(kit_lora(net, "*", often) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "dropout in 0..1");
    CHECK(kit_lora(net, NULL, how) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "kit_lora: the pattern is NULL");
    CHECK(kit_lora(NULL, "*", how) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(kit_lora(net, "2", how) == 1 && kit_lora(net, "*", how) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "\"2\" has an adapter already");
    nn_module_t *other = nn_sequential(nn_weight_norm(nn_linear(4, 3)), nn_linear(3, 2));
    CHECK(kit_lora(other, "*", how) == 1); // its weight is not a parameter of the linear
    CHECK(kit_lora_save(path, net) == 0 && kit_lora_load(path, other) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "not the adapters of this net");
    CHECK(kit_lora_load("no such file", net) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, NULL);
    CHECK(nn_clone(net) == NULL);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "LoRA has no clone function");
    remove(path);
    nn_free(net);
    nn_free(other);
}

int main(void) {
    RUN(pytorch);
    RUN(merged);
    RUN(fine_tune);
    RUN(elsewhere);
    RUN(misuse);
    return test_report();
}

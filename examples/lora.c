// lora.c - a net that knows one function is taught another by adapters of 3 % of its parameters (LoRA)
//
// It learns sin(3 x); then its weights are frozen, and adapters of rank 1 in its hidden layer learn
// sin(3 x + 1). The file of the adapters is read into another copy of the first net, and a file of the merged
// net tests itself when it is loaded.
//
// Build: make build/lora && build/lora
// Output:
//   =======================================================================================================
//   Layer (type:depth-idx)                Output Shape                  Param #     Mult-Adds         Bytes
//   =======================================================================================================
//   Sequential                            [128, 1]                           --            --           512
//     Linear: 1-1                         [128, 64]                         128         8,192        32,768
//     Tanh: 1-2                           [128, 64]                          --            --        32,768
//     Linear: 1-3                         [128, 64]                       4,160       524,288        32,768
//     Tanh: 1-4                           [128, 64]                          --            --        32,768
//     Linear: 1-5                         [128, 1]                           65         8,192           512
//   =======================================================================================================
//   Total params:                     4,353
//   Trainable params:                 4,353
//   Non-trainable params:                --
//   Total mult-adds:                540,672
//   =======================================================================================================
//   Input size (MB):                       0.00
//   Forward/backward pass size (MB):       0.26
//   Params and buffers size (MB):          0.02
//   Estimated Total Size (MB):             0.28
//   =======================================================================================================
//   the other function is learnt
//   the copy gives the same
//   the merged file works
//   without adapters, it gives the same
#include "tensor_nn.h"

#include <stdio.h>

#define KIT_LORA_IMPLEMENTATION
#include "kit/lora.h"
#define KIT_SUMMARY_IMPLEMENTATION
#include "kit/summary.h"

static nn_module_t *make_net(void) {
    return nn_sequential(nn_linear(1, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 1));
}

// Trains what is not frozen.   -> the last loss
static double train(nn_module_t *net, tensor_t *x, tensor_t *y, int steps, double lr) {
    nn_optimizer_t *opt = nn_adam(net, .lr = lr);
    double last = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps; step++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_mse_loss(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        last = tensor_item(loss);
    }
    tensor_scope_end(scope);
    nn_optimizer_free(opt);
    return last;
}

int main(void) {
    const kit_lora_t how = {1, 8, 0};
    const char *adapters = "lora_adapters.safetensors", *merged = "lora_merged.safetensors";
    tensor_manual_seed(1);
    tensor_t *x = tensor_unsqueeze(tensor_linspace(-1, 1, 128), 1);
    tensor_t *first = tensor_sin(tensor_mul_scalar(x, 3));
    tensor_t *second = tensor_sin(tensor_add_scalar(tensor_mul_scalar(x, 3), 1));
    nn_module_t *net = make_net();
    kit_summary_t *table = kit_summary(net, x);
    kit_summary_print(table);

    train(net, x, first, 500, 0.01);
    nn_module_t *copy = nn_clone(net);
    double before = tensor_item(tensor_mse_loss(nn_forward(net, x), second));
    kit_lora(net, "2", how);
    double after = train(net, x, second, 500, 0.01);
    printf("the other function is %s\n", after < 0.05 * before ? "learnt" : "not learnt");

    kit_lora_save(adapters, net);
    kit_lora(copy, "2", how);
    kit_lora_load(adapters, copy);
    tensor_t *y = nn_forward(net, x);
    printf("the copy gives %s\n", tensor_equal(nn_forward(copy, x), y) ? "the same" : "something else");

    nn_module_t *plain = make_net();
    kit_lora_save_merged(merged, net);
    nn_load(merged, plain);
    nn_save_tested(merged, plain, 1e-6, x);
    printf("the merged file %s\n", nn_load_tested(merged, plain) ? "does not work" : "works");
    int same = tensor_allclose(nn_forward(plain, x), y, 1e-5, 1e-5);
    printf("without adapters, it gives %s\n", same ? "the same" : "something else");
    remove(adapters);
    remove(merged);
    kit_summary_free(table);
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "lora: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

// 07_control_flow.c - a model is a C function: loops and branches that depend on the data, printf, a debugger
//
//   class Halving(nn.Module):
//     def forward(self, x):
//       while x.norm() > 1:                  # as many times as this x needs
//         x = self.fc(x) / 2
//         print(f'norm {x.norm():.3f}')
//       return x.tanh() if x.sum() > 0 else -x
//
// What ran is what is recorded: the backward pass goes through the loop as often as the forward pass did.
// A debugger stops in the middle of it: break at the printf, then "print x" (examples/debug/gdb_tensor.py).
//
// Build: make build/07_control_flow && build/07_control_flow
// Output:
//   norm 2.828
//   norm 1.414
//   norm 0.707
//   3 times, tanh: tensor([0.4621, 0.4621])
//   gradient of x: tensor([0.0983, 0.0983])
//   norm 0.707
//   1 times, minus: tensor([0.5000, 0.5000])
//   gradient of x: tensor([-0.5000, -0.5000])
#include "tensor_nn.h"

#include <stdio.h>

typedef struct halving_t {
    nn_module_t base, *fc;
    int times;
} halving_t;

static tensor_t *halving_forward(nn_module_t *m, tensor_t *x) {
    halving_t *self = (halving_t *)m;
    for (self->times = 0; tensor_item(tensor_norm(x)) > 1; self->times++) {
        x = tensor_div_scalar(nn_forward(self->fc, x), 2);
        printf("norm %.3f\n", tensor_item(tensor_norm(x)));
    }
    if (tensor_item(tensor_sum(x)) > 0) { return tensor_tanh(x); }
    return tensor_neg(x);
}

static void halving_init(halving_t *self) {
    nn_module_init(&self->base, "Halving", halving_forward, NULL);
    self->fc = nn_child(&self->base, "fc", nn_linear(2, 2, .no_bias = 1));
    nn_init_eye_(nn_get(self->fc, "weight"));
}

int main(void) {
    const float starts[2] = {4, -1};
    halving_t net;
    halving_init(&net);
    for (int i = 0; i < 2; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_requires_grad_(tensor_full(starts[i], 2), 1);
        tensor_t *y = nn_forward(&net.base, x);
        char text[100];
        tensor_to_string(tensor_detach(y), text, sizeof text);
        printf("%d times, %s: %s\n", net.times, starts[i] > 0 ? "tanh" : "minus", text);
        tensor_backward(tensor_sum(y));
        tensor_to_string(tensor_grad(x), text, sizeof text);
        printf("gradient of x: %s\n", text);
        tensor_scope_end(scope);
    }
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "07_control_flow: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

// 03_xor.c - the first program: a network learns XOR. It brings the implementation itself: one file is all.
//
// Build: cc -std=c99 -O2 -I. examples/03_xor.c -lm -pthread -o xor        (or: make build/03_xor)
// Output:
//   tensor([[0.0013],
//           [0.9986],
//           [0.9990],
//           [0.0014]], grad_fn=<sigmoid>)
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"

int main(void) {
    nn_module_t    *net = nn_sequential(nn_linear(2, 16), nn_tanh(), nn_linear(16, 1));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    float inputs[] = {0,0, 0,1, 1,0, 1,1}, labels[] = {0, 1, 1, 0};
    tensor_t *x = tensor_from(inputs, TENSOR_F32, 4, 2);
    tensor_t *y = tensor_from(labels, TENSOR_F32, 4, 1);

    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 500; step++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_binary_cross_entropy_with_logits(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
    }
    tensor_print(tensor_sigmoid(nn_forward(net, x)));
    tensor_scope_end(scope);
    return tensor_shutdown() != 0;      // frees everything; 1 after an error, whose text is on stderr
}

// export_step.c - a training step becomes one C file, for a device without a library, malloc or libm
//
// A step that learns XOR, forward, loss, backward and SGD, is written to build/xor_step.c, with the weights
// that the net has by then. A device can go on from there; here the captured step does.
//
//   cc -DXOR_STEP_VERIFY build/xor_step.c -o verify && ./verify      // repeats three steps and compares
//   make -C examples/mcu run                                         // trains on a Cortex-M4, in an emulator
//
// Build: make build/export_step && build/export_step
// Output:
//   build/xor_step.c has xor_step_init() and xor_step_step(in_x, in_y, out_loss, rates)
//   loss below 0.01 after 100 steps
#define TENSOR_BACKEND
#include "tensor_nn.h"
#define KIT_EXPORT_C_IMPLEMENTATION
#include "kit/export_c.h"

#include <stdio.h>

static nn_module_t *net;
static nn_optimizer_t *opt;
static tensor_t *x, *y, *loss;

static void step(void) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(opt);
    loss = tensor_binary_cross_entropy_with_logits(nn_forward(net, x), y);
    tensor_backward(loss);
    nn_step(opt);
    loss = tensor_scope_return(scope, tensor_detach(loss));
}

int main(void) {
    float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, labels[] = {0, 1, 1, 0};
    tensor_manual_seed(1);
    net = nn_sequential(nn_linear(2, 16), nn_tanh(), nn_linear(16, 1));
    opt = nn_sgd(net, .lr = 0.5, .momentum = 0.9);
    x = tensor_from(inputs, TENSOR_F32, 4, 2);
    y = tensor_from(labels, TENSOR_F32, 4, 1);
    step();                                             // makes the optimizer's states

    tensor_capture_begin(TENSOR_CPU);
    step();
    tensor_graph_t *g = tensor_capture_end();
    tensor_t *in[2] = {x, y}, *out[1] = {loss};
    const char *in_names[] = {"x", "y"}, *out_names[] = {"loss"};
    kit_export_t e = {"xor_step", in, 2, in_names, out, 1, out_names, 0, 3};
    if (tensor_graph_export_c(g, "build/xor_step.c", &e) == 0) {
        puts("build/xor_step.c has xor_step_init() and xor_step_step(in_x, in_y, out_loss, rates)");
    }
    for (int i = 5; i < 100; i++) { tensor_graph_replay(g); }
    printf("loss %s 0.01 after 100 steps\n", tensor_item(loss) < 0.01 ? "below" : "above");
    tensor_graph_free(g);
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "export_step: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

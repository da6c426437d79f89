// brain.c - the part of a game that is reloaded while the game runs: a network behind four plain functions
//
// Build: with -fPIC -shared -fvisibility=hidden, the implementation inside; see reload.c. BRAIN_RATE is what the
// programmer changed between two builds.
#if defined(_WIN32)
#define BRAIN_API __declspec(dllexport)
#else
#define BRAIN_API __attribute__((visibility("default")))
#endif
#include "brain.h"
#include "tensor_nn.h"

#ifndef BRAIN_RATE
#define BRAIN_RATE 0.01
#endif

static nn_module_t *net;
static nn_optimizer_t *opt;

// weights: what brain_save gave, or NULL.   -> 0, or the error's code
BRAIN_API int brain_open(const void *weights, size_t size) {
    tensor_manual_seed(3);
    net = nn_sequential(nn_linear(2, 32), nn_tanh(), nn_linear(32, 1));
    opt = nn_adam(net, .lr = BRAIN_RATE);
    if (weights && nn_load_memory(weights, size, net, 0)) { return tensor_error_code(); }
    return tensor_error_code();
}

// Learns xor for some steps.   -> the last loss
BRAIN_API double brain_learn(int steps) {
    float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, labels[] = {0, 1, 1, 0};
    double last = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps; step++, tensor_scope_reset(scope)) {
        tensor_t *x = tensor_from(inputs, TENSOR_F32, 4, 2), *y = tensor_from(labels, TENSOR_F32, 4, 1);
        tensor_t *loss = tensor_binary_cross_entropy_with_logits(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        last = tensor_item(loss);
    }
    tensor_scope_end(scope);
    return last;
}

// The weights as bytes in the caller's memory.   -> how many there are; nothing is written if room is too small
BRAIN_API size_t brain_save(void *to, size_t room) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *bytes = nn_save_memory(net);
    size_t size = (size_t)tensor_numel(bytes);
    if (to && size <= room && tensor_copy_out(bytes, to, size)) { size = 0; }
    tensor_scope_end(scope);
    return size;
}

// Everything of the library goes, its threads too: after this the code may be unloaded.
BRAIN_API int brain_close(void) {
    return tensor_shutdown();
}

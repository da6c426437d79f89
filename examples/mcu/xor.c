// xor.c - the library itself on a device without malloc, files, console and system: a net learns XOR
//
// All memory is the arena, static data and the stack. The last line but one is the sum of the bits of all
// losses, which a computer with TENSOR_ISA=scalar gives as well.
#define TENSOR_NO_THREADS
#define TENSOR_NO_STDIO
#define TENSOR_NO_CALL_SITES            // 30 KB less: errors do not name their lines
#define TENSOR_ISA scalar
#define TENSOR_MALLOC(bytes, alignment) NULL        // the arena is all there is
#define TENSOR_FREE(p, bytes, alignment) ((void)(p))
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"

void say(const char *text);             // startup.c; on a computer, stdio
unsigned stack_used(void);              // bytes

#ifndef ARENA
#define ARENA (36 * 1024)               // a computer with wider pointers takes four times as much
#endif
static unsigned char memory[ARENA];

static void say_number(const char *before, uint32_t value, const char *after) {
    char text[11] = "";
    int i = 10;
    do { text[--i] = (char)('0' + value % 10); } while ((value /= 10) != 0);
    say(before);
    say(&text[i]);
    say(after);
}

int main(void) {
    static const float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, labels[] = {0, 1, 1, 0};
    tensor_allocator_t arena = tensor_arena_allocator(memory, sizeof memory);
    tensor_set_allocator(&arena);

    tensor_manual_seed(1);
    nn_module_t *net = nn_sequential(nn_linear(2, 16), nn_tanh(), nn_linear(16, 1));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    tensor_t *x = tensor_from(inputs, TENSOR_F32, 4, 2);
    tensor_t *y = tensor_from(labels, TENSOR_F32, 4, 1);

    float first = 0, last = 0;
    uint32_t sum = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 500; step++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_binary_cross_entropy_with_logits(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);

        uint32_t bits;
        last = (float)tensor_item(loss);
        memcpy(&bits, &last, sizeof bits);
        sum = sum * 31 + bits;
        if (step == 0) { first = last; }
        if (step % 100 == 0) { say_number("10000 * loss: ", (uint32_t)(last * 1e4f), "\n"); }
    }
    tensor_scope_end(scope);
    if (!tensor_ok()) {
        say(tensor_error_text());
        say("\n");
    }
    say(last < 0.1f * first ? "the loss fell\n" : "the loss did not fall\n");
    say_number("sum of bits ", sum, "\n");
    say_number("memory: arena ", (uint32_t)tensor_memory_stats().reserved_bytes, " bytes, ");
    say_number("stack ", stack_used(), " bytes\n");
    return !(last < 0.1f * first);
}

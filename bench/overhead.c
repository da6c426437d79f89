// overhead.c [ROW REPEATS] - calls whose numbers cost nothing: bench/costs.sh counts what is left of them.
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define main char_gpt_main
#include "examples/char_gpt.c"
#undef main

enum { SCOPE = 64 };                    // ops per scope, as in a program's loop

static tensor_t *a, *b, *m, *w, *bias, *x, *y;
static nn_module_t *net;
static nn_optimizer_t *opt;
static job_t job;

static void call_add(void) { tensor_add(a, b); }
static void call_mul(void) { tensor_mul(a, b); }
static void call_expo(void) { tensor_exp(a); }
static void call_sum(void) { tensor_sum(a); }
static void call_argmax(void) { tensor_argmax_dim(m, 1, 0); }
static void call_matmul(void) { tensor_matmul(m, m); }
static void call_linear(void) { tensor_linear(m, w, bias); }
static void call_softmax(void) { tensor_softmax(m, 1); }
static void call_mse(void) { tensor_mse_loss(m, w); }
static void call_infer(void) { nn_forward(net, x); }
// 64 ops, products with a constant and tanh in turn, and their gradients.
static void call_chain(void) {
    tensor_t *t = a, *ones = tensor_ones(16);
    for (int i = 0; i < 32; i++) { t = tensor_tanh(tensor_mul(t, b)); }
    tensor_backward_with(t, ones, 0);
    tensor_set_grad(a, NULL);
}
static void call_mlp(void) {
    nn_zero_grad(opt);
    tensor_backward(tensor_mse_loss(nn_forward(net, x), y));
    nn_step(opt);
}
static void call_gpt(void) { job_step(&job); }

typedef struct row_t {
    const char *name;
    void (*run)(void);
    int recorded, scope;                // a, m and w require gradients; calls per scope
} row_t;
static const row_t rows[] = {
    {"add", call_add, 0, SCOPE},
    {"mul", call_mul, 0, SCOPE},
    {"exp", call_expo, 0, SCOPE},
    {"add_recorded", call_add, 1, SCOPE},
    {"mul_recorded", call_mul, 1, SCOPE},
    {"exp_recorded", call_expo, 1, SCOPE},
    {"sum", call_sum, 0, SCOPE},
    {"argmax", call_argmax, 0, SCOPE},
    {"matmul", call_matmul, 0, SCOPE},
    {"matmul_recorded", call_matmul, 1, SCOPE},
    {"linear", call_linear, 0, SCOPE},
    {"linear_recorded", call_linear, 1, SCOPE},
    {"softmax", call_softmax, 0, SCOPE},
    {"mse", call_mse, 0, SCOPE},
    {"mse_recorded", call_mse, 1, SCOPE},
    {"chain", call_chain, 1, 1},
    {"infer", call_infer, 0, 1},
    {"mlp", call_mlp, 0, 1},
    {"gpt", call_gpt, 0, 1},
};

int main(int argc, char **argv) {
    int i = 0, n = sizeof rows / sizeof rows[0];
    long repeats = argc > 2 ? atol(argv[2]) : 0;
    while (argc > 1 && i < n && strcmp(argv[1], rows[i].name) != 0) { i++; }
    if (argc < 3) {                     // the names of the rows
        for (i = 0; i < n; i++) { puts(rows[i].name); }
        return 0;
    }
    if (i == n) { return 2; }
    (void)char_gpt_main;
    tensor_manual_seed(1);
    a = tensor_randn(16), b = tensor_randn(16);
    m = tensor_randn(8, 8), w = tensor_randn(8, 8), bias = tensor_randn(8);
    x = tensor_randn(32, 8), y = tensor_randn(32, 4);
    if (rows[i].recorded) {
        tensor_requires_grad_(a, 1);
        tensor_requires_grad_(m, 1);
        tensor_requires_grad_(w, 1);
    }
    if (rows[i].run == call_mlp || rows[i].run == call_infer) {
        net = nn_sequential(nn_linear(8, 64), nn_relu(), nn_linear(64, 64), nn_relu(), nn_linear(64, 4));
        opt = nn_adam(net, .lr = 1e-3);
    }
    if (rows[i].run == call_gpt) {
        job.steps = STEPS;
        if (job_open(&job, NULL)) { return 1; }
    }
    tensor_scope_t scope = rows[i].run == call_infer ? tensor_scope_begin_no_grad() : tensor_scope_begin();
    for (long k = 0; k < repeats; k++) {
        rows[i].run();
        if (k % rows[i].scope == rows[i].scope - 1) { tensor_scope_reset(scope); }
    }
    tensor_scope_end(scope);
    return tensor_shutdown();
}

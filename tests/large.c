// large.c - results that go past the caches: every element, their ends and neighbours, in each instruction
// set
#include "elements_are.h"

// Results of 32 MB and more go past the caches: every element, their ends and their neighbours, in each
// instruction set, on one thread and two; in place and at odd places they do not.
static void large_is(int line, tensor_t *y, double a, double b) {
    const float *p = (const float *)tensor_data(y);
    int64_t i, n = tensor_numel(y), wrong = 0;
    for (i = 0; p && i < n; i++) { wrong += p[i] != (float)(a * (double)(i % 1021) + b); }
    CHECK_MSG(p && wrong == 0, "line %d: %d wrong elements", line, (int)wrong);
}

static void large_results(void) {
    static const char *const cpus[] = {NULL, "avx2", "sse2"};
    int64_t n = (1 << 23) + 37, i;
    int k, threads;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_zeros(n), *room = tensor_zeros(n + 64), *y;
    float *p = (float *)tensor_data_mut(x);
    for (i = 0; p && i < n; i++) { p[i] = (float)(i % 1021); }
    for (k = 0; k < COUNT(cpus); k++) {
        if (tensor_set_isa(cpus[k]) != TENSOR_OK) {
            tensor_clear_error();
            continue;
        }
        for (threads = 1; threads <= 2; threads++) {
            tensor_scope_t inner = tensor_scope_begin();
            if (tensor_set_num_threads(threads) != TENSOR_OK) { tensor_clear_error(); }
            large_is(__LINE__, tensor_add(x, x), 2, 0);
            large_is(__LINE__, tensor_add_scalar(x, 3), 1, 3);
            for (i = 16; i <= 17; i++) {
                tensor_fill_(room, -7);
                tensor_copy_(y = tensor_narrow(room, 0, i, n), x);
                p = (float *)tensor_data_mut(room);
                CHECK(p[i - 1] == -7 && p[i + n] == -7);
                large_is(__LINE__, y, 1, 0);
                large_is(__LINE__, tensor_add_(y, x), 2, 0);
            }
            tensor_scope_end(inner);
        }
    }
    tensor_set_num_threads(1);
    tensor_set_isa(NULL);
    tensor_requires_grad_(x, 1);
    tensor_backward(tensor_sum(tensor_mul(x, x)));
    large_is(__LINE__, tensor_grad(x), 2, 0);
    tensor_requires_grad_(x, 0);
#if defined(__linux__) && defined(__GNUC__)
    {   // equal places of large blocks do not share the sets of a cache
        uintptr_t first = (uintptr_t)tensor_data(tensor_zeros(1 << 20)) % (1 << 17), apart = 0;
        for (k = 0; k < 3; k++) {
            apart += (uintptr_t)tensor_data(tensor_zeros(1 << 20)) % (1 << 17) != first;
        }
        CHECK(apart > 0);
    }
#endif
    tensor_scope_end(scope);
    CHECK_OK();
}

int main(void) {
    RUN(large_results);
    return test_report();
}

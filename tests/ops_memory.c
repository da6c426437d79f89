// ops_memory.c - every op of ops.def and every twin on its cases: the k-th allocation fails, for every k, in
// the call and in backward, once and for good, in the hook and in malloc; inputs end where a page ends, and
// the next page may not be touched
#define _DEFAULT_SOURCE
#include "heap.h"
#include "cases.h"

#include <sys/mman.h>

static long n_failures, n_bounds;

// ---- the k-th allocation fails ----

// The call and its backward pass. -> the error
static int call_and_back(const entry_t *op, const case_t *c, const arguments_t *given) {
    arguments_t a = *given;
    tensor_scope_t s = tensor_scope_begin();
    int k;
    for (k = 0; k < a.nin; k++) {
        if (a.in[k] && is_data(&c->in[k]) && !skipped(op->name, "GRADIENT")) {
            a.in[k] = tensor_requires_grad_(tensor_detach(a.in[k]), 1);
        }
    }
    tensor_manual_seed(7);
    op->call(&a);
    for (k = 0; k < a.nout && tensor_ok(); k++) {
        if (a.out[k] && tensor_requires_grad(a.out[k])) {
            tensor_backward(tensor_sum(a.out[k]));
            break;
        }
    }
    k = tensor_error_code();
    tensor_scope_end(s);
    return k;
}
static void allocations_fail(const entry_t *op, const case_t *c) {
    int mode;
    for (mode = 0; mode < HEAP_MODES_HERE; mode++) {
        long calls = 1, k;
        for (k = -1; k < calls; k++) {
            world_of_heap_t w;
            arguments_t a;
            tensor_scope_t s;
            int code;
            if (!heap_open(&w, mode)) { return; }
            s = tensor_scope_begin();
            arguments_of(op, c, TENSOR_F32, &a);
            CHECK(tensor_ok());
            calls = k < 0 ? -w.h.calls : calls;
            w.h.fail_at = k < 0 ? -1 : w.h.calls + k;
            code = call_and_back(op, c, &a);
            if (k < 0) { calls += w.h.calls; }
            w.h.fail_at = -1;
            CHECK_MSG(code == 0 || (k >= 0 && code == TENSOR_ERR_OUT_OF_MEMORY),
                      "%s %s, mode %d, k = %ld: %s", op->name, c->text, mode, k, tensor_error_text());
            tensor_clear_error();
            code = call_and_back(op, c, &a);
            CHECK_MSG(code == 0, "%s %s, mode %d, k = %ld: the next call fails: %s", op->name, c->text, mode,
                      k, tensor_error_text());
            tensor_clear_error();
            tensor_scope_end(s);
            heap_close(&w, k);
            n_failures += k >= 0;
        }
    }
}

// ---- the end of a page ----

enum { PAGE = 1 << 16, PAGES = 8 };
static char *pages[PAGES];

static void at_ends(const entry_t *op, const case_t *c) {
    tensor_scope_t s = tensor_scope_begin();
    arguments_t a, b;
    int k, r;
    arguments_of(op, c, TENSOR_F32, &a);
    b = a;
    for (k = 0; k < a.nin && k < PAGES; k++) {
        tensor_shape_t shape;
        size_t bytes;
        char *p;
        if (!a.in[k]) { continue; }
        shape = tensor_shape(a.in[k]);
        bytes = (size_t)tensor_numel(a.in[k]) * tensor_dtype_size(tensor_dtype(a.in[k]));
        CHECK(bytes <= PAGE);
        p = pages[k] + PAGE - bytes;
        CHECK(tensor_copy_out(a.in[k], p, bytes) == 0);
        b.in[k] = tensor_wrap_n(p, tensor_dtype(a.in[k]), shape.dims, shape.ndim, NULL, NULL);
    }
    tensor_manual_seed(7);
    op->call(&a);
    tensor_manual_seed(7);
    op->call(&b);
    CHECK_MSG(tensor_ok() && a.nout == b.nout, "%s %s: %s", op->name, c->text, tensor_error_text());
    for (r = 0; r < a.nout && tensor_ok(); r++) {
        if (a.out[r] && b.out[r]) {
            CHECK_MSG(test_same_bits(a.out[r], b.out[r]), "%s %s: result %d differs at the end of a page",
                      op->name, c->text, r);
        }
    }
    tensor_clear_error();
    tensor_scope_end(s);
    n_bounds++;
}

static int left[2];
static void memory_fails(void) { left[0] = every_case("MEMORY", allocations_fail); }
static void bounds(void) {
    int k;
    for (k = 0; k < PAGES; k++) {
        pages[k] = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages[k] != (char *)MAP_FAILED && mprotect(pages[k] + PAGE, PAGE, PROT_NONE) == 0);
        if (pages[k] == (char *)MAP_FAILED) { return; }
    }
    left[1] = every_case("BOUNDS", at_ends);
    for (k = 0; k < PAGES; k++) { munmap(pages[k], 2 * PAGE); }
}

int main(void) {
    tensor_set_num_threads(1);
    RUN(bounds);
    RUN(memory_fails);
    printf("%d ops and twins: %ld cases at the end of a page, %ld allocations failed\n", NOPS - ONLY_FIXTURES,
           n_bounds, n_failures);
    printf("skipped: %d ops whose allocations do not fail, %d at the end of a page; ops.def says why\n",
           left[0], left[1]);
    return test_report();
}

// graph_limits.c - graphs of any length cost no stack and linear time; the k-th allocation fails
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#define HERE "graph_limits.c:"
#include "graphs.h"

// 300,000 nodes: looking ahead costs no stack.
static void grad_long(void) {
    tensor_t *x = LEAF(1), *y = tensor_mul_scalar(x, 1), *mid = NULL, *g;
    tensor_scope_t s = tensor_scope_begin();
    int k;
    for (k = 1; k < 300000; k++) {
        if (k == 150000) {
            mid = y;
            y = tensor_keep(tensor_add_scalar(mid, 1));
        } else {
            tensor_set(&y, tensor_add_scalar(y, 1));
        }
        if (k % 1000 == 0) { tensor_scope_reset(s); }
    }
    tensor_scope_end(s);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &mid, 1, &g, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(g, 1);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT(g, 1);
    tensor_free(y);
}

typedef struct heap_t { long calls, fail_at, blocks; } heap_t;

static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    void *p = NULL;
    if (h->calls++ == h->fail_at) { return NULL; }
#if defined(_WIN32)
    p = _aligned_malloc(bytes, alignment < 64 ? 64 : alignment);
#else
    if (posix_memalign(&p, alignment < 64 ? 64 : alignment, bytes)) { p = NULL; }
#endif
    h->blocks += p != NULL;
    return p;
}

static void heap_free(void *user, void *p, size_t bytes, size_t alignment) {
    (void)bytes, (void)alignment;
    ((heap_t *)user)->blocks--;
#if defined(_WIN32)
    _aligned_free(p);
#else
    free(p);
#endif
}

static tensor_t *pass_on(tensor_t *g, void *user) {
    (void)user;
    return tensor_mul_scalar(g, 2);
}

static void stay(tensor_t *x, void *user) { (void)x, (void)user; }

static int everything(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL};
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *x = LEAF64(0.5, -1), *y = LEAF64(1, 2, 3), *in[2], *out[4], *z, *g, *v[2];
    block_t b;
    int k;
    in[0] = x;
    in[1] = y;
    tensor_register_hook(x, pass_on, NULL);
    tensor_register_post_accumulate_grad_hook(x, stay, NULL);
    z = tensor_mul(x, x);
    tensor_retain_grad(z);
    tensor_register_hook(z, pass_on, NULL);
    tensor_backward_with(tensor_sum(tensor_mul(z, z)), NULL, TENSOR_RETAIN_GRAPH);
    z = tensor_sum(z);
    tensor_autograd_grad(&z, 1, NULL, &x, 1, &g, 0);
    for (k = 0; k < 2; k++) {
        if (k) { tensor_set_detect_anomaly(1); }
        in[1] = x;
        if (tensor_apply_n(&many, NULL, in, 2, out, 3) == 0) { tensor_backward(tensor_sum(out[1])); }
        in[1] = y;
    }
    memset(&b, 0, sizeof b);
    b.w = tensor_requires_grad_(tensor_randn(4, 4), 1);
    b.inner = 1;
    z = tensor_ones(3, 4);
    tensor_backward(tensor_sum(tensor_checkpoint(block, &b, &z, 1)));
    v[0] = tensor_ones_like(x);
    v[1] = tensor_ones_like(y);
    tensor_jvp(outer, NULL, in, 2, v, &g, 0);
    tensor_hessian(energy, NULL, in, 2, out, 0);
    tensor_scope_end(s);
    return tensor_error_code();
}

static void out_of_memory(void) {
    long k, n = 0;
    int code = 1;
    for (k = 0; code != 0 && k < 2000; k++) {
        heap_t h;
        tensor_allocator_t a;
        tensor_context_t *c = tensor_context_new(), *before = tensor_context_use(c);
        h.calls = h.blocks = 0;
        h.fail_at = k;
        a.alloc = heap_alloc;
        a.free = heap_free;
        a.user = &h;
        tensor_set_error_handler(test_quiet, NULL);
        CHECK(tensor_set_allocator(&a) == 0);
        code = everything();
        CHECK_MSG(code == (h.calls > k ? TENSOR_ERR_OUT_OF_MEMORY : 0) || (h.calls > k && code == 0),
                  "allocation %ld of %ld failed: %s", k, h.calls, tensor_error_text());
        if (h.calls > k && code == 0) { code = 1; } // it could do without
        tensor_clear_error();
        CHECK(tensor_memory_stats().live_nodes == 0);
        tensor_context_use(before);
        tensor_context_free(c);
        CHECK_MSG(h.blocks == 0, "allocation %ld failed: %ld blocks left", k, h.blocks);
        n++;
    }
    CHECK(code == 0 && n > 20);
}

// Seconds for n things of a kind: the operations of a checkpoint, inputs of autograd_grad (a third of them
// asked for twice), leaves with hooks.
static tensor_t *sines(tensor_t *const *in, int n, void *user) {
    tensor_t *y = in[0];
    int k;
    (void)n;
    for (k = 0; k < *(int *)user; k++) { y = tensor_sin(y); }
    return y;
}

static double many(int kind, int n) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t **x = (tensor_t **)calloc((size_t)n, sizeof *x), *y;
    tensor_t **g = (tensor_t **)calloc((size_t)n, sizeof *g);
    clock_t t;
    int k, bad = 0;
    log_t l;
    memset(&l, 0, sizeof l);
    l.factor = 2;
    for (k = 0; k < n; k++) { x[k] = kind == 1 && k % 3 == 2 ? x[k - 1] : LEAF(1); }
    if (kind == 0) {
        t = clock();
        y = tensor_checkpoint(sines, &n, x, 1);
    } else {
        for (y = x[0], k = 1; k < n; k++) { y = tensor_add(y, x[k]); }
        for (k = 0; k < n && kind == 2; k++) { tensor_register_hook(x[k], watch, &l); }
        t = clock();
        if (kind == 1) { CHECK(tensor_autograd_grad(&y, 1, NULL, x, n, g, 0) == 0); }
        if (kind == 2) { CHECK(tensor_backward(y) == 0); }
        for (k = 0; k < n; k++) {
            tensor_t *grad = kind == 1 ? g[k] : tensor_grad(x[k]);
            bad += *(float *)tensor_data(grad) != (kind == 2 || (k % 3 && (k % 3 == 2 || k + 1 < n)) ? 2 : 1);
        }
        CHECK(!bad && (kind == 1 || l.calls == n));
    }
    t = clock() - t;
    tensor_scope_end(s);
    free(x);
    free(g);
    return (double)t / CLOCKS_PER_SEC;
}

// Seconds for the end of a capture with n temporaries that are alive at the same time, or two at a time.
static double many_temporaries(int together, int n) {
    tensor_t **list = (tensor_t **)calloc((size_t)n, sizeof *list), *x = tensor_randn(4, 4), *y = x;
    tensor_scope_t s = tensor_scope_begin();
    tensor_graph_t *g;
    clock_t t;
    int k;
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    for (k = 0; k < n; k++) { y = list[k] = tensor_matmul(y, x); }
    for (k = n - 1; together && k >= 0; k--) { y = tensor_matmul(y, list[k]); }
    tensor_copy_(x, y);
    tensor_scope_end(s);
    t = clock();
    g = tensor_capture_end();
    t = clock() - t;
    CHECK(tensor_graph_info(g).calls >= n);
    CHECK(tensor_graph_free(g) == 0);
    free(list);
    return (double)t / CLOCKS_PER_SEC;
}

static void many_of_them(void) {
    static const char *const names[] = {"operations of a checkpoint", "inputs", "leaves with hooks",
                                        "temporaries", "temporaries at a time"};
    int kind;
    for (kind = 0; kind < 5; kind++) {
        double small = 0, large = 1;
        // A busy machine is measured again.
        for (int tries = 0; tries < 3 && large >= 40 * small + 0.1; tries++) {
            small = kind < 3 ? many(kind, 4000) : many_temporaries(kind - 3, 4000);
            large = kind < 3 ? many(kind, 40000) : many_temporaries(kind - 3, 40000);
        }
        CHECK_MSG(large < 40 * small + 0.1, "4000 %s take %.2f s, 40000 %.2f s: not linear", names[kind],
                  small, large);
    }
}

int main(void) {
    RUN(grad_long);
    RUN(out_of_memory);
    RUN(many_of_them);
    return test_report();
}

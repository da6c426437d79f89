// bounds.c - kernels read nothing past the end of what they are given: operands end where a page ends, and
// the next page may not be touched. Nor do workers touch what is far from the memory that they have.
#define _DEFAULT_SOURCE
#define TENSOR_BACKEND
#include "heap.h"
#include <sys/mman.h>

enum { PAGE = 1 << 23 };         // of bytes: several small ones
static char *page;

// [rows, columns] of ones whose last element is the last of the page.
static tensor_t *at_end(int64_t rows, int64_t columns) {
    int64_t dims[2], i;
    float *p = (float *)(void *)(page + PAGE) - rows * columns;
    dims[0] = rows;
    dims[1] = columns;
    for (i = 0; i < rows * columns; i++) { p[i] = 1; }
    return tensor_wrap_n(p, TENSOR_F32, dims, 2, NULL, NULL);
}

static void products(void) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 9, 12, 13, 16, 17, 33};
    enum { SIZES = (int)(sizeof sizes / sizeof sizes[0]) };
    int a, b, c;
    for (a = 0; a < SIZES; a++) {
        for (b = 0; b < SIZES; b++) {
            for (c = 0; c < SIZES; c++) {
                int64_t m = sizes[a], n = sizes[b], k = sizes[c];
                tensor_scope_t scope = tensor_scope_begin();
                double want = (double)(m * n * k);
                tensor_t *a1 = tensor_ones(m, k), *a2 = tensor_mT(tensor_ones(k, m)), *b1 = tensor_ones(k, n);
                CHECK(tensor_item(tensor_sum(tensor_matmul(a1, at_end(k, n)))) == want);
                CHECK(tensor_item(tensor_sum(tensor_matmul(a2, at_end(k, n)))) == want);
                CHECK(tensor_item(tensor_sum(tensor_linear(a1, at_end(n, k), NULL))) == want);
                CHECK(tensor_item(tensor_sum(tensor_matmul(at_end(m, k), b1))) == want);
                CHECK(tensor_item(tensor_sum(tensor_matmul(tensor_mT(at_end(k, m)), b1))) == want);
                tensor_scope_end(scope);
            }
        }
    }
}

// Large ones of two threads, which pack A together.
static void shared(void) {
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_set_num_threads(2) == 0);
    CHECK(tensor_item(tensor_sum(tensor_matmul(at_end(1024, 1024), tensor_ones(1024, 256)))) == 0x1p28);
    CHECK(tensor_item(tensor_sum(tensor_matmul(tensor_mT(at_end(1024, 1030)), tensor_ones(1024, 256)))) ==
          1030.0 * 1024 * 256);
    CHECK(tensor_set_num_threads(1) == 0);
    tensor_scope_end(scope);
}

// Drivers ask for the scratch of their largest block and run smaller ones too, which may be split: a product
// of m x n with k steps then has the partial products of each part of k.
static void scratch_of_smaller(void) {
    const tensor__internals_t *api = tensor__internals(TENSOR__API_VERSION);
    static const int64_t sizes[] = {1, 4, 5, 63, 64, 65, 192, 256, 257, 341, 342, 1024, 70000};
    static const int64_t steps[] = {1, 512, 4095, 4096, 20000, 131072, 131073, 300000};
    enum { SIZES = (int)(sizeof sizes / sizeof sizes[0]), STEPS = (int)(sizeof steps / sizeof steps[0]) };
    int short_of = 0;
    for (int k = 0; k < STEPS; k++) {
        for (int m = 0; m < SIZES; m++) {
            for (int n = 0; n < SIZES; n++) {
                tensor__gemm_t g;
                memset(&g, 0, sizeof g);
                g.m = sizes[m];
                g.n = sizes[n];
                g.k = steps[k];
                g.batch = 1;
                uint64_t all = api->gemm_scratch_upto(&g, TENSOR_F32);
                for (int less = 0; less < m; less++) {
                    g.m = sizes[less];
                    short_of += api->gemm_scratch_upto(&g, TENSOR_F32) > all;
                }
                g.m = sizes[m];
                for (int less = 0; less < n; less++) {
                    g.n = sizes[less];
                    short_of += api->gemm_scratch_upto(&g, TENSOR_F32) > all;
                }
            }
        }
    }
    CHECK_MSG(short_of == 0, "%d products of fewer rows or columns need more", short_of);
}

static void rows(void) {
    int64_t n;
    for (n = 1; n < 70; n++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = at_end(1, n), *image = tensor_ones(1, 1, 3, 70), *point = tensor_ones(3, 1, 1, 1);
        tensor_t *w = tensor_reshape(x, 1, 1, 1, n);
        CHECK(tensor_item(tensor_sum(tensor_add(tensor_tanh(x), tensor_sqrt(x)))) > 0);
        CHECK(tensor_item(tensor_sum(x)) == (double)n && tensor_item_i64(tensor_argmax(x)) == 0);
        CHECK(tensor_item(tensor_max(tensor_softmax(x, 1))) > 0);
        CHECK(tensor_item(tensor_sum(tensor_to(x, TENSOR_F16))) == (double)n);
        CHECK(tensor_item(tensor_sum(tensor_conv2d(image, w))) == (double)(3 * n * (71 - n)));
        CHECK(tensor_item(tensor_sum(tensor_conv2d(w, point))) == (double)(3 * n));
        CHECK(tensor_item(tensor_sum(tensor_layer_norm(x))) < 1);
        CHECK(tensor_equal(tensor_contiguous(tensor_transpose(x, 0, 1)), tensor_ones(n, 1)));
        double kept = tensor_item(tensor_sum(tensor_dropout(x, 0.5, 1)));
        CHECK(kept >= 0 && kept <= 2 * (double)n);

        // Gradients of rows, when what arrives is there.
        tensor_t *leaf = tensor_requires_grad_(tensor_ones(1, n), 1);
        CHECK(tensor_backward_with(tensor_log_softmax(leaf, 1), x, 0) == 0);
        CHECK(tensor_backward_with(tensor_softmax(leaf, 1), x, 0) == 0);
        CHECK(tensor_backward_with(tensor_layer_norm(leaf), x, 0) == 0);
        CHECK(tensor_backward_with(tensor_gelu(leaf), x, 0) == 0);
        CHECK(tensor_backward_with(tensor_dropout(leaf, 0.5, 1), x, 0) == 0);
        CHECK(tensor_backward_with(tensor_cumsum(leaf, 1), x, 0) == 0);
        CHECK(tensor_numel(tensor_grad(leaf)) == n);

        // The same of what is there itself.
        tensor_t *last = tensor_requires_grad_(at_end(1, n), 1), *g = tensor_ones(1, n);
        CHECK(tensor_backward_with(tensor_layer_norm(last), g, 0) == 0);
        CHECK(tensor_backward_with(tensor_rms_norm(last, 1), g, 0) == 0);
        CHECK(tensor_backward_with(tensor_log_softmax(last, 1), g, 0) == 0);
        CHECK(tensor_backward_with(tensor_gelu(last), g, 0) == 0);
        CHECK(tensor_backward_with(tensor_silu(last), g, 0) == 0);
        CHECK(tensor_backward_with(tensor_logsumexp(last, 1, 1), tensor_ones(1, 1), 0) == 0);
        CHECK(tensor_backward_with(tensor_cumprod(last, 1), g, 0) == 0);
        CHECK(tensor_numel(tensor_grad(last)) == n);
        tensor_scope_end(scope);
    }
}

// Full tiles of pixels and a part of one; the kernel as it stands and turned round; 16 channels by Winograd's
// way, 12 by direct sums, which are exact.
static void convolutions(void) {
    for (int64_t n = 5; n < 34; n += n < 20 ? 3 : 13) {
        for (int64_t c = 12; c <= 16; c += 4) {
            tensor_scope_t scope = tensor_scope_begin();
            int64_t m = n + 4;
            double want = (double)(32 * n * n * c * 25), room = c == 16 ? 1e-5 * want : 0;
            tensor_t *image = tensor_reshape(at_end(c, m * m), 1, c, m, m), *w = tensor_ones(32, c, 5, 5);
            CHECK(fabs(tensor_item(tensor_sum(tensor_conv2d(image, w))) - want) <= room);
            image = tensor_ones(1, c, n, n);
            w = tensor_reshape(at_end(c * 32, 25), c, 32, 5, 5);
            CHECK(fabs(tensor_item(tensor_sum(tensor_conv_transpose2d(image, w))) - want) <= room);
            tensor_scope_end(scope);
        }
    }
}

// Every block stands between fences.
enum { FENCE = 4 << 20, SMALL = 4096 };
static void *fenced(void *user, size_t bytes, size_t alignment) {
    size_t room = (bytes + SMALL - 1) / SMALL * SMALL;
    char *p = (char *)mmap(NULL, room + 2 * FENCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)user;
    if (p == (char *)MAP_FAILED || alignment > SMALL) { return NULL; }
    return mprotect(p + FENCE, room, PROT_READ | PROT_WRITE) ? NULL : p + FENCE;
}
static void unfenced(void *user, void *p, size_t bytes, size_t alignment) {
    (void)user, (void)alignment;
    munmap((char *)p - FENCE, (bytes + SMALL - 1) / SMALL * SMALL + 2 * FENCE);
}
static uint64_t worked(tensor_dtype_t dtype, int64_t step) {
    uint64_t h = TEST_HASH;
    tensor_t *x = tensor_to(tensor_randn(4, 8, 20, 20), dtype), *y;
    tensor_t *w = tensor_to(tensor_randn(8, 8, 3, 3), dtype);
    tensor_t *q = tensor_to(tensor_randn(2, 4, 96, 32), dtype);
    tensor_requires_grad_(x, 1);
    tensor_requires_grad_(w, 1);
    y = tensor_conv2d(x, w, NULL, .padding = 1, .stride = step);
    tensor_backward(tensor_sum(tensor_mul(y, y)));
    h = test_hash(test_hash(h, tensor_grad(x)), tensor_grad(w));
    y = tensor_conv_transpose2d(x, w, NULL, .stride = step);
    tensor_backward(tensor_sum(tensor_mul(y, y)));
    h = test_hash(test_hash(h, tensor_grad(x)), tensor_grad(w));
    tensor_requires_grad_(q, 1);
    y = tensor_scaled_dot_product_attention(q, q, q);
    tensor_backward(tensor_sum(tensor_mul(y, y)));
    h = test_hash(test_hash(h, y), tensor_grad(q));
    return test_hash(h, tensor_bmm(tensor_select(q, 0, 0), tensor_mT(tensor_select(q, 0, 1))));
}
static void memory_of_workers(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64};
    tensor_allocator_t a = {fenced, unfenced, NULL};
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    CHECK(tensor_set_allocator(&a) == 0);
    for (int k = 0; k < 4; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        uint64_t alone = 0;
        for (int again = 0; again < 12; again++) {              // which worker does what is chance
            tensor_manual_seed(5);
            CHECK(tensor_set_num_threads(again ? 4 : 1) == 0);
            uint64_t h = worked(dtypes[k / 2], 1 + k % 2);
            if (!again) { alone = h; }
            CHECK_MSG(h == alone, "%d: other bits by four threads", k);
            tensor_scope_reset(scope);
        }
        CHECK(tensor_set_num_threads(1) == 0);
        tensor_scope_end(scope);
    }
    CHECK_OK();
    tensor_context_use(before);
    tensor_context_free(context);
}

// A list that a call keeps for its length has its room behind the block's head: nothing is written past the
// end of blocks that lists of about this length fill.
static void lists(void) {
    enum { N = 1 << 14, AROUND = 24 };
    tensor_t **list = (tensor_t **)malloc((N + AROUND) * sizeof *list);
    world_of_heap_t w;
    if (!list || !heap_open(&w, 0)) { return; }
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *one = tensor_ones(1);
    for (int n = 0; n < N + AROUND; n++) { list[n] = one; }
    for (int n = N - AROUND; n <= N + AROUND; n += 4) {
        tensor_scope_t inner = tensor_scope_begin();
        CHECK(tensor_item(tensor_sum(tensor_stack_n(list, n, 0))) == n);
        tensor_scope_end(inner);
    }
    CHECK_OK();
    tensor_scope_end(scope);
    heap_close(&w, 0);
    free(list);
}

int main(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon"};
    int i;
    page = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == (char *)MAP_FAILED || mprotect(page + PAGE, PAGE, PROT_NONE)) { return 1; }
    for (i = 0; i < 5; i++) {
        if (tensor_set_isa(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        RUN(products);
        RUN(shared);
        RUN(scratch_of_smaller);
    RUN(rows);
        RUN(convolutions);
        RUN(memory_of_workers);
    }
    RUN(lists);
    return test_report();
}

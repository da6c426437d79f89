// lifetime.c - the end of a context: tensors that hold one another in every way there is are freed once each,
// by tensor_shutdown and tensor_context_free; what a hook, a closure, a module or a job asks for that takes
// from the library what it stands on is an error; an arena gives blocks and takes them back; large blocks
// that share memory keep their values. Meant for the address sanitizer, true without it too.
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <pthread.h>

// ---- tensors kept to the end ----

static int freed; // calls of count_free

static void count_free(void *data, void *user) {
    (void)data, (void)user;
    freed++;
}
static tensor_t *same(tensor_t *g, void *user) {
    (void)user;
    return g;
}
static void look(tensor_t *x, void *user) {
    (void)x, (void)user;
}
static tensor_t *see_backward(nn_module_t *m, tensor_t *in, tensor_t *out, void *user) {
    (void)m, (void)in, (void)out, (void)user;
    return NULL;
}
static tensor_t *leaf(int64_t n) {
    return tensor_requires_grad_(tensor_randn(n), 1);
}
// Headers of tensors made from now on come from another slab than those before; shutdown walks them in order.
static void next_slab(void) {
    int i;
    for (i = 0; i < 100; i++) { tensor_ones(3); }
}

static void hook_on_leaf(void) {
    tensor_t *x = leaf(3);
    CHECK(tensor_register_hook(x, same, NULL) > 0);
    tensor_keep(tensor_mul(x, x));
}
static void hook_on_leaf_later_slab(void) {
    tensor_t *y = tensor_keep(tensor_ones(3)), *x;
    next_slab();
    x = leaf(3);
    tensor_register_hook(x, same, NULL);
    tensor_set(&y, tensor_keep(tensor_mul(x, x)));
}
static void hook_on_result(void) {
    tensor_t *x = leaf(3), *y = tensor_mul(x, x), *loss;
    tensor_register_hook(y, same, NULL);
    loss = tensor_keep(tensor_sum(y));
    CHECK(tensor_backward(loss) == 0);
}
static void hook_after_accumulation(void) {
    tensor_t *x = leaf(3), *loss;
    tensor_register_post_accumulate_grad_hook(x, look, NULL);
    loss = tensor_keep(tensor_sum(tensor_mul(x, x)));
    CHECK(tensor_backward(loss) == 0);
}
static void hook_on_weight(void) {
    nn_module_t *m = nn_linear(3, 3);
    tensor_t *loss;
    tensor_register_hook(nn_get(m, "weight"), same, NULL);
    loss = tensor_keep(tensor_sum(nn_forward(m, tensor_ones(1, 3))));
    CHECK(tensor_backward_with(loss, NULL, TENSOR_RETAIN_GRAPH) == 0);
}
static void hook_on_module(void) {
    nn_module_t *m = nn_linear(3, 3);
    nn_register_full_backward_hook(m, see_backward, NULL);
    tensor_keep(tensor_sum(nn_forward(m, tensor_requires_grad_(tensor_randn(1, 3), 1))));
}
static void retained(void) {
    tensor_t *x = leaf(3), *y = tensor_mul(x, x);
    tensor_retain_grad(y);
    tensor_keep(tensor_sum(y));
    tensor_keep(y);
}
static void set_gradient(void) {
    tensor_t *x = leaf(3);
    next_slab();
    CHECK(tensor_set_grad(x, tensor_exp(x)) == 0);
}
static void set_gradient_before(void) {
    tensor_t *y = tensor_randn(3), *x;
    next_slab();
    x = tensor_keep(leaf(3));
    CHECK(tensor_set_grad(x, y) == 0);
    CHECK(tensor_set_grad(y, x) == 0); // in a circle
}
static void graph_of_leaf(void) {
    tensor_t *x = leaf(3);
    next_slab();
    tensor_backward_with(tensor_sum(tensor_mul(tensor_mul(x, x), x)), NULL, TENSOR_CREATE_GRAPH);
}
static void graph_of_exp(void) {
    tensor_t *x = leaf(3);
    tensor_backward_with(tensor_sum(tensor_exp(x)), NULL, TENSOR_CREATE_GRAPH);
}
static void own_gradient(void) {
    tensor_t *x = leaf(3);
    next_slab();
    tensor_backward_with(x, x, TENSOR_CREATE_GRAPH);
}
static void own_gradient_of_view(void) {
    tensor_t *x = tensor_requires_grad_(tensor_narrow(tensor_randn(5, 3, 3), 0, 1, 4), 1);
    CHECK(tensor_backward_with(x, x, TENSOR_CREATE_GRAPH) == 0);
    tensor_keep(x);
}
static void views_of_kept(void) {
    tensor_t *x = tensor_randn(4, 4), *v = tensor_keep(tensor_select(x, 0, 1));
    next_slab();
    tensor_keep(tensor_narrow(v, 0, 1, 2));
    tensor_free(v);
}
static void scope_left_open(void) {
    tensor_t *x = leaf(3);
    tensor_scope_begin();
    tensor_scope_begin_no_grad();
    tensor_register_hook(x, same, NULL);
    tensor_keep(tensor_ones(2));
}
static float borrowed[4];
static void borrowed_memory(void) {
    int64_t n = 4;
    tensor_t *x = tensor_requires_grad_(tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, count_free, NULL), 1);
    tensor_register_hook(x, same, NULL);
    tensor_keep(tensor_mul(x, x));
}
// A deleter that frees another tensor, and one that makes one.
static void free_other(void *data, void *user) {
    (void)data;
    tensor_free((tensor_t *)user);
    freed++;
}
static void make_other(void *data, void *user) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1);
    (void)data, (void)user;
    tensor_register_hook(x, same, NULL);
    tensor_keep(tensor_mul(x, x));
    freed++;
}
static void look_at_other(void *data, void *user) {
    double v = tensor_item((tensor_t *)user);
    (void)data;
    CHECK(v == 1 || v != v);            // NaN with an error if the shutdown has emptied it
    tensor_clear_error();
    freed++;
}
static void deleter_looks(void) {
    int64_t n = 4;
    tensor_t *first = tensor_keep(tensor_ones(1)), *last;
    tensor_keep(tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, look_at_other, first));
    next_slab();
    last = tensor_keep(tensor_ones(1));
    tensor_keep(tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, look_at_other, last));
}
static void deleters_at_work(void) {
    int64_t n = 4;
    tensor_t *other = tensor_keep(tensor_ones(2));
    tensor_keep(tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, free_other, other));
    tensor_keep(tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, make_other, NULL));
}

static const struct {
    const char *name;
    void (*make)(void);
    int deleters;
} kept[] = {
    {"hook_on_leaf", hook_on_leaf, 0},
    {"hook_on_leaf_later_slab", hook_on_leaf_later_slab, 0},
    {"hook_on_result", hook_on_result, 0},
    {"hook_after_accumulation", hook_after_accumulation, 0},
    {"hook_on_weight", hook_on_weight, 0},
    {"hook_on_module", hook_on_module, 0},
    {"retained", retained, 0},
    {"set_gradient", set_gradient, 0},
    {"set_gradient_before", set_gradient_before, 0},
    {"graph_of_leaf", graph_of_leaf, 0},
    {"graph_of_exp", graph_of_exp, 0},
    {"own_gradient", own_gradient, 0},
    {"own_gradient_of_view", own_gradient_of_view, 0},
    {"views_of_kept", views_of_kept, 0},
    {"scope_left_open", scope_left_open, 0},
    {"borrowed_memory", borrowed_memory, 1},
    {"deleters_at_work", deleters_at_work, 2},
    {"deleter_looks", deleter_looks, 2},
};
enum { KEPT = (int)(sizeof kept / sizeof kept[0]) };

static void ends(int own_context, int i) {
    tensor_context_t *ctx = own_context ? tensor_context_new() : NULL, *before = NULL;
    tensor_memory_stats_t m;
    test_name = kept[i].name;
    test_lines = 0;
    freed = 0;
    if (ctx) { before = tensor_context_use(ctx); }
    tensor_set_error_handler(test_quiet, NULL);
    kept[i].make();
    CHECK_OK();
    if (ctx) {
        tensor_context_use(before);
        CHECK(tensor_context_free(ctx) == 0);
    } else {
        CHECK(tensor_shutdown() == 0);
        m = tensor_memory_stats();
        CHECK_MSG(m.live_tensors == 0 && m.live_nodes == 0, "%lld tensors, %lld nodes left",
                  (long long)m.live_tensors, (long long)m.live_nodes);
    }
    CHECK_MSG(freed == kept[i].deleters, "%d of %d deleters were called", freed, kept[i].deleters);
    { // and the library works on
        tensor_scope_t s = tensor_scope_begin();
        CHECK(tensor_item(tensor_sum(tensor_ones(3))) == 3);
        tensor_scope_end(s);
    }
}

// ---- inside a function that the library calls ----

static int asked;             // functions that asked to end the context
static tensor_context_t *own; // the context to free, NULL = shutdown

static int refused(void) {
    int code;
    asked++;
    code = own ? tensor_context_free(own) : tensor_shutdown();
    CHECK(code == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "inside a function that the library calls");
    tensor_thread_end();
    CHECK_ERROR(TENSOR_ERR_OWNER, "thread_end");
    return 0;
}
static tensor_t *grad_hook(tensor_t *g, void *user) {
    (void)user;
    refused();
    return g;
}
static void post_hook(tensor_t *x, void *user) {
    (void)x, (void)user;
    refused();
}
typedef struct problem_t {
    nn_module_t *m;
    nn_optimizer_t *o;
} problem_t;
static tensor_t *closure(void *user) {
    problem_t *p = (problem_t *)user;
    tensor_t *loss = tensor_mean(tensor_square(nn_forward(p->m, tensor_ones(2, 3))));
    nn_zero_grad(p->o);
    tensor_backward(loss);
    refused();
    return loss;
}
static tensor_t *forward(nn_module_t *m, tensor_t *x) {
    (void)m;
    refused();
    return tensor_relu(x);
}
static tensor_t *custom_forward(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    (void)c, (void)n;
    refused();
    return tensor_mul_scalar(in[0], 2);
}
static int custom_backward(tensor_function_ctx_t *c, tensor_t *g, tensor_t **gx, int n) {
    (void)c, (void)n;
    refused();
    gx[0] = tensor_mul_scalar(g, 2);
    return 0;
}
static void custom_destroy(void *user) {
    (void)user;
    refused();
}
static tensor_t *doubled(tensor_t *const *x, int n, void *user) {
    (void)n, (void)user;
    refused();
    return tensor_sum(tensor_mul(x[0], x[0]));
}
static void deleter(void *data, void *user) {
    (void)data, (void)user;
    refused();
}
static void *pack(tensor_t *x, void *user) {
    (void)user;
    refused();
    return tensor_keep(x);
}
static tensor_t *unpack(void *packed, void *user) {
    (void)user;
    refused();
    return (tensor_t *)packed;
}
static void unpacked(void *packed, void *user) {
    (void)user;
    refused();
    tensor_free((tensor_t *)packed);
}
static int get(void *user, int64_t i, void *x, void *y) {
    (void)user;
    refused();
    *(float *)x = (float)i;
    if (y) { *(float *)y = 0; }
    return 0;
}
static void serial(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    int64_t i;
    for (i = 0; i < n; i++) {
        if (i == 1) { refused(); }
        task(arg, i);
    }
    (void)user;
}
static void handler(int code, const char *text, void *user) {
    (void)code, (void)text, (void)user;
    asked++;
    CHECK((own ? tensor_context_free(own) : tensor_shutdown()) != 0);
}

static void in_hooks(void) {
    tensor_t *x = leaf(3), *y = tensor_mul(x, x);
    tensor_register_hook(x, grad_hook, NULL);
    tensor_register_hook(y, grad_hook, NULL);
    tensor_register_post_accumulate_grad_hook(x, post_hook, NULL);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK(asked == 3);
    CHECK(tensor_grad(x) != NULL);
}
static void in_closure(void) {
    problem_t p;
    p.m = nn_linear(3, 2);
    p.o = nn_lbfgs(p.m);
    CHECK(!tensor_is_poison(nn_step_closure(p.o, closure, &p)));
    CHECK(asked >= 1);
    nn_optimizer_free(p.o);
    nn_free(p.m);
}
static void in_forward(void) {
    static nn_module_t m;
    nn_module_init(&m, "Own", forward, NULL);
    CHECK(tensor_item(tensor_sum(nn_forward(&m, tensor_ones(3)))) == 3);
    CHECK(asked == 1);
    nn_free(&m);
}
static void in_function(void) {
    tensor_t *x = leaf(1);
    static tensor_function_t f;        // the node lives on until the scope ends
    f.name = "twice";
    f.forward = custom_forward;
    f.backward = custom_backward;
    f.destroy = custom_destroy;
    CHECK(tensor_backward(tensor_apply(&f, NULL, &x, 1)) == 0);
    CHECK(tensor_item(tensor_grad(x)) == 2);
    CHECK(asked == 2);
}
static void in_checkpoint(void) {
    tensor_t *x = leaf(3), *v = tensor_ones(3), *h[1];
    (void)v;
    CHECK(tensor_backward(tensor_checkpoint(doubled, NULL, &x, 1)) == 0);
    CHECK(asked == 2);
    tensor_hessian(doubled, NULL, &x, 1, h, 0);
    CHECK(asked == 3);
}
static void in_deleter(void) {
    int64_t n = 4;
    tensor_scope_t s = tensor_scope_begin();
    tensor_wrap_n(borrowed, TENSOR_F32, &n, 1, deleter, NULL);
    CHECK(tensor_scope_end(s) == 0);
    CHECK(asked == 1);
}
static void in_saved_hooks(void) {
    static const tensor_saved_hooks_t hooks = {pack, unpack, unpacked, NULL};
    tensor_t *x = leaf(3), *y;
    tensor_set_saved_tensors_hooks(&hooks);
    y = tensor_exp(tensor_mul_scalar(x, 2));
    tensor_set_saved_tensors_hooks(NULL);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK(asked == 3);
}
static void in_dataset(void) {
    nn_dataset_t d;
    nn_data_loader_t *l;
    nn_batch_t b;
    memset(&d, 0, sizeof d);
    d.len = 4;
    d.get = get;
    d.x_dtype = d.y_dtype = TENSOR_F32;
    l = nn_data_loader(d, .batch_size = 2);
    CHECK(nn_next(l, &b) == 1);
    CHECK(asked == 2);
    nn_data_loader_free(l);
}
static void in_job(void) {
    tensor_t *x = tensor_ones(512, 512);
    tensor_set_parallel_for(serial, NULL, 4);
    CHECK(tensor_item(tensor_sum(tensor_matmul(x, x))) == 512.0 * 512 * 512);
    CHECK(asked >= 1);
    tensor_set_parallel_for(NULL, NULL, 1);
}
static void in_handler(void) {
    tensor_set_error_handler(handler, NULL);
    tensor_add(tensor_ones(2), tensor_ones(3));
    CHECK(asked == 1);
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
    tensor_set_error_handler(test_quiet, NULL);
}

static void in_drop(void) {             // of saved hooks, when the graph is freed
    static const tensor_saved_hooks_t hooks = {pack, unpack, unpacked, NULL};
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *x = leaf(3);
    tensor_set_saved_tensors_hooks(&hooks);
    tensor_exp(tensor_mul_scalar(x, 2));
    tensor_set_saved_tensors_hooks(NULL);
    CHECK(tensor_scope_end(s) == 0);
    CHECK(asked == 2);
}
static void destroyed(nn_module_t *m) {
    (void)m;
    refused();
}
static void in_destroy(void) {
    static nn_module_t m;
    memset(&m, 0, sizeof m);
    nn_module_init(&m, "asks", NULL, destroyed);
    CHECK(nn_free(&m) == 0);
    CHECK(asked == 1);
}
static void noted(int code, const char *text, void *user) {
    (void)text, (void)user;
    if (code == 0) { refused(); }
}
static void in_note(void) {             // on a scope that grows
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *x = tensor_ones(1);
    int i;
    tensor_set_error_handler(noted, NULL);
    for (i = 0; i < 140000; i++) { tensor_neg(x); }
    tensor_set_error_handler(test_quiet, NULL);
    CHECK(tensor_scope_end(s) == 0);
    CHECK(asked == 1);
}

static const struct {
    const char *name;
    void (*run)(void);
} inside[] = {
    {"in_drop", in_drop},
    {"in_destroy", in_destroy},
    {"in_note", in_note},
    {"in_hooks", in_hooks},
    {"in_closure", in_closure},
    {"in_forward", in_forward},
    {"in_function", in_function},
    {"in_checkpoint", in_checkpoint},
    {"in_deleter", in_deleter},
    {"in_saved_hooks", in_saved_hooks},
    {"in_dataset", in_dataset},
    {"in_job", in_job},
    {"in_handler", in_handler},
};
enum { INSIDE = (int)(sizeof inside / sizeof inside[0]) };

static void asks(int i) {
    tensor_context_t *before;
    test_name = inside[i].name;
    asked = 0;
    test_run(inside[i].name, inside[i].run);
    test_name = inside[i].name;
    asked = 0;
    own = tensor_context_new();
    before = tensor_context_use(own);
    test_run(inside[i].name, inside[i].run);
    test_name = inside[i].name;
    tensor_context_use(before);
    CHECK(tensor_context_free(own) == 0);
    own = NULL;
}

// ---- threads ----

// The next thread begins with nothing of the one before, whose state it has.
static void *leaves_modes(void *user) {
    (void)user;
    tensor_set_autocast(TENSOR_BF16);
    tensor_set_grad_enabled(0);
    tensor_set_detect_anomaly(1);
    tensor_scope_begin_inference();
    tensor_ones(3);
    tensor_add(tensor_ones(2), tensor_ones(3)); // an error nobody looks at
    return NULL;
}
static void *begins_anew(void *user) {
    int *good = (int *)user;
    *good = tensor_autocast_dtype() == TENSOR_DTYPE_NONE && tensor_grad_enabled() && tensor_ok() &&
            tensor_set_detect_anomaly(0) == 0;
    return NULL;
}
static void states_are_handed_on(void) {
    int i;
    for (i = 0; i < 3; i++) {
        pthread_t t;
        int good = 0;
        CHECK(pthread_create(&t, NULL, leaves_modes, NULL) == 0);
        pthread_join(t, NULL);
        CHECK(pthread_create(&t, NULL, begins_anew, &good) == 0);
        pthread_join(t, NULL);
        CHECK(good);
    }
}
// A thread that lives on across a shutdown, works again and ends.
static pthread_barrier_t bar;
static void *lives_on(void *user) {
    int *good = (int *)user;
    tensor_keep(tensor_ones(3));
    pthread_barrier_wait(&bar);
    pthread_barrier_wait(&bar); // the shutdown
    *good = tensor_item(tensor_sum(tensor_ones(1000))) == 1000;
    return NULL;
}
static void shutdown_while_threads_live(void) {
    pthread_t t;
    int good = 0, i;
    for (i = 0; i < 3; i++) {
        tensor_memory_stats_t m;
        pthread_barrier_init(&bar, NULL, 2);
        CHECK(pthread_create(&t, NULL, lives_on, &good) == 0);
        pthread_barrier_wait(&bar);
        CHECK(tensor_shutdown() == 0);
        pthread_barrier_wait(&bar);
        pthread_join(t, NULL);
        CHECK(good);
        m = tensor_memory_stats();
        CHECK_MSG(m.live_tensors == 0, "%lld tensors left by a thread that ended", (long long)m.live_tensors);
        pthread_barrier_destroy(&bar);
    }
}

// A tensor of an outer scope that goes in an inner one leaves the inner one's mark where it is.
static void freed_in_an_inner_scope(void) {
    tensor_scope_t deep[5];         // whose marks are lower
    for (int k = 0; k < 5; k++) { deep[k] = tensor_scope_begin(); }
    CHECK(tensor_scope_end(deep[0]) == 0);
    tensor_scope_t outer = tensor_scope_begin();
    tensor_t *x = tensor_ones(3);
    tensor_scope_t inner = tensor_scope_begin();
    CHECK(tensor_free(x) == 0);
    int64_t before = tensor_memory_stats().live_tensors;
    tensor_ones(4);
    CHECK(tensor_scope_end(inner) == 0);
    CHECK(tensor_memory_stats().live_tensors == before);
    CHECK(tensor_scope_end(outer) == 0);
}

// ---- memory of the program's own ----

enum { ARENA = 96 * 1024, ARENA_BLOCKS = 100 };
static unsigned char arena_bytes[ARENA + 8];

// The largest block that an arena gives.
static size_t arena_most(const tensor_allocator_t *a) {
    for (size_t n = ARENA; n > 0; n -= 64) {
        void *p = a->alloc(a->user, n, 64);
        if (p) {
            a->free(a->user, p, n, 64);
            return n;
        }
    }
    return 0;
}

// Blocks do not touch one another or what is around the arena, and when all are back it is whole again.
static void arena_blocks(void) {
    static const size_t alignments[4] = {1, 16, 64, 1024};
    memset(arena_bytes, 0xEE, sizeof arena_bytes);
    tensor_allocator_t a = tensor_arena_allocator(arena_bytes + 3, ARENA);
    size_t most = arena_most(&a), sizes[ARENA_BLOCKS] = {0};
    unsigned char *blocks[ARENA_BLOCKS] = {NULL};
    uint32_t random = 1, given = 0, refused = 0;
    CHECK_MSG(most >= ARENA - 192, "%d bytes of %d", (int)most, (int)ARENA);
    for (int step = 0; step < 20000 + ARENA_BLOCKS; step++) {
        random = random * 1664525u + 1013904223u;
        int i = step < 20000 ? (int)(random >> 8) % ARENA_BLOCKS : step - 20000;
        if (blocks[i]) {
            int intact = 1;
            for (size_t k = 0; k < sizes[i]; k++) { intact &= blocks[i][k] == (unsigned char)i; }
            CHECK(intact);
            a.free(a.user, blocks[i], sizes[i], 64);
            blocks[i] = NULL;
        } else if (step < 20000) {
            size_t alignment = alignments[random >> 30];
            sizes[i] = 1 + (random >> 16) % 4000;
            blocks[i] = (unsigned char *)a.alloc(a.user, sizes[i], alignment);
            if (blocks[i]) {
                given++;
                CHECK((uintptr_t)blocks[i] % alignment == 0);
                CHECK(blocks[i] > arena_bytes + 3 && blocks[i] + sizes[i] <= arena_bytes + 3 + ARENA);
                memset(blocks[i], i, sizes[i]);
            } else {
                refused++;
            }
        }
    }
    CHECK_MSG(given > 5000 && refused > 100, "%u given, %u refused", given, refused);
    CHECK(arena_most(&a) == most);
    CHECK(a.alloc(a.user, SIZE_MAX, 64) == NULL);
    for (int i = 0; i < 3; i++) { CHECK(arena_bytes[i] == 0xEE); }
    for (int i = 3; i < 8; i++) { CHECK(arena_bytes[ARENA + i] == 0xEE); }
}

// A context that has nothing else trains in it, and gives all of it back.
static void arena_of_a_context(void) {
    tensor_allocator_t a = tensor_arena_allocator(arena_bytes, ARENA);
    size_t most = arena_most(&a);
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_set_error_handler(test_quiet, NULL);
    CHECK(tensor_set_allocator(&a) == 0);
    nn_module_t *net = nn_linear(2, 1);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_t *x = tensor_ones(4, 2);
    double first = 0, last = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < 20; i++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_mse_loss(nn_forward(net, x), tensor_ones(4, 1));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        last = tensor_item(loss);
        if (i == 0) { first = last; }
    }
    CHECK_MSG(tensor_ok() && last < 0.1 * first, "%g to %g: %s", first, last, tensor_error_text());
    CHECK(tensor_memory_stats().reserved_bytes <= ARENA);
    tensor_t *large = tensor_zeros(ARENA / 4);
    CHECK(tensor_is_poison(large));
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "zeros");
    CHECK(tensor_numel(tensor_zeros(8)) == 8);
    tensor_scope_end(scope);
    CHECK(tensor_context_use(before) == context);
    CHECK(tensor_context_free(context) == 0);
    CHECK(arena_most(&a) == most);
}

static void arena_too_small(void) {
    tensor_allocator_t a = tensor_arena_allocator(arena_bytes, 255);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "the buffer has 255 bytes; it needs 256 at least");
    CHECK(a.alloc(a.user, 1, 64) == NULL);
    a = tensor_arena_allocator(NULL, ARENA);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY,
                "arena_allocator: the buffer has 0 bytes; it needs 256 at least at lifetime.c:");
    CHECK(a.alloc(a.user, 1, 64) == NULL);
    a = tensor_arena_allocator(arena_bytes + 1, 256);
    CHECK(tensor_ok() && a.alloc(a.user, 1, 64) != NULL);
}

// What a getter says of a dead tensor is an error that names it; of poison it is 0 without one.
// A context is freed once; NULL is none. What is refused changes nothing.
static void contexts_misused(void) {
    tensor_t *x = tensor_ones(2);
    CHECK(tensor_context_free(NULL) == 0 && tensor_item(tensor_sum(x)) == 2);
    tensor_context_t *a = tensor_context_new(), *b = tensor_context_new();
    CHECK(tensor_context_free(a) == 0 && tensor_context_free(a) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "context_free: the argument is not a context, or it was freed");
    tensor_context_t *before = tensor_context_use(b);
    CHECK(tensor_context_use(before) == b && tensor_context_use(a) == before);
    CHECK_ERROR(TENSOR_ERR_OWNER, "context_use: the argument is not a context, or it was freed");
    CHECK(tensor_context_use(NULL) == before && tensor_context_free(b) == 0);
    CHECK(tensor_item(tensor_sum(x)) == 2);
}

static void *no_memory(void *user, size_t bytes, size_t alignment) {
    return (void)user, (void)bytes, (void)alignment, (void *)NULL;
}

// Numbers of calls that are none.
static void numbers_misused(void) {
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_allocator_t half = {no_memory, NULL, NULL};
    CHECK(tensor_set_allocator(&half) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "set_allocator: free is NULL, must be a function");
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);

    CHECK(tensor_raise(0, "nothing") == TENSOR_ERR_INTERNAL);
    CHECK_ERROR(TENSOR_ERR_INTERNAL, "nothing");
    CHECK(tensor_raise(999, "unknown") == TENSOR_ERR_INTERNAL);
    CHECK_ERROR(TENSOR_ERR_INTERNAL, "unknown");

    tensor_t *x = tensor_requires_grad_(tensor_ones(2), 1);
    CHECK(tensor_backward_with(tensor_sum(x), NULL, 99) == TENSOR_ERR_AUTOGRAD && !tensor_grad(x));
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "flags are 99, must be");

    CHECK(tensor_set_realtime(1) == 0);
    CHECK(tensor_set_num_threads(3) == TENSOR_ERR_UNSUPPORTED && tensor_get_num_threads() == 1);
    CHECK(tensor_set_realtime(0) == 0);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "set_num_threads: it takes locks and memory; not in real time");
}

static void getters(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_full(5, 2, 3);
    tensor_scope_end(scope);
    static const char *const names[] = {"ndim", "numel", "dtype", "device", "is_contiguous", "shape", "size",
                                        "stride", "storage_offset"};
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        char text[100];
        int64_t got = -1;
        switch (k) {
        case 0: got = tensor_ndim(x); break;
        case 1: got = tensor_numel(x); break;
        case 2: got = tensor_dtype(x); break;
        case 3: got = tensor_device(x) - TENSOR_CPU; break;
        case 4: got = tensor_is_contiguous(x); break;
        case 5: got = tensor_shape(x).ndim; break;
        case 6: got = tensor_size(x, 0); break;
        case 7: got = tensor_stride(x, 0); break;
        default: got = tensor_storage_offset(x);
        }
        CHECK_MSG(got == 0, "%s of a dead tensor: %d", names[k], (int)got);
        snprintf(text, sizeof text, "%s: argument x: tensor used after its scope ended", names[k]);
        CHECK_ERROR(TENSOR_ERR_OWNER, text);
    }
    tensor_t *poison = tensor_matmul(tensor_ones(2, 3), tensor_ones(2, 3));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "matmul");
    CHECK(tensor_numel(poison) == 0 && tensor_size(poison, 0) == 0 && tensor_ndim(NULL) == 0);
    CHECK_OK();
}

// Cross entropy's gradient takes the memory of its logits if nobody else has them: the values are those of a
// gradient with memory of its own. Not if a second pass will read them.
static void logits_give_their_memory(void) {
    enum { ROWS = 64, CLASSES = 4096 };
    const uint64_t bytes = ROWS * CLASSES * sizeof(float);
    tensor_t *x = tensor_requires_grad_(tensor_randn(ROWS, 8), 1);
    tensor_t *w = tensor_requires_grad_(tensor_randn(CLASSES, 8), 1);
    tensor_t *y = tensor_randint(0, CLASSES, ROWS), *grad[3];
    for (int way = 0; way < 3; way++) {         // kept; freed; freed, with a second pass
        tensor_t *logits = tensor_linear(x, w, NULL), *copy = NULL;
        if (!way) { copy = tensor_clone(tensor_detach(logits)); }
        tensor_t *loss = tensor_cross_entropy(logits, y, .label_smoothing = 0.1);
        if (way) { CHECK(tensor_free(logits) == 0); }
        tensor_reset_peak_memory();
        uint64_t before = tensor_memory_stats().live_bytes;
        if (way == 2) { CHECK(tensor_backward_with(loss, NULL, TENSOR_RETAIN_GRAPH) == 0); }
        if (way == 2) { tensor_zero_(tensor_grad(w)); }
        CHECK(tensor_backward(loss) == 0);
        uint64_t more = tensor_memory_stats().peak_bytes - before;
        CHECK_MSG(way == 1 ? more < bytes : more >= bytes, "way %d: %llu", way, (unsigned long long)more);
        if (!way) { CHECK(tensor_equal(logits, copy)); }
        grad[way] = tensor_clone(tensor_grad(w));
        tensor_zero_(tensor_grad(w));
    }
    CHECK(tensor_equal(grad[0], grad[1]) && tensor_equal(grad[0], grad[2]));
    CHECK(tensor_item(tensor_norm(grad[0])) > 0);
}

// ---- blocks that share memory ----

// Whether Linux is asked for huge pages where p is. Without Linux, or huge pages in it, the answer is yes.
static int wants_huge_pages(const void *p) {
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (!f) { return 1; }
    fclose(f);
    f = fopen("/proc/self/smaps", "r");
    int here = 0, wants = f == NULL;
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) { here = (uintptr_t)p >= from && (uintptr_t)p < to; }
        if (here && !strncmp(line, "VmFlags:", 8)) { wants = strstr(line, " hg") != NULL; }
    }
    if (f) { fclose(f); }
    return wants;
}

// Tensors of 0.2 to 5 MB, in a context of their own, which come and go: each keeps its values.
enum { BLOCKS = 24, ROUNDS = 12 };
static void *comes_and_goes(void *user) {
    int *good = (int *)user;
    *good = 1;
    for (int i = 0; i < ROUNDS; i++) {
        tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x[BLOCKS];
        for (int k = 0; k < BLOCKS; k++) {
            int64_t n = 50000 + (int64_t)(7 * i + 11 * k) % BLOCKS * 50000;
            x[k] = tensor_full(k, n);
        }
        for (int k = 0; k < BLOCKS; k++) {
            *good = *good && tensor_item(tensor_min(x[k])) == k && tensor_item(tensor_max(x[k])) == k;
        }
        tensor_scope_end(scope);
        tensor_context_use(before);
        *good = *good && tensor_context_free(context) == 0;
    }
    return NULL;
}

// A block of 1.7 MB is beside others in huge pages; where others go and come, it keeps its values.
static void blocks_share_huge_pages(void) {
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_t *x[16];
    for (int k = 0; k < 16; k++) {
        x[k] = tensor_full(k, 1152, 384);
        CHECK_MSG(wants_huge_pages(tensor_data(x[k])), "%d", k);
        CHECK((uintptr_t)tensor_data(x[k]) % 64 == 0);
    }
    pthread_t t[2];
    int good[2];
    for (int k = 0; k < 2; k++) { CHECK(pthread_create(&t[k], NULL, comes_and_goes, &good[k]) == 0); }
    for (int k = 0; k < 2; k++) {
        pthread_join(t[k], NULL);
        CHECK(good[k]);
    }
    for (int k = 0; k < 16; k++) { CHECK(tensor_item(tensor_sum(x[k])) == k * 1152.0 * 384); }
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);
}

int main(void) {
    int i;
    tensor_set_error_handler(test_quiet, NULL);
    for (i = 0; i < KEPT; i++) {
        ends(0, i);
        ends(1, i);
    }
    for (i = 0; i < INSIDE; i++) { asks(i); }
    RUN(freed_in_an_inner_scope);
    RUN(arena_blocks);
    RUN(arena_of_a_context);
    RUN(arena_too_small);
    RUN(states_are_handed_on);
    RUN(logits_give_their_memory);
    RUN(blocks_share_huge_pages);
    test_name = "shutdown_while_threads_live";
    tensor_set_error_handler(test_quiet, NULL);
    shutdown_while_threads_live();
    RUN(contexts_misused);
    RUN(numbers_misused);
    RUN(getters);
    return test_report();
}

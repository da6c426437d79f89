// threads.c - one thread trains while another infers on its own copy, both with worker threads; tensors
// handed from thread to thread; many threads reading one tensor, or passing backward through one graph.
// Meant for the thread sanitizer, true without it too.
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#include "heap.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 60, READERS = 4 };

typedef struct shared_t {
    pthread_mutex_t lock;
    nn_module_t *trained, *served;     // trained by one thread, served by the other
    tensor_t *x, *y;
    int stop, swaps, bad;
    double first_loss, last_loss;
} shared_t;

static nn_module_t *network(void) {
    return nn_sequential(nn_linear(4, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 1));
}

static void *train(void *arg) {
    shared_t *s = (shared_t *)arg;
    nn_optimizer_t *opt = nn_adam(s->trained, .lr = 0.01);
    tensor_scope_t scope = tensor_scope_begin();
    int turn;
    for (turn = 0; turn < TURNS; turn++, tensor_scope_reset(scope)) {
        tensor_t *loss = tensor_mse_loss(nn_forward(s->trained, s->x), s->y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        if (turn == 0) { s->first_loss = tensor_item(loss); }
        s->last_loss = tensor_item(loss);
        if (turn % 10 == 9) {          // hand the weights over: nobody may run the copy meanwhile
            pthread_mutex_lock(&s->lock);
            s->bad += nn_copy_state(s->served, s->trained) != 0;
            s->swaps++;
            pthread_mutex_unlock(&s->lock);
        }
    }
    tensor_scope_end(scope);
    pthread_mutex_lock(&s->lock);
    s->bad += tensor_error_code() != 0;
    s->stop = 1;
    pthread_mutex_unlock(&s->lock);
    nn_optimizer_free(opt);
    return NULL;
}

static void *infer(void *arg) {
    shared_t *s = (shared_t *)arg;
    int stop = 0;
    tensor_t *x = tensor_keep(tensor_randn(16, 4));
    while (!stop) {
        tensor_scope_t scope;
        pthread_mutex_lock(&s->lock);
        stop = s->stop;
        scope = tensor_scope_begin_no_grad();
        s->bad += !isfinite(tensor_item(tensor_sum(nn_forward(s->served, x))));
        tensor_scope_end(scope);
        pthread_mutex_unlock(&s->lock);
    }
    s->bad += tensor_free(x) != 0;
    return NULL;
}

static void train_and_infer(void) {
    shared_t s;
    pthread_t a, b;
    memset(&s, 0, sizeof s);
    pthread_mutex_init(&s.lock, NULL);
    tensor_manual_seed(3);
    s.trained = network();
    s.served = nn_clone(s.trained);
    s.x = tensor_randn(64, 4);
    s.y = tensor_sum_dim(tensor_square(s.x), 1, 1);
    CHECK_OK();
    CHECK(pthread_create(&a, NULL, train, &s) == 0);
    CHECK(pthread_create(&b, NULL, infer, &s) == 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    CHECK(s.bad == 0);
    CHECK(s.swaps == TURNS / 10);
    CHECK_MSG(s.last_loss < 0.5 * s.first_loss, "loss went from %g to %g", s.first_loss, s.last_loss);
    nn_free(s.trained);
    nn_free(s.served);
    pthread_mutex_destroy(&s.lock);
}

// A thread keeps what it made, hands it over and ends; the receiver uses and frees it.
static void *make(void *arg) {
    tensor_t **out = (tensor_t **)arg;
    tensor_scope_t scope = tensor_scope_begin();
    *out = tensor_keep(tensor_mul_scalar(tensor_ones(1000), 2));
    tensor_scope_end(scope);
    return NULL;
}
static void hand_over(void) {
    tensor_t *t = NULL;
    pthread_t a;
    int i;
    for (i = 0; i < 20; i++) {
        CHECK(pthread_create(&a, NULL, make, &t) == 0);
        pthread_join(a, NULL);
        CHECK(tensor_item(tensor_sum(t)) == 2000);
        CHECK(tensor_free(t) == 0);
    }
}

// A context whose memory is switched off: threads that have no state in it yet fail with OUT_OF_MEMORY in
// every call, and never work in another context instead; with memory they go on in it. What such a thread
// captures in the context that it came from goes on there.
typedef struct stateless_t {
    tensor_context_t *context;
    int code, freed, ok, back;
    double sum, replayed;
    char text[200];
} stateless_t;
static void *without_a_state(void *arg) {
    stateless_t *s = (stateless_t *)arg;
    tensor_t *x = tensor_ones(4);
    tensor_capture_begin(TENSOR_CPU);
    tensor_t *y = tensor_add_scalar(x, 1);
    tensor_context_t *before = tensor_context_use(s->context);
    s->ok = tensor_ok();
    tensor_sum(tensor_ones(4));
    tensor_clear_error();
    s->code = tensor_error_code();
    snprintf(s->text, sizeof s->text, "%s", tensor_error_text());
    s->freed = tensor_shutdown();
    s->back = tensor_context_use(before) == s->context && tensor_ok();
    s->freed = s->freed == tensor_context_free(s->context) ? s->freed : -1;
    tensor_t *z = tensor_mul_scalar(y, 3);
    tensor_graph_t *g = tensor_capture_end();
    tensor_fill_(x, 2);
    tensor_graph_replay(g);
    s->replayed = tensor_item(tensor_sum(z));
    tensor_graph_free(g);
    tensor_thread_end();
    return NULL;
}
static void *with_a_state(void *arg) {
    stateless_t *s = (stateless_t *)arg;
    tensor_context_use(s->context);
    s->sum = tensor_item(tensor_sum(tensor_ones(4)));
    s->code = tensor_error_code();
    return NULL;
}
static void no_states(void) {
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_allocator_t a;
    stateless_t s[2];
    pthread_t t[2];
    tensor_memory_stats_t stats;
    heap_t h = {0, -1, 1, 0, 0, 0};
    int i, turn;
    a.alloc = heap_alloc;
    a.free = heap_free;
    a.user = &h;
    CHECK(tensor_set_allocator(&a) == 0);
    CHECK(tensor_item(tensor_sum(tensor_ones(3))) == 3);
    memset(s, 0, sizeof s);
    for (turn = 0; turn < 2; turn++) {
        h.fail_at = turn == 0 ? 0 : -1;
        for (i = 0; i < 2; i++) {
            s[i].context = context;
            CHECK(pthread_create(&t[i], NULL, turn ? with_a_state : without_a_state, &s[i]) == 0);
        }
        for (i = 0; i < 2; i++) { pthread_join(t[i], NULL); }
        for (i = 0; i < 2; i++) {
            CHECK(s[i].code == (turn ? 0 : TENSOR_ERR_OUT_OF_MEMORY));
            CHECK(turn || s[i].replayed == 4 * 3 * 3);
            CHECK(turn || (!s[i].ok && s[i].back && s[i].freed == TENSOR_ERR_OUT_OF_MEMORY &&
                           strcmp(s[i].text, "no memory for the state of this thread") == 0));
            CHECK(!turn || s[i].sum == 4);
        }
    }
    stats = tensor_memory_stats();
    CHECK(stats.live_tensors == 2);             // this thread's ones and their sum
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);
    CHECK(h.blocks == 0 && h.misuse == 0);
}

// A thread captures in its own context and goes to two others meanwhile. Each allocation of those fails
// once, also that of the thread's state there: what is captured goes on when the thread is back, and in
// between it begins no second capture, which would take the place of the first.
typedef struct between_t {
    tensor_context_t *other[2];
    int again, begun, refused, code;    // begun, refused: second captures
    double replayed;
} between_t;
static void *captures_between(void *arg) {
    between_t *b = (between_t *)arg;
    tensor_context_t *own = NULL;
    tensor_t *x = tensor_ones(4);
    tensor_capture_begin(TENSOR_CPU);
    tensor_t *y = tensor_add_scalar(x, 1);
    for (int i = 0; i < 2; i++) {
        tensor_context_t *before = tensor_context_use(b->other[i]);
        if (i == 0) { own = before; }
        tensor_clear_error();           // from here on it has a state, if there is memory again
        if (!b->again) { continue; }
        int code = tensor_capture_begin(TENSOR_CPU);
        b->begun += code == 0;
        b->refused += code == TENSOR_ERR_UNSUPPORTED;
        tensor_clear_error();
    }
    tensor_context_use(own);
    tensor_t *z = tensor_mul_scalar(y, 3);
    tensor_graph_t *g = tensor_capture_end();
    b->code = tensor_error_code();
    if (g) {
        tensor_fill_(x, 2);
        tensor_graph_replay(g);
        b->replayed = tensor_item(tensor_sum(z));
        tensor_graph_free(g);
    }
    tensor_clear_error();
    tensor_thread_end();
    return NULL;
}
static void captures_between_contexts(void) {
    heap_t h = {0, -1, 0, 0, 0, 0};
    tensor_allocator_t a;
    a.alloc = heap_alloc;
    a.free = heap_free;
    a.user = &h;
    for (int turn = 0; turn < 4; turn++) {
        int again = turn % 2, failed = 1;
        h.persistent = turn / 2;
        for (long k = 0; failed; k++) {
            between_t b;
            pthread_t t;
            memset(&b, 0, sizeof b);
            b.again = again;
            for (int i = 0; i < 2; i++) {       // this thread has the state that every context has room for
                b.other[i] = tensor_context_new();
                tensor_context_t *before = tensor_context_use(b.other[i]);
                CHECK(tensor_set_allocator(&a) == 0);
                tensor_set_error_handler(test_quiet, NULL);
                tensor_context_use(before);
            }
            h.calls = 0;
            h.fail_at = k;
            CHECK(pthread_create(&t, NULL, captures_between, &b) == 0);
            pthread_join(t, NULL);
            h.fail_at = -1;
            failed = h.calls > k;
            CHECK_MSG(b.begun == 0 && (failed || b.refused == 2 * again), "k = %ld: %d begun", k, b.begun);
            CHECK_MSG(b.code == (b.refused ? TENSOR_ERR_UNSUPPORTED : 0), "k = %ld: code %d", k, b.code);
            CHECK(b.code || b.replayed == 4 * 3 * 3);
            for (int i = 0; i < 2; i++) { CHECK(tensor_context_free(b.other[i]) == 0); }
            CHECK(h.blocks == 0 && h.misuse == 0);
        }
    }
}

// Workers that wait for work take no time of a processor.
static void workers_sleep(void) {
    struct timespec wait = {0, 400000000};
    CHECK(tensor_set_num_threads(4) == 0);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_ones(300, 300);
    CHECK(tensor_item(tensor_sum(tensor_matmul(x, x))) == 300.0 * 300 * 300);
    tensor_scope_end(scope);
    clock_t before = clock();
    while (nanosleep(&wait, &wait) != 0) {}
    double used = (double)(clock() - before) / CLOCKS_PER_SEC;
    CHECK_MSG(used < 0.04, "%g s of 0.4 s", used);
    CHECK(tensor_set_num_threads(1) == 0);
}

// Views of one tensor, made and dropped by many threads at once, leave its references as they were. A thread
// counts the views that it made while another one made some, since only those can go wrong: on a busy machine
// the threads may take turns for long. With one processor there are none, so the time is limited.
enum { TOGETHER = 200000, MOST_VIEWS = 4000000 };
static pthread_barrier_t views_start;
static long views_made[READERS][16];            // a line of cache for each
typedef struct viewer_t {
    tensor_t *x;
    int me;
    long bad, together;
} viewer_t;
static void *views_of_one(void *arg) {
    viewer_t *v = (viewer_t *)arg;
    long others = 0, before = 0;
    pthread_barrier_wait(&views_start);
    for (long k = 0; k < MOST_VIEWS && v->together < TOGETHER; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        v->bad += tensor_is_poison(tensor_transpose(v->x, 0, 1));
        tensor_scope_end(scope);
        __atomic_store_n(&views_made[v->me][0], k, __ATOMIC_RELAXED);
        others = 0;
        for (int i = 0; i < READERS; i++) {
            if (i != v->me) { others += __atomic_load_n(&views_made[i][0], __ATOMIC_RELAXED); }
        }
        v->together += others != before;
        before = others;
    }
    tensor_thread_end();
    return NULL;
}
static void references_by_many(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_full(0.5, 40, 100);
    int64_t bytes = (int64_t)tensor_memory_stats().live_bytes;
    viewer_t v[READERS];
    pthread_t t[READERS];
    memset(v, 0, sizeof v);
    pthread_barrier_init(&views_start, NULL, READERS);
    for (int i = 0; i < READERS; i++) {
        v[i].x = x;
        v[i].me = i;
        CHECK(pthread_create(&t[i], NULL, views_of_one, &v[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(t[i], NULL);
        CHECK(v[i].bad == 0);
    }
    pthread_barrier_destroy(&views_start);
    CHECK((int64_t)tensor_memory_stats().live_bytes == bytes && tensor_item(tensor_sum(x)) == 2000);
    bytes = (int64_t)tensor_memory_stats().live_bytes;
    tensor_free(x);
    CHECK(bytes - (int64_t)tensor_memory_stats().live_bytes >= 4 * 40 * 100);
    CHECK_OK();
    tensor_scope_end(scope);
}

// Threads write views of one tensor, each its own rows, and then mark them as leaves; all read the rest.
enum { PART = 3 };
typedef struct part_t {
    tensor_t *whole, *rest, *leaf;      // leaf: of the last turn, kept
    int me;
    long bad;
} part_t;
static pthread_barrier_t parts_start;
static void *own_part(void *arg) {
    part_t *p = (part_t *)arg;
    for (int k = 1; k <= 100; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *part = tensor_narrow(p->whole, 0, PART * p->me, PART);
        if (k % 50 == 1) { pthread_barrier_wait(&parts_start); }
        if (k <= 50) {
            tensor_copy_(part, tensor_full(p->me + k, PART, 5));
            tensor_add_scalar_(tensor_select(part, 0, 1), 1);
        } else {
            tensor_requires_grad_(part, 1);
            tensor_backward(tensor_sum(tensor_mul(part, part)));
            p->bad += tensor_item(tensor_sum(tensor_grad(part))) != 2.0 * 5 * (PART * (p->me + 50) + 1);
        }
        p->bad += tensor_item(tensor_sum(p->rest)) != 5;
        if (k == 100) { p->leaf = tensor_keep(part); }
        tensor_scope_end(scope);
    }
    tensor_thread_end();
    return NULL;
}
static void parts_of_one(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *whole = tensor_ones(PART * READERS + 1, 5), *w = tensor_requires_grad_(tensor_ones(1), 1);
    tensor_t *saved = tensor_sum(tensor_mul(whole, w));
    double sum = 5;
    part_t p[READERS];
    pthread_t t[READERS];
    memset(p, 0, sizeof p);
    pthread_barrier_init(&parts_start, NULL, READERS);
    for (int i = 0; i < READERS; i++) {
        p[i].whole = whole;
        p[i].rest = tensor_select(whole, 0, PART * READERS);
        p[i].me = i;
        CHECK(pthread_create(&t[i], NULL, own_part, &p[i]) == 0);
        sum += 5 * (PART * (i + 50) + 1);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(t[i], NULL);
        CHECK(p[i].bad == 0);
    }
    pthread_barrier_destroy(&parts_start);
    CHECK(tensor_item(tensor_sum(whole)) == sum);

    // A graph that saved the tensor notices the changes, and the tensor knows of the leaves.
    tensor_backward(saved);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "after it was saved");
    for (int i = 0; i < READERS; i++) {
        tensor_add_(whole, tensor_sum(p[i].leaf));
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "is a leaf of the graph that it would become the result of");
        CHECK(tensor_item(tensor_sum(whole)) == sum);
        CHECK(tensor_free(p[i].leaf) == 0);
    }
    tensor_scope_end(scope);
}

// Errors, scopes and generators belong to a thread; a tensor may be read by many.
typedef struct reader_t { tensor_t *shared; double sum, draw; int code; } reader_t;
static void *read_it(void *arg) {
    reader_t *r = (reader_t *)arg;
    int i;
    tensor_manual_seed(11);
    for (i = 0; i < 50; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        r->sum = tensor_item(tensor_sum(tensor_mul(r->shared, r->shared)));
        tensor_scope_end(scope);
    }
    r->draw = tensor_item(tensor_rand(1));
    tensor_add(r->shared, tensor_ones(3));             // an error in this thread only
    r->code = tensor_error_code();
    return NULL;
}
static void many_readers(void) {
    reader_t r[READERS];
    pthread_t t[READERS];
    tensor_t *x = tensor_requires_grad_(tensor_full(0.5, 40, 100), 1);
    int i;
    for (i = 0; i < READERS; i++) {
        r[i].shared = x;
        CHECK(pthread_create(&t[i], NULL, read_it, &r[i]) == 0);
    }
    for (i = 0; i < READERS; i++) { pthread_join(t[i], NULL); }
    for (i = 0; i < READERS; i++) {
        CHECK(r[i].sum == 1000);
        CHECK(r[i].draw == r[0].draw);
        CHECK(r[i].code == TENSOR_ERR_SHAPE);
    }
    CHECK_OK();
}

// Passes in several threads at once through one graph, each from a root of its own, beside leaves with hooks:
// every thread has the gradients one alone would have. The graph is a checkpoint's, whose fn runs again once,
// or has its values packed by hooks.
typedef struct passes_t { tensor_t *root, *x, *w, *gx, *gw, *leaf; int code, *calls; } passes_t;
static pthread_barrier_t passes_start;
static tensor_t *checkpointed(tensor_t *const *in, int n, void *user) {
    passes_t *p = (passes_t *)user;
    int k;
    tensor_t *y = tensor_mul(in[0], p->w);
    (void)n;
    ++*p->calls;
    for (k = 0; k < 50; k++) { y = tensor_sin(tensor_mul(y, y)); }
    return y;
}
static tensor_t *doubled(tensor_t *g, void *user) {
    (void)user;
    return tensor_mul_scalar(g, 2);
}
static void *pack_kept(tensor_t *x, void *user) {
    (void)user;
    return tensor_keep(x);
}
static tensor_t *unpack_kept(void *packed, void *user) {
    (void)user;
    return (tensor_t *)packed;
}
static void drop_kept(void *packed, void *user) {
    (void)user;
    tensor_free((tensor_t *)packed);
}
static void *pass(void *arg) {
    passes_t *p = (passes_t *)arg;
    tensor_t *in[2], *g[2];
    in[0] = p->x;
    in[1] = p->w;
    pthread_barrier_wait(&passes_start);
    p->code = tensor_autograd_grad(&p->root, 1, NULL, in, 2, g, TENSOR_RETAIN_GRAPH);
    if (!p->code) {
        p->gx = tensor_keep(g[0]);
        p->gw = tensor_keep(g[1]);
        p->code = tensor_backward_with(p->root, NULL, TENSOR_RETAIN_GRAPH);
    }
    tensor_thread_end();
    return NULL;
}
static void passes_together(void) {
    static const tensor_saved_hooks_t hooks = {pack_kept, unpack_kept, drop_kept, NULL};
    int turn, i, calls;
    for (turn = 0; turn < 20; turn++) {
        tensor_scope_t s = tensor_scope_begin();
        int packed = turn % 2;
        passes_t p[READERS];
        pthread_t t[READERS];
        tensor_t *x = tensor_requires_grad_(tensor_rand(100), 1), *y;
        tensor_t *w = tensor_requires_grad_(tensor_rand(100), 1);
        tensor_t *leaf = tensor_requires_grad_(tensor_rand(100), 1);
        p[0].w = w;
        p[0].calls = &calls;
        calls = 0;
        tensor_register_hook(leaf, doubled, NULL);
        if (packed) {
            tensor_set_saved_tensors_hooks(&hooks);
            y = checkpointed(&x, 1, &p[0]);
            tensor_set_saved_tensors_hooks(NULL);
        } else {
            y = tensor_checkpoint(checkpointed, &p[0], &x, 1);
        }
        pthread_barrier_init(&passes_start, NULL, READERS);
        for (i = 0; i < READERS; i++) {
            p[i] = p[0];
            p[i].x = x;
            p[i].root = tensor_sum(tensor_mul(y, leaf));
        }
        for (i = 0; i < READERS; i++) { CHECK(pthread_create(&t[i], NULL, pass, &p[i]) == 0); }
        for (i = 0; i < READERS; i++) { pthread_join(t[i], NULL); }
        pthread_barrier_destroy(&passes_start);
        CHECK_MSG(calls == 2 - packed, "fn ran %d times", calls);
        for (i = 0; i < READERS; i++) {
            CHECK(p[i].code == 0 && test_same_bits(p[i].gx, p[0].gx) && test_same_bits(p[i].gw, p[0].gw));
        }
        CHECK(test_same_bits(tensor_grad(x), tensor_mul_scalar(p[0].gx, READERS)));
        CHECK(test_same_bits(tensor_grad(leaf), tensor_mul_scalar(tensor_detach(y), 2 * READERS)));
        for (i = 0; i < READERS; i++) { tensor_free(p[i].gx), tensor_free(p[i].gw); }
        tensor_scope_end(s);
    }
    CHECK_OK();
}

// Modules of one thread's own: what they share inside the library (the list of things to free) is locked.
static void *own_modules(void *arg) {
    long bad = 0;
    (void)arg;
    for (int k = 0; k < 300; k++) {
        nn_module_t *m = nn_sequential(nn_linear(4, 4), nn_dropout(0.5));
        bad += !m || nn_free(m) != 0;
    }
    tensor_thread_end();
    return (void *)bad;
}
static void modules_apart(void) {
    pthread_t t[2];
    for (int k = 0; k < 2; k++) { CHECK(pthread_create(&t[k], NULL, own_modules, NULL) == 0); }
    for (int k = 0; k < 2; k++) {
        void *bad;
        pthread_join(t[k], &bad);
        CHECK(bad == NULL);
    }
}

// A captured step goes from thread to thread, one at a time: the one that captured it ends, others replay it
// whole and in slices, and the bits are those of one thread.
typedef struct captured_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
    tensor_graph_t *graph;
    int bad, inside, outside;   // codes of replays while the graph runs: in its thread, in another one
} captured_t;
enum { CAPTURED_STEPS = 12 };

static void captured_step(captured_t *c) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(c->opt);
    tensor_backward(tensor_mse_loss(nn_forward(c->net, c->x), c->y));
    nn_step(c->opt);
    tensor_scope_end(scope);
}
static void captured_make(captured_t *c) {
    memset(c, 0, sizeof *c);
    tensor_manual_seed(4);
    c->net = network();
    c->opt = nn_adam(c->net, .lr = 0.01);
    c->x = tensor_randn(64, 4);
    c->y = tensor_randn(64, 1);
}
static void capture(captured_t *c) {
    captured_step(c);
    c->bad += tensor_capture_begin(TENSOR_CPU) != 0;
    captured_step(c);
    c->graph = tensor_capture_end();
    c->bad += !c->graph;
}
static void *capture_it(void *arg) {
    capture((captured_t *)arg);
    tensor_thread_end();
    return NULL;
}
static void *replay_it(void *arg) {
    captured_t *c = (captured_t *)arg;
    c->bad += tensor_graph_replay(c->graph) != 0;
    int r = tensor_graph_resume(c->graph, 0);           // the main thread ends this step
    c->bad += r != 0;
    tensor_thread_end();
    return NULL;
}
static void captured_elsewhere(void) {
    captured_t c, alone;
    captured_make(&alone);
    for (int i = 0; i < CAPTURED_STEPS + 2; i++) { captured_step(&alone); }
    captured_make(&c);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, capture_it, &c) == 0);
    pthread_join(t, NULL);
    for (int i = 0; i < CAPTURED_STEPS; i += 3) {
        CHECK(pthread_create(&t, NULL, replay_it, &c) == 0);
        pthread_join(t, NULL);
        while (tensor_graph_resume(c.graph, 5) == 0) { }
        CHECK(tensor_graph_replay(c.graph) == 0);
    }
    CHECK(c.bad == 0);
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.%s", i / 2 * 2, i % 2 ? "bias" : "weight");
        CHECK_MSG(test_same_bits(nn_get(c.net, name), nn_get(alone.net, name)), "%s", name);
    }
    CHECK(tensor_graph_free(c.graph) == 0);
    nn_optimizer_free(c.opt);
    nn_optimizer_free(alone.opt);
    nn_free(c.net);
    nn_free(alone.net);
}

// While a graph runs, nobody else runs or frees it: not another thread, and not a listener in its own.
static void *replay_too(void *arg) {
    captured_t *c = (captured_t *)arg;
    int freed = tensor_graph_free(c->graph);
    c->bad += freed != TENSOR_ERR_OWNER || !strstr(tensor_error_text(), "graph_free: the graph runs");
    tensor_clear_error();
    c->outside = tensor_graph_replay(c->graph);
    c->bad += !strstr(tensor_error_text(), "graph_replay: the graph runs; one thread at a time may run it");
    tensor_clear_error();
    c->bad += tensor_graph_resume(c->graph, 1) != -c->outside;
    tensor_clear_error();
    tensor_thread_end();
    return NULL;
}
static void listen(void *user, const tensor_profiler_call_t *call) {
    captured_t *c = (captured_t *)user;
    pthread_t t;
    (void)call;
    if (c->outside) { return; }
    int made = pthread_create(&t, NULL, replay_too, c);
    pthread_join(t, NULL);
    c->bad += made != 0;
    c->inside = tensor_graph_replay(c->graph);
    tensor_clear_error();
}
static void captured_twice(void) {
    captured_t c;
    captured_make(&c);
    capture(&c);
    tensor_profiler_t hears;
    memset(&hears, 0, sizeof hears);
    hears.user = &c;
    hears.begin = listen;
    CHECK(tensor_profiler_set(&hears) == 0);
    CHECK(tensor_graph_replay(c.graph) == 0);
    CHECK(tensor_profiler_set(NULL) == 0);
    CHECK(c.bad == 0 && c.outside == TENSOR_ERR_OWNER && c.inside == TENSOR_ERR_OWNER);
    CHECK(tensor_graph_replay(c.graph) == 0 && tensor_graph_free(c.graph) == 0);
    nn_optimizer_free(c.opt);
    nn_free(c.net);
}

// A job system of threads that use the default context, and work for another one in between.
typedef struct job_t {
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t i;
    int lost;               // what the thread had in its own context
} job_t;
static void *run_job(void *arg) {
    job_t *j = (job_t *)arg;
    tensor_t *x = tensor_full(7, 3);
    j->task(j->arg, j->i);
    j->lost = tensor_item(tensor_sum(x)) != 21 || tensor_item(tensor_matmul(x, x)) != 147;
    tensor_thread_end();
    return NULL;
}
static int jobs_lost;
static void on_threads(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    pthread_t t[2];
    job_t j[2];
    (void)user;
    for (int64_t i = 0; i < n; i += 2) {
        int64_t most = n - i < 2 ? n - i : 2;
        for (int64_t k = 0; k < most; k++) {
            j[k].task = task, j[k].arg = arg, j[k].i = i + k;
            pthread_create(&t[k], NULL, run_job, &j[k]);
        }
        for (int64_t k = 0; k < most; k++) {
            pthread_join(t[k], NULL);
            jobs_lost += j[k].lost;
        }
    }
}
static uint64_t gradients_of_kernels(void) {
    uint64_t h = TEST_HASH;
    tensor_manual_seed(5);
    for (int step = 1; step < 3; step++) {
        tensor_t *x = tensor_randn(4, 8, 20, 20), *w = tensor_randn(8, 8, 3, 3), *y;
        tensor_requires_grad_(w, 1);
        y = tensor_conv2d(x, w, NULL, .padding = 1, .stride = step);
        tensor_backward(tensor_sum(tensor_mul(y, y)));
        h = test_hash(h, tensor_grad(w));
    }
    return h;
}
// The tasks of a context have its instruction set and its threads, whatever the threads use otherwise.
static void tasks_of_a_context(void) {
    tensor_context_t *own, *before;
    CHECK(tensor_set_num_threads(3) == 0);
    own = tensor_context_new();
    before = tensor_context_use(own);
    tensor_set_error_handler(test_quiet, NULL);
    if (tensor_set_isa("scalar") && tensor_set_isa("sse2")) {
        tensor_clear_error();       // not in this build
    }
    tensor_scope_t scope = tensor_scope_begin();
    uint64_t alone = gradients_of_kernels();
    CHECK(tensor_set_parallel_for(on_threads, NULL, 2) == 0);
    CHECK(gradients_of_kernels() == alone && jobs_lost == 0);
    for (int k = 0; k < 8; k++) {
        CHECK(tensor_set_num_threads(1 + k % 4) == 0);
        CHECK(gradients_of_kernels() == alone);
    }
    CHECK_OK();
    tensor_scope_end(scope);
    tensor_context_use(before);
    CHECK(tensor_context_free(own) == 0);
    CHECK(tensor_set_num_threads(1) == 0);
}

// Tasks need no memory for a state: they work as ever on threads that have none in the context and could get
// none, threads of the user's, with a state in another context or without, and the library's own.
static void *run_task(void *arg) {
    job_t *j = (job_t *)arg;
    j->task(j->arg, j->i);
    return NULL;
}
static void on_bare_threads(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    (void)user;
    for (int64_t i = 0; i < n; i++) {
        pthread_t t;
        job_t j = {task, arg, i, 0};
        pthread_create(&t, NULL, run_task, &j);
        pthread_join(t, NULL);
    }
}
static void in_turn(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    (void)user;
    for (int64_t i = 0; i < n; i++) { task(arg, i); }
}
static uint64_t gradients_in_a_scope(void) {
    tensor_scope_t scope = tensor_scope_begin();
    uint64_t h = gradients_of_kernels();
    tensor_scope_end(scope);
    return h;
}
static void tasks_without_memory(void) {
    static const tensor_parallel_fn_t hooks[] = {on_bare_threads, on_threads, NULL};
    for (int kind = 0; kind < 3; kind++) {
        tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
        heap_t h = {0, -1, 1, 0, 0, 0};
        tensor_allocator_t a;
        a.alloc = heap_alloc;
        a.free = heap_free;
        a.user = &h;
        CHECK(tensor_set_allocator(&a) == 0);
        tensor_set_error_handler(test_quiet, NULL);
        if (tensor_set_isa("scalar") && tensor_set_isa("sse2")) {
            tensor_clear_error();       // not in this build
        }
        CHECK(tensor_set_parallel_for(in_turn, NULL, 3) == 0);
        uint64_t want = gradients_in_a_scope();
        for (int k = 0; k < 3; k++) { CHECK(gradients_in_a_scope() == want); }
        if (hooks[kind]) {
            CHECK(tensor_set_parallel_for(hooks[kind], NULL, 3) == 0);
        } else {
            CHECK(tensor_set_num_threads(3) == 0);
        }
        h.calls = 0;
        h.fail_at = 0;
        for (int k = 0; k < 10; k++) {
            CHECK_MSG(gradients_in_a_scope() == want, "threads of kind %d have other bits", kind);
        }
        CHECK_OK();
        CHECK_MSG(h.calls == 0, "threads of kind %d wanted %ld blocks", kind, h.calls);
        h.fail_at = -1;
        tensor_context_use(before);
        CHECK(tensor_context_free(own) == 0);
        CHECK(h.blocks == 0 && h.misuse == 0 && jobs_lost == 0);
    }
}

// A child of fork has the caller alone: it computes, asks, starts threads of its own and shuts down.
static void forks(void) {
    CHECK(tensor_set_num_threads(3) == 0);
    for (int k = 0; k < 12; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_randn(130, 130), *y = tensor_matmul(x, x);
        int status = -1;
        pid_t child;
        usleep(k % 2 ? 3000 : 0);       // workers asleep, and awake
        child = fork();
        if (child == 0) {
            int bad = 0;
            alarm(20);
            if (k % 4 == 0) { bad += tensor_get_num_threads() != 1; }
            if (k % 4 == 1) { bad += tensor_set_num_threads(2) != 0; }
            if (k % 4 == 2) { bad += tensor_set_num_threads(1) != 0; }
            bad += !tensor_equal(tensor_matmul(x, x), y) || !tensor_ok();
            bad += tensor_shutdown() != 0;
            _exit(bad);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(tensor_equal(tensor_matmul(x, x), y) && tensor_get_num_threads() == 3);
        tensor_scope_end(scope);
    }
    CHECK(tensor_set_num_threads(1) == 0);
}

// Two threads in turn run the slices of one step. A call that is longer than a slice goes on where the other
// thread left it: it ends, and what it changes in place is changed once.
typedef struct turns_t {
    tensor_graph_t *graph;
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int turn, slices, result;
} turns_t;
typedef struct turn_t { turns_t *turns; int me; } turn_t;
static void *slices_in_turn(void *arg) {
    turn_t *mine = (turn_t *)arg;
    turns_t *t = mine->turns;
    pthread_mutex_lock(&t->lock);
    while (t->result == 0 && t->slices < 5000) {
        if (t->turn != mine->me) {
            pthread_cond_wait(&t->turned, &t->lock);
            continue;
        }
        t->result = tensor_graph_resume(t->graph, 50);
        t->slices++;
        t->turn = !t->turn;
        pthread_cond_broadcast(&t->turned);
    }
    pthread_cond_broadcast(&t->turned);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
static void slices_of_two(void) {
    tensor_t *x = tensor_ones(2048, 2048), *a = tensor_rand(600, 700), *b = tensor_rand(700, 500), *c, *want;
    tensor_graph_t *g;
    int round, k;
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_mul_scalar_(tensor_narrow(x, 1, 0, 1500), 2);
    c = tensor_matmul(a, b);
    g = tensor_capture_end();
    want = tensor_clone(c);
    for (round = 0; round < 2; round++) {
        turns_t t;
        turn_t each[2];
        pthread_t thread[2];
        memset(&t, 0, sizeof t);
        t.graph = g;
        pthread_mutex_init(&t.lock, NULL);
        pthread_cond_init(&t.turned, NULL);
        tensor_fill_(x, 1);
        tensor_fill_(c, 0);
        for (k = 0; k < 2; k++) {
            each[k].turns = &t;
            each[k].me = k;
            CHECK(pthread_create(&thread[k], NULL, slices_in_turn, &each[k]) == 0);
        }
        for (k = 0; k < 2; k++) { pthread_join(thread[k], NULL); }
        CHECK_MSG(t.result == 1, "not done after %d slices", t.slices);
        CHECK(t.slices > 3);
        CHECK(tensor_item(tensor_max(x)) == 2 && tensor_item(tensor_sum(x)) == 2048.0 * (2 * 1500 + 548));
        CHECK(tensor_equal(c, want));
        pthread_mutex_destroy(&t.lock);
        pthread_cond_destroy(&t.turned);
    }
    CHECK(tensor_graph_free(g) == 0);
}

// A net that another thread has made, whose numbers this thread has converted: what its step changes in place
// is older than a capture, whichever thread made the tensor and its memory.
static nn_module_t *background;
static void *make_background(void *arg) {
    (void)arg;
    background = nn_sequential(nn_linear(4, 8), nn_batch_norm1d(8));
    return NULL;
}
static uint64_t outputs_of(int elsewhere, int converted) {
    pthread_t thread;
    if (elsewhere) {
        CHECK(pthread_create(&thread, NULL, make_background, NULL) == 0 && pthread_join(thread, NULL) == 0);
    } else {
        make_background(NULL);
    }
    if (converted) { CHECK(nn_to(background, TENSOR_F64) == 0 && nn_to(background, TENSOR_F32) == 0); }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x = tensor_ones(3, 4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_mul_scalar_(nn_get(background, "1.running_mean"), 0.5);      // written first, then read
    tensor_t *y = nn_forward(background, x);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    CHECK(y && tensor_graph_replay(g) == 0);
    uint64_t bytes = tensor_graph_info(g).output_bytes;
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
    nn_free(background);
    return bytes;
}
static void made_in_the_background(void) {
    uint64_t want = outputs_of(0, 0);
    for (int how = 1; how < 4; how++) { CHECK(outputs_of(how & 1, how >> 1) == want); }
}

// A capture begins while another thread makes tensors. The thread sanitizer watches.
static void *make_tensors(void *arg) {
    (void)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < 3000; i++) { tensor_ones(1); }
    tensor_scope_end(scope);
    return NULL;
}
static void captured_beside(void) {
    pthread_t thread;
    tensor_t *x = tensor_ones(4);
    CHECK(pthread_create(&thread, NULL, make_tensors, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_relu(x);
        tensor_scope_end(scope);
        CHECK(tensor_graph_free(tensor_capture_end()) == 0);
    }
    pthread_join(thread, NULL);
}

// A capture begins, and a graph is freed, while another thread frees tensors that this one made: replays
// write into none of the tensors made since.
enum { HANDED = 400, ROUNDS_HANDED = 40 };
static tensor_t *handed[HANDED], *read_by_both;
static pthread_barrier_t handed_over;
static void *free_handed(void *arg) {
    (void)arg;
    for (int r = 0; r < ROUNDS_HANDED; r++) {
        pthread_barrier_wait(&handed_over);
        for (int i = 0; i < HANDED; i++) { tensor_free(handed[i]); }
        pthread_barrier_wait(&handed_over);
        tensor_free(read_by_both);
        pthread_barrier_wait(&handed_over);
    }
    tensor_thread_end();
    return NULL;
}
static void freed_beside(void) {
    pthread_t thread;
    tensor_t *w = tensor_mul_scalar(tensor_ones(8, 8), 0.125), *since[HANDED];
    int spoilt = 0, differ = 0;
    uint64_t most = 0;
    pthread_barrier_init(&handed_over, NULL, 2);
    CHECK(pthread_create(&thread, NULL, free_handed, NULL) == 0);
    for (int r = 0; r < ROUNDS_HANDED; r++) {
        tensor_scope_t scope = tensor_scope_begin();
        for (int i = 0; i < HANDED; i++) { handed[i] = tensor_keep(tensor_add_scalar(w, i)); }
        read_by_both = tensor_keep(tensor_clone(w));
        tensor_scope_end(scope);
        scope = tensor_scope_begin();
        pthread_barrier_wait(&handed_over);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t step = tensor_scope_begin();
        tensor_t *y = w;
        for (int i = 0; i < HANDED / 2; i++) { y = tensor_tanh(tensor_matmul(y, read_by_both)); }
        y = tensor_scope_return(step, y);
        tensor_graph_t *g = tensor_capture_end();
        uint64_t bytes = tensor_graph_info(g).input_bytes;
        most = bytes > most ? bytes : most;
        tensor_t *want = tensor_clone(y);
        for (int i = 0; i < HANDED; i++) { since[i] = tensor_add_scalar(tensor_zeros(8, 8), 7); }
        CHECK(tensor_graph_replay(g) == 0);
        differ += !tensor_equal(y, want);
        for (int i = 0; i < HANDED; i++) { spoilt += tensor_item(tensor_min(since[i])) != 7; }
        pthread_barrier_wait(&handed_over);
        CHECK(tensor_graph_free(g) == 0);           // while the other thread frees what the graph reads
        pthread_barrier_wait(&handed_over);
        tensor_scope_end(scope);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&handed_over);
    CHECK_MSG(!spoilt && !differ && most == 512, "%d tensors spoilt, %d replays differ, %d bytes of inputs",
              spoilt, differ, (int)most);
}

// Real time: a replay that has woken workers gives the code of the error that this is.
static void woken(void) {
    tensor_t *x = tensor_randn(500, 500);
    CHECK(tensor_set_num_threads(2) == 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_matmul(x, x);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_replay(g) == 0);
    for (int slices = 0; slices < 2; slices++) {
        usleep(200000);                     // they sleep
        CHECK(tensor_set_realtime(1) == 0);
        int code = slices ? -tensor_graph_resume(g, 1e9) : tensor_graph_replay(g);
        CHECK(tensor_set_realtime(0) == 0);
        CHECK(code == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "a lock of the system is taken, in real time");
    }
    CHECK(tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
    CHECK(tensor_set_num_threads(1) == 0);
}

int main(int argc, char **argv) {
    (void)argv;
#ifdef __SANITIZE_THREAD__
    argc = 2;
#endif
    // An emulator (tests/arm.sh tells) and the thread sanitizer do not follow a child of several threads.
    if (argc > 1) {
        puts("skipped 1 test of fork");
    } else {
        RUN(forks);
    }
    RUN(train_and_infer);
    RUN(hand_over);
    RUN(no_states);
    RUN(captures_between_contexts);
    RUN(slices_of_two);
    RUN(many_readers);
    RUN(workers_sleep);
    RUN(references_by_many);
    RUN(parts_of_one);
    RUN(modules_apart);
    RUN(passes_together);
    RUN(captured_elsewhere);
    RUN(captured_twice);
    RUN(made_in_the_background);
    RUN(captured_beside);
    RUN(freed_beside);
    RUN(woken);
    RUN(tasks_of_a_context);
    RUN(tasks_without_memory);
    CHECK(tensor_set_num_threads(3) == 0);
    RUN(train_and_infer);
    RUN(hand_over);
    RUN(no_states);
    RUN(slices_of_two);
    RUN(many_readers);
    RUN(passes_together);
    RUN(captured_elsewhere);
    return test_report();
}

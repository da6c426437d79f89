// recorder.c - what a recorder hears of: each access of the host to elements, with its name and its purpose,
// and each call of a kernel; what it refuses fails with a text and has changed nothing
#define TENSOR_BACKEND
#include "tensor_nn.h"

#include "mirror.h"

#include <pthread.h>

// An access is written as "op purpose", by the letters r(ead), w(rite), s(hape); a call by its row's name.
typedef struct seen_t {
    tensor_recorder_t base;
    const char *host_refused, *call_refused; // op, row; NULL = none
    int uses_refused;
    int hosts, calls;
    char hosts_text[2000], last_call[40];
} seen_t;

static int see_call(tensor_recorder_t *self, const tensor_call_t *call) {
    seen_t *s = (seen_t *)(void *)self;
    s->calls++;
    snprintf(s->last_call, sizeof s->last_call, "%s", call->row->name);
    if (!s->call_refused || strcmp(s->call_refused, call->row->name)) return 0;
    TENSOR__(fail)(call->thread, TENSOR_ERR_UNSUPPORTED, "%s: not now", call->row->name);
    return TENSOR_ERR_UNSUPPORTED;
}

static int see_host(tensor_recorder_t *self, const tensor__storage_t *storage, uint64_t bytes, int use,
                    const char *op) {
    seen_t *s = (seen_t *)(void *)self;
    size_t at = strlen(s->hosts_text);
    CHECK(storage != NULL && bytes > 0 && bytes <= storage->bytes);
    s->hosts++;
    snprintf(s->hosts_text + at, sizeof s->hosts_text - at, "%s%s %s%s%s%s", at ? ", " : "", op,
             use & TENSOR_HOST_READ ? "r" : "", use & TENSOR_HOST_WRITE ? "w" : "",
             use & TENSOR_SHAPE_FROM_DATA ? "s" : "", storage->device ? " device" : "");
    if ((s->host_refused && !strcmp(s->host_refused, op)) || (s->uses_refused & use))
        return TENSOR_ERR_UNSUPPORTED;
    return 0;
}

static seen_t seen;

static void watch_from_now(void) {
    memset(&seen, 0, sizeof seen);
    seen.base.call = see_call;
    seen.base.host = see_host;
    CHECK(TENSOR__(set_recorder)(&seen.base) == NULL);
}
static void end_watch(void) {
    CHECK(TENSOR__(set_recorder)(NULL) == &seen.base);
}

// The accesses of the statements are those of the text.
#define HEARS(text, ...)                                                                                     \
    {                                                                                                        \
        watch_from_now();                                                                                    \
        __VA_ARGS__;                                                                                         \
        end_watch();                                                                                         \
        CHECK_OK();                                                                                          \
        CHECK_TEXT(seen.hosts_text, text);                                                                   \
    }
// With accesses of these purposes refused, the statements fail with a text that holds `part`.
#define REFUSED(uses, part, ...)                                                                             \
    {                                                                                                        \
        watch_from_now();                                                                                    \
        seen.uses_refused = uses;                                                                            \
        __VA_ARGS__;                                                                                         \
        end_watch();                                                                                         \
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, part);                                                           \
    }
enum { ANY = TENSOR_HOST_READ | TENSOR_HOST_WRITE | TENSOR_SHAPE_FROM_DATA };

static void elements(void) {
    float data[6] = {1, 2, 3, 4, 5, 6}, out[6];
    char text[200];
    tensor_t *x = tensor_from(data, TENSOR_F32, 2, 3), *y = tensor_clone(x),
             *one = tensor_scalar(3, TENSOR_F32);
    HEARS("item r", CHECK(tensor_item(one) == 3))
    HEARS("item_i64 r", CHECK(tensor_item_i64(one) == 3))
    HEARS("from w", tensor_from(data, TENSOR_F32, 6))
    HEARS("", tensor_from(data, TENSOR_F32, 0))
    HEARS("copy_out r", CHECK(tensor_copy_out(x, out, sizeof out) == 0 && out[5] == 6))
    HEARS("copy_out r",
          CHECK(tensor_copy_out(tensor_transpose(x, 0, 1), out, sizeof out) == 0 && out[1] == 4))
    HEARS("data r", CHECK(((const float *)tensor_data(x))[5] == 6))
    HEARS("data_mut rw", ((float *)tensor_data_mut(y))[0] = 1)
    HEARS("print r", tensor_to_string(x, text, sizeof text))
    HEARS("allclose r, allclose r", CHECK(tensor_allclose(x, y, 0, 0)))
    HEARS("equal r, equal r", CHECK(tensor_equal(x, y)))
    REFUSED(ANY, "item: the host reads a tensor's elements", CHECK(isnan(tensor_item(one))))
    REFUSED(ANY, "item_i64: the host reads a tensor's elements", CHECK(tensor_item_i64(one) == 0))
    REFUSED(ANY, "from: memory of the host cannot be read",
            CHECK(tensor_is_poison(tensor_from(data, TENSOR_F32, 6))))
    out[0] = 7;
    REFUSED(ANY, "copy_out: the host reads",
            CHECK(tensor_copy_out(x, out, sizeof out) == TENSOR_ERR_UNSUPPORTED && out[0] == 7))
    REFUSED(ANY, "data: the host reads", CHECK(tensor_data(x) == NULL))
    REFUSED(ANY, "data_mut: the host reads", CHECK(tensor_data_mut(x) == NULL))
    REFUSED(ANY, "print: the host reads", tensor_to_string(x, text, sizeof text))
    CHECK_TEXT(text, "tensor(poison)");
    REFUSED(ANY, "equal: the host reads", CHECK(!tensor_equal(x, y)))
    CHECK(tensor_equal(x, y));
}

static void numbers_for_fronts(void) {
    int64_t ints[4] = {0, 2, 1, 2};
    float reals[4] = {0.25F, 0.5F, 0.75F, 1};
    tensor_t *i = tensor_from(ints, TENSOR_I64, 4), *r = tensor_from(reals, TENSOR_F32, 4);
    HEARS("nonzero s", tensor_nonzero(i))
    HEARS("mask s", tensor_masked_select(r, tensor_gt_scalar(r, 0.3)))
    HEARS("one_hot s", tensor_one_hot(i, -1))
    HEARS("", tensor_one_hot(i, 3))
    HEARS("repeat_interleave r, repeat_interleave s", tensor_repeat_interleave_tensor(r, i, 0))
    HEARS("bincount r, bincount s", tensor_bincount(i, NULL, 0))
    HEARS("histc r, histc r, mask s, bincount r, bincount s", tensor_histc(r, 4, 0, 0))
    HEARS("quantile r", tensor_quantile(r, r))
    HEARS("bernoulli r, bernoulli r", tensor_bernoulli(r))
    HEARS("normal r", tensor_normal(r, r))
    HEARS("linalg_matrix_exp r", tensor_linalg_matrix_exp(tensor_eye(3, 3)))
    // What only needs a shape that is known passes where shapes from elements are refused.
    REFUSED(TENSOR_SHAPE_FROM_DATA, "nonzero: the host reads a tensor's elements for a shape",
            tensor_nonzero(i))
    REFUSED(TENSOR_SHAPE_FROM_DATA, "one_hot: the host reads a tensor's elements for a shape",
            CHECK(tensor_is_poison(tensor_one_hot(i, -1))))
    watch_from_now();
    seen.uses_refused = TENSOR_SHAPE_FROM_DATA;
    tensor_quantile(r, r);
    end_watch();
    CHECK_OK();
}

static tensor_t *squares(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul(in[0], in[0]);
}

// A refused number of elements fails the front: no result of that shape is made.
static void refused_shapes(void) {
    tensor_t *x = tensor_ones(1000), *mask = tensor_gt_scalar(x, 0), *i = tensor_to(x, TENSOR_I64), *y[6];
    int k;
    watch_from_now();
    seen.uses_refused = TENSOR_SHAPE_FROM_DATA;
    y[0] = tensor_nonzero(x);
    y[1] = tensor_masked_select(x, mask);
    y[2] = tensor_bincount(i, NULL, 0);
    y[3] = tensor_one_hot(i, -1);
    y[4] = tensor_repeat_interleave_tensor(x, i, 0);
    y[5] = tensor_add_scalar(x, 1);
    end_watch();
    for (k = 0; k < 6; k++)
        CHECK_MSG(tensor_is_poison(y[k]) == (k < 5), "%d", k);
    tensor_clear_error();
}

static void networks(void) {
    int64_t ints[4] = {0, 2, 1, 2};
    float rows[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    double two[2] = {1, 2};
    tensor_t *i = tensor_from(ints, TENSOR_I64, 4), *w = tensor_from(rows, TENSOR_F32, 4, 2), *in[1], *t;
    nn_module_t *m = nn_linear(2, 2);
    nn_optimizer_t *opt = nn_adam(m);
    nn_batch_t batch;
    nn_dataset_t set;
    nn_data_loader_t *loader;
    const char *name = "w";
    nn_safetensors_t *file;
    int64_t start = 0;
    tensor_t *offsets = tensor_from(&start, TENSOR_I64, 1);
    HEARS("embedding_bag s, embedding_bag w, embedding_bag w", tensor_embedding_bag(i, w, .offsets = offsets))
    HEARS("avg_pool w", tensor_avg_pool2d(tensor_ones_of(TENSOR_I32, 1, 1, 4, 4), 2))
    HEARS("sparse_ w, sparse_ r, sparse_ r", nn_init_sparse_(tensor_zeros(3, 2), 0.5, 1))
    HEARS("safetensors_format w, safetensors r", t = nn_safetensors_format(&name, &w, 1, NULL, 0))
    file = nn_safetensors_parse(tensor_data(t), (size_t)tensor_numel(t));
    HEARS("safetensors w", t = nn_safetensors_get(file, "w"))
    CHECK(tensor_equal(t, w));
    nn_safetensors_close(file);
    set = nn_tensor_dataset(w, i);
    HEARS("data_loader r, data_loader r", loader = nn_data_loader(set, .batch_size = 2))
    HEARS("next w, next w", CHECK(nn_next(loader, &batch)))
    REFUSED(TENSOR_HOST_WRITE, "next: memory of the host", CHECK(!nn_next(loader, &batch)))
    CHECK(nn_data_loader_free(loader) == 0);
    CHECK(tensor_backward(tensor_sum(nn_forward(m, w))) == 0);
    HEARS("clip_grad_norm w", nn_clip_grad_norm(opt, 1))
    in[0] = tensor_requires_grad_(tensor_from(two, TENSOR_F64, 2), 1);
    watch_from_now();
    CHECK(tensor_gradcheck(squares, NULL, in, 1, 0, 0, 0) == 0);
    end_watch();
    CHECK(!strncmp(seen.hosts_text, "gradcheck r, gradcheck r, gradcheck rw, gradcheck r", 50));
    // An optimizer's step reads nothing at the host.
    HEARS("", CHECK(nn_step(opt) == 0))
    nn_optimizer_free(opt);
    nn_free(m);
}

static void calls(void) {
    tensor_t *x = tensor_randn(3, 5), *y;
    watch_from_now();
    y = tensor_cumsum(x, 1);
    end_watch();
    CHECK_MSG(seen.calls == 1 && !seen.hosts && !strcmp(seen.last_call, "cumsum"),
              "%d calls, the last one of %s", seen.calls, seen.last_call);
    watch_from_now();
    seen.call_refused = "cumsum";
    y = tensor_cumsum(x, 1);
    end_watch();
    CHECK(tensor_is_poison(y));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "cumsum: not now");
    // In place: what a refused call would have changed is as before, its version too.
    y = tensor_clone(x);
    watch_from_now();
    seen.call_refused = "mul";
    CHECK(tensor_is_poison(tensor_mul_(x, y)));
    end_watch();
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "mul_: not now");
    CHECK(tensor_equal(x, y));
}

static void devices(void) {
    float data[4] = {1, 2, 3, 4};
    tensor_t *x = on(tensor_from(data, TENSOR_F32, 4)), *y;
    HEARS("item r device", CHECK(tensor_item(tensor_select(x, 0, 2)) == 3))
    HEARS("to r device", y = off(x))
    HEARS("to w device", on(y))
    HEARS("to r device, print r", {
        char text[80];
        tensor_to_string(x, text, sizeof text);
    })
    HEARS("copy_out r device", CHECK(tensor_copy_out(x, data, sizeof data) == 0))
    CHECK(tensor_set_default_device(TENSOR_CUDA) == 0);
    HEARS("from w device", tensor_from(data, TENSOR_F32, 4))
    CHECK(tensor_set_default_device(TENSOR_CPU) == 0);
    REFUSED(TENSOR_HOST_READ, "to: the host reads a tensor's elements", CHECK(tensor_is_poison(off(x))))
    REFUSED(TENSOR_HOST_WRITE, "to: memory of the host cannot be read", CHECK(tensor_is_poison(on(y))))
    // A pointer to memory of a device is refused as without a recorder, which does not hear of it.
    watch_from_now();
    CHECK(tensor_data(x) == NULL);
    end_watch();
    CHECK_ERROR(TENSOR_ERR_DEVICE, "data: x");
    CHECK(!seen.hosts);
}

// A recorder is set for the thread, whatever context it uses, and nothing stays behind.
static void contexts(void) {
    tensor_context_t *other = tensor_context_new(), *before;
    tensor_t *one;
    watch_from_now();
    before = tensor_context_use(other);
    one = tensor_scalar(1, TENSOR_F32);
    tensor_item(one);
    CHECK_TEXT(seen.hosts_text, "item r");
    tensor_context_use(before);
    end_watch();
    CHECK(TENSOR__(set_recorder)(NULL) == NULL);
    before = tensor_context_use(other);
    CHECK(TENSOR__(set_recorder)(NULL) == NULL);
    tensor_context_use(before);
    CHECK(tensor_context_free(other) == 0);
}

// What a profiler hears, as words: "matmul()" a call, "[name ]" a range, "@function" a site, "{ }" a pass,
// "<op" a gradient.
static char heard[4000];
static int64_t heard_bytes[2];      // taken on the CPU, on the device
static uint64_t heard_nodes[120];    // that the pass came to
static int heard_gradients, heard_wrong, heard_captured;

static void hear(const char *text, const char *more) {
    size_t at = strlen(heard);
    snprintf(heard + at, sizeof heard - at, "%s%s", text, more);
}
static void hear_begin(void *user, const tensor_profiler_call_t *call) {
    heard_wrong += user != heard || call->inputs < 0 || call->outputs < 1;
    heard_captured += call->captured;
    hear(heard[0] ? " " : "", call->op);
    hear("(", "");
}
static void hear_end(void *user, const tensor_profiler_call_t *call) {
    tensor_profiler_operand_t y = tensor_profiler_operand(call, call->inputs);
    heard_wrong += user != heard || y.ndim < 0 || y.ndim > 8 || (y.ndim && !y.dims);
    heard_wrong += tensor_profiler_operand(call, call->inputs + call->outputs).dtype != TENSOR_DTYPE_NONE;
    heard_wrong += tensor_profiler_operand(call, -1).dtype != TENSOR_DTYPE_NONE;
    hear(")", "");
}
static void hear_site(void *user, const char *site) {
    char name[40];
    (void)user;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(site, "\1"), site);
    hear(" @", name);
}
static void hear_range(void *user, const char *name) {
    (void)user;
    hear(name ? " [" : "]", name ? name : "");
}
static void hear_backward(void *user, uint64_t node, const char *op, const char *site) {
    heard_wrong += user != heard || (site && !strchr(site, ':'));
    heard_nodes[heard_gradients++ % 120] = node;
    hear(" <", op);
}
static void hear_pass(void *user, int begins) {
    heard_wrong += user != heard;
    hear(begins ? " {" : "}", "");
}
static void hear_memory(void *user, tensor_device_t device, int64_t bytes) {
    (void)user;
    heard_bytes[device != TENSOR_CPU] += bytes;
}
static tensor_profiler_t hears = {heard,      hear_begin,    hear_end,   hear_site,
                                  hear_range, hear_backward, hear_memory, hear_pass};

static void listen(const tensor_profiler_t *profiler) {
    if (profiler) heard[0] = 0;
    heard_gradients = 0;
    CHECK(tensor_profiler_set(profiler) == 0);
}

static void profilers(void) {
    float data[6] = {1, 2, 3, 4, 5, 6};
    tensor_t *x = tensor_from(data, TENSOR_F32, 2, 3), *y, *big;
    nn_module_t *net = nn_sequential(nn_linear(3, 16), nn_tanh());
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_t *first = tensor_add(nn_forward(net, x), nn_forward(net, x));
    listen(&hears);
    tensor_range_push("mine");
    y = nn_forward(net, x);
    tensor_range_pop();
    CHECK_TEXT(heard, " [mine [0 linear()] [1 tanh()] @nn_forward]");
    heard[0] = 0;
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK_TEXT(heard,
               "sum() @tensor_sum { fill() <sum <tanh tanh() <linear matmul() sum()} @tensor_backward");
    heard[0] = 0;
    CHECK(nn_step(opt) == 0);
    CHECK_TEXT(heard, "step() @nn_step");
    CHECK(heard_wrong == 0 && heard_captured == 0);
    // In a capture, and not in its replay.
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_tanh(x);
    tensor_graph_t *graph = tensor_capture_end();
    CHECK(graph != NULL && heard_captured == 1);
    CHECK(tensor_graph_replay(graph) == 0 && heard_captured == 1);
    CHECK(tensor_graph_free(graph) == 0);
    // A recorder besides: both hear, and what it refuses the profiler does not hear of.
    heard[0] = 0;
    watch_from_now();
    tensor_tanh(x);
    seen.call_refused = "tanh";
    CHECK(tensor_is_poison(tensor_tanh(x)));
    end_watch();
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "tanh: not now");
    CHECK(seen.calls == 2);
    CHECK_TEXT(heard, "tanh() @tensor_tanh");
    heard_bytes[0] = 0;
    big = tensor_zeros(1 << 20);
    CHECK(heard_bytes[0] >= 4 << 20);
    tensor_free(big);
    tensor_empty_cache();
    CHECK(heard_bytes[0] <= 0);
    listen(NULL);
    CHECK(tensor_equal(tensor_add(y, y), first));
    heard[0] = 0;
    tensor_tanh(x);
    CHECK_TEXT(heard, "");
    nn_optimizer_free(opt);
    nn_free(net);
}

static tensor_t *made_elsewhere;

static void *elsewhere(void *user) {
    tensor_t *y = tensor_requires_grad_((tensor_t *)user, 1);
    for (int k = 0; k < 100; k++) y = tensor_neg(y);
    made_elsewhere = tensor_keep(y);
    tensor_thread_end();
    return NULL;
}

static tensor_t *pass_inside(tensor_t *g, void *user) {
    tensor_t *x = (tensor_t *)user, *found;
    const int grads = tensor_set_grad_enabled(1);
    tensor_t *y = tensor_sum(x);
    (void)g;
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &found, 0) == 0);
    tensor_set_grad_enabled(grads);
    return NULL;
}

static tensor_t *fails_inside(tensor_t *g, void *user) {
    (void)g, (void)user;
    tensor_raise(TENSOR_ERR_SHAPE, "hook: no");
    return tensor_matmul(NULL, NULL);
}

// Numbers of nodes: those that tensor_profiler_node says when they are recorded, and no other; passes, which
// nest, and end when they fail.
static void profiled_nodes(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(4, 4), 1), *y;
    listen(&hears);
    const uint64_t before = tensor_profiler_node();
    tensor_exp(tensor_ones(4));
    CHECK(tensor_profiler_node() == before);
    y = tensor_tanh(x);
    const uint64_t first = tensor_profiler_node();
    tensor_exp(tensor_ones(4));
    y = tensor_narrow(y, 0, 0, 2);
    const uint64_t second = tensor_profiler_node();
    CHECK(before < first && first < second);
    CHECK(tensor_backward_with(y, tensor_ones(2, 4), 0) == 0);
    CHECK(heard_gradients == 2 && heard_nodes[0] == second && heard_nodes[1] == first);

    // On a graph of another thread: larger than the numbers there, whose nodes have none here.
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, tensor_ones(4)) == 0 && pthread_join(thread, NULL) == 0);
    y = tensor_tanh(made_elsewhere);
    const uint64_t behind = tensor_profiler_node();
    CHECK(behind > 100 && behind > second);
    y = tensor_sum(y);
    heard_gradients = 0;
    CHECK(tensor_backward(y) == 0);
    CHECK(heard_gradients == 102 && heard_nodes[1] == behind);
    for (int k = 2; k < 102; k++) { CHECK(heard_nodes[k] == 0); }
    tensor_free(made_elsewhere);

    // In another context they go on, and the thread keeps its profiler when that is freed.
    tensor_context_t *own = tensor_context_new(), *was = tensor_context_use(own);
    CHECK(tensor_profiler_node() >= behind + 1);
    tensor_context_use(was);
    CHECK(tensor_context_free(own) == 0);

    y = tensor_exp(x);
    CHECK(tensor_register_hook(y, pass_inside, x) > 0);
    y = tensor_sum(y);
    heard[0] = 0;
    CHECK(tensor_backward(y) == 0);
    CHECK_TEXT(heard,
               " { fill() <sum <exp sum() @tensor_sum { fill() <sum} @tensor_autograd_grad exp() add()} "
               "@tensor_backward");

    y = tensor_exp(x);
    CHECK(tensor_register_hook(y, fails_inside, NULL) > 0);
    heard[0] = 0;
    CHECK(tensor_backward(tensor_sum(y)) == TENSOR_ERR_SHAPE);
    tensor_clear_error();
    CHECK(strchr(heard, '{') && strchr(heard, '}'));
    CHECK(heard_wrong == 0);
    listen(NULL);
}

static void profiled_devices(void) {
    heard_bytes[0] = heard_bytes[1] = 0;
    listen(&hears);
    tensor_t *x = on(tensor_ones(1000)), *y = tensor_tanh(x);
    CHECK(heard_bytes[1] == 2 * 4000);
    tensor_free(x);
    tensor_free(y);
    CHECK(heard_bytes[1] == 0);
    listen(NULL);
}

// Operands of small pointwise calls, which are heard of without a call block: "mul F32 4x4, ..".
static char operands[400];
static int captured;

static void note_operands(void *user, const tensor_profiler_call_t *call) {
    size_t at = strlen(operands);
    (void)user;
    at += (size_t)snprintf(operands + at, sizeof operands - at, "%s%s:", at ? "; " : "", call->op);
    for (int i = 0; i < call->inputs + call->outputs; i++) {
        tensor_profiler_operand_t o = tensor_profiler_operand(call, i);
        at += (size_t)snprintf(operands + at, sizeof operands - at, "%s%d", i < call->inputs ? " " : " -> ", o.dtype);
        for (int d = 0; d < o.ndim; d++) {
            at += (size_t)snprintf(operands + at, sizeof operands - at, "%s%d", d ? "x" : ":", (int)o.dims[d]);
        }
        if (o.dtype != TENSOR_DTYPE_NONE) { CHECK(o.numel == (o.ndim ? 16 : 1)); }
    }
    CHECK(call->device == TENSOR_CPU);
    captured = call->captured;
}

// tanh(x y + 0.25) and its gradients.   -> the sum
static double small_step(tensor_t *x, tensor_t *y, tensor_t **out) {
    tensor_set_grad(x, NULL);
    tensor_set_grad(y, NULL);
    *out = tensor_tanh(tensor_add_scalar(tensor_mul(x, y), 0.25));
    tensor_t *sum = tensor_sum(*out);
    CHECK(tensor_backward(sum) == 0);
    return tensor_item(sum);
}

// Small calls that are heard of give the bits, the gradients and the number of nodes of those that are not.
static void small_calls(void) {
    const tensor_profiler_t hears = {NULL, note_operands, NULL, NULL, NULL, NULL, NULL, NULL};
    tensor_t *x = tensor_requires_grad_(tensor_randn(4, 4), 1), *y = tensor_requires_grad_(tensor_randn(4, 4), 1);
    tensor_t *alone, *heard_of;
    uint64_t first = tensor_profiler_node();
    const double want = small_step(x, y, &alone);
    const uint64_t nodes = tensor_profiler_node() - first;
    tensor_t *gx = tensor_clone(tensor_grad(x)), *gy = tensor_clone(tensor_grad(y));
    tensor_profiler_set(&hears);
    first = tensor_profiler_node();
    operands[0] = 0;
    const double got = small_step(x, y, &heard_of);
    CHECK(tensor_profiler_node() - first == nodes);
    CHECK_MSG(!strncmp(operands, "mul: 0:4x4 0:4x4 -> 0:4x4; add: 0:4x4 1 -> 0:4x4; tanh: 0:4x4 -> 0:4x4; ", 72),
              "%s", operands);
    // Not of f32, not of one shape, not contiguous, in place: by the gate.
    operands[0] = 0;
    tensor_eq(x, y);
    tensor_mul(tensor_transpose(y, 0, 1), x);
    tensor_add_(tensor_zeros(4, 4), y);
    CHECK_MSG(!strcmp(operands, "eq: 0:4x4 0:4x4 -> 5:4x4; mul: 0:4x4 0:4x4 -> 0:4x4; fill: -> 0:4x4; "
                                "add: 0:4x4 0:4x4 -> 0:4x4"), "%s", operands);
    tensor_profiler_set(NULL);
    CHECK(want == got && tensor_equal(alone, heard_of));
    CHECK(tensor_equal(gx, tensor_grad(x)) && tensor_equal(gy, tensor_grad(y)));
    // A recorder must hear of a call block, with a profiler too.
    tensor_profiler_set(&hears);
    watch_from_now();
    operands[0] = 0;
    x = tensor_detach(x);
    tensor_mul(x, x);
    CHECK(seen.calls == 1 && captured == 1);
    end_watch();
    tensor_mul(x, x);
    tensor_profiler_set(NULL);
    CHECK(seen.calls == 1 && captured == 0);
    CHECK_TEXT(operands, "mul: 0:4x4 0:4x4 -> 0:4x4; mul: 0:4x4 0:4x4 -> 0:4x4");
}

int main(void) {
    RUN(elements);
    RUN(numbers_for_fronts);
    RUN(refused_shapes);
    RUN(networks);
    RUN(calls);
    RUN(contexts);
    RUN(small_calls);
    RUN(profilers);
    RUN(profiled_nodes);
    if (device_start() == 0) {
        RUN(devices);
        RUN(profiled_devices);
    }
    return test_report();
}

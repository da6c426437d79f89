// objects.h - modules, optimizers, files and loaders in random programs: ways round that change nothing, so that
// PyTorch's side goes straight on. What comes back must have the bits that went in.
#ifndef DIFFERENTIAL_OBJECTS_H
#define DIFFERENTIAL_OBJECTS_H

#include <unistd.h>

// A call with options, which is a macro.
#define USE_WITH(name, ...) (use(#name "_with"), name(__VA_ARGS__))

// A file of this process.
TEST_FN const char *a_path(void) {
    static char path[200];
    const char *folder = getenv("TMPDIR");
    if (!*path) {
        snprintf(path, sizeof path, "%.150s/differential.%ld", folder ? folder : "/tmp", (long)getpid());
    }
    return path;
}
TEST_FN tensor_t *on_host(tensor_t *x) {
    return tensor_contiguous(tensor_to(x, TENSOR_CPU));
}
TEST_FN int same_shape(tensor_t *a, tensor_t *b) {
    tensor_shape_t s = tensor_shape(a), t = tensor_shape(b);
    return s.ndim == t.ndim && memcmp(s.dims, t.dims, (size_t)s.ndim * sizeof s.dims[0]) == 0;
}
TEST_FN int same_bytes(tensor_t *a, tensor_t *b) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    size_t n;
    int same;
    a = on_host(a), b = on_host(b);
    n = (size_t)tensor_numel(a) * tensor_dtype_size(tensor_dtype(a));
    same = tensor_dtype(a) == tensor_dtype(b) && same_shape(a, b) &&
           (!n || memcmp(tensor_data(a), tensor_data(b), n) == 0);
    tensor_scope_end(scope);
    return same;
}

// ---- the elements of a tensor, by way of other things ----

// One after the other, as numbers.
TEST_FN tensor_t *by_items(tensor_t *x) {
    tensor_t *flat = tensor_flatten(x, 0, -1);
    int64_t n = tensor_numel(x), k;
    tensor_shape_t shape = tensor_shape(x);
    int real = is_real((int)tensor_dtype(x));
    double *v = (double *)malloc(((size_t)n + 1) * sizeof *v);
    int64_t *i = (int64_t *)malloc(((size_t)n + 1) * sizeof *i);
    for (k = 0; k < n; k++) {
        tensor_t *one = tensor_select(flat, 0, k);
        if (real) {
            v[k] = USE(tensor_item)(one);
        } else {
            i[k] = USE(tensor_item_i64)(one);
        }
    }
    x = tensor_to(real ? tensor_from_n(v, TENSOR_F64, shape.dims, shape.ndim)
                       : tensor_from_n(i, TENSOR_I64, shape.dims, shape.ndim),
                  (int)tensor_dtype(x));
    free(v), free(i);
    return x;
}
TEST_FN tensor_t *by_bytes(tensor_t *x) {
    size_t n = (size_t)tensor_numel(x) * tensor_dtype_size(tensor_dtype(x));
    tensor_shape_t shape = tensor_shape(x);
    void *bytes = malloc(n + 1);
    USE(tensor_copy_out)(x, bytes, n);
    x = USE(tensor_from_n)(bytes, tensor_dtype(x), shape.dims, shape.ndim);
    free(bytes);
    return x;
}
// Memory that is lent, with the strides that it has.
TEST_FN tensor_t *by_lending(tensor_t *x) {
    tensor_shape_t shape = tensor_shape(x);
    int64_t strides[TENSOR_MAX_DIMS];
    int d;
    if (!USE(tensor_data)(x)) { return tensor_clone(x); } // no elements: no memory to lend
    for (d = 0; d < shape.ndim; d++) { strides[d] = tensor_stride(x, d); }
    return tensor_clone(USE(tensor_wrap_strided)(USE(tensor_data)(x), tensor_dtype(x), shape.dims, strides, shape.ndim,
                                                 TENSOR_READ_ONLY, NULL, NULL));
}
TEST_FN tensor_t *by_dlpack(tensor_t *x) {
    return tensor_clone(USE(tensor_from_dlpack)(USE(tensor_to_dlpack)(x)));
}
TEST_FN tensor_t *by_dlpack_unversioned(tensor_t *x) {
    return tensor_clone(USE(tensor_from_dlpack_unversioned)(USE(tensor_to_dlpack_unversioned)(x)));
}
TEST_FN tensor_t *from_safetensors(nn_safetensors_t *r) {
    tensor_t *y;
    CHECK(USE(nn_safetensors_count)(r) == 2 && USE(nn_safetensors_name)(r, 1));
    CHECK_TEXT(USE(nn_safetensors_metadata)(r, "made by"), "a test");
    y = tensor_clone(USE(nn_safetensors_get)(r, "x"));
    USE(nn_safetensors_close)(r);
    return y;
}
static const char *const two_names[] = {"a", "x"};
static const nn_metadata_t one_note[] = {{"made by", "a test"}};
TEST_FN tensor_t *by_safetensors(tensor_t *x) {
    tensor_t *const both[] = {tensor_arange(0, 3, 1, TENSOR_I16), x};
    tensor_t *file = USE(nn_safetensors_format)(two_names, both, 2, one_note, 1);
    return from_safetensors(USE(nn_safetensors_parse)(tensor_data(file), (size_t)tensor_numel(file)));
}
TEST_FN tensor_t *by_safetensors_file(tensor_t *x) {
    tensor_t *const both[] = {tensor_arange(0, 3, 1, TENSOR_I16), x};
    USE(nn_safetensors_write)(a_path(), two_names, both, 2, one_note, 1);
    return from_safetensors(USE(nn_safetensors_open)(a_path()));
}
TEST_FN tensor_t *by_safetensors_map(tensor_t *x) {
    tensor_t *const both[] = {tensor_arange(0, 3, 1, TENSOR_I16), x};
    nn_safetensors_write(a_path(), two_names, both, 2, one_note, 1);
    return from_safetensors(USE(nn_safetensors_map)(a_path()));
}
TEST_FN tensor_t *by_npy(tensor_t *x) {
    tensor_t *file = USE(nn_format_npy)(x);
    return tensor_clone(USE(nn_parse_npy)(tensor_data(file), (size_t)tensor_numel(file)));
}
TEST_FN tensor_t *by_npy_file(tensor_t *x) {
    USE(nn_write_npy)(a_path(), x);
    return USE(nn_read_npy)(a_path());
}
TEST_FN tensor_t *from_npz(nn_npz_t *r) {
    tensor_t *y;
    CHECK(USE(nn_npz_count)(r) == 2 && strcmp(USE(nn_npz_name)(r, 1), "x") == 0);
    y = tensor_clone(USE(nn_npz_get)(r, "x"));
    USE(nn_npz_close)(r);
    return y;
}
TEST_FN tensor_t *by_npz(tensor_t *x) {
    tensor_t *const both[] = {tensor_arange(0, 3, 1, TENSOR_I16), x};
    tensor_t *file = USE(nn_npz_format)(two_names, both, 2);
    return from_npz(USE(nn_npz_parse)(tensor_data(file), (size_t)tensor_numel(file)));
}
TEST_FN tensor_t *by_npz_file(tensor_t *x) {
    tensor_t *const both[] = {tensor_arange(0, 3, 1, TENSOR_I16), x};
    USE(nn_npz_write)(a_path(), two_names, both, 2);
    return from_npz(USE(nn_npz_open)(a_path()));
}
// The batches of a loader, joined.
TEST_FN tensor_t *joined(nn_dataset_t data) {
    tensor_t *part[64];
    nn_data_loader_t *l = USE_WITH(nn_data_loader, data, .batch_size = 2);
    nn_batch_t b;
    int n = 0;
    CHECK(USE(nn_num_batches)(l) == (data.len + 1) / 2);
    USE(nn_next)(l, &b);
    USE(nn_seek)(l, 0);
    while (n < 64 && nn_next(l, &b)) { part[n++] = b.x; }
    USE(nn_data_loader_free)(l);
    return tensor_cat_n(part, n, 0);
}
TEST_FN tensor_t *by_loader(tensor_t *x) {
    return joined(USE(nn_tensor_dataset)(x, NULL));
}
// The samples from the last to the first, and once more.
TEST_FN tensor_t *by_subset(tensor_t *x) {
    tensor_t *turned = tensor_arange((double)tensor_size(x, 0) - 1, -1, -1, TENSOR_I64);
    return joined(USE(nn_subset)(nn_subset(nn_tensor_dataset(x, NULL), turned), turned));
}
TEST_FN tensor_t *by_padding(tensor_t *x) {
    return tensor_clone(tensor_squeeze(USE(nn_pad_sequence)(&x, 1, 1, 0.5), 0));
}
TEST_FN tensor_t *by_text(tensor_t *x) {    // nothing is read from it
    static char text[4096];
    CHECK(USE(tensor_to_string)(x, text, sizeof text) > 0 && *text);
    return tensor_clone(x);
}
static tensor_t *(*const ways[WAYS])(tensor_t *x) = {
#define X(name) by_##name,
    EACH_WAY(X)
#undef X
};
// A copy of x that went that way. What does not exist for x is left out.
TEST_FN int way_is_open(tensor_t *x, int way) {
    if (way >= WAY_npy && way <= WAY_npz_file && tensor_dtype(x) == TENSOR_BF16) { return 0; }
    if (way >= WAY_loader && way <= WAY_subset) {
        return tensor_ndim(x) && tensor_size(x, 0) && tensor_size(x, 0) < 128;
    }
    return way < WAY_padding || (tensor_ndim(x) && tensor_size(x, 0));
}
TEST_FN tensor_t *go_round(tensor_t *x, int way) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *y = ways[way](tensor_to(tensor_detach(x), TENSOR_CPU));
    CHECK_MSG(tensor_ok() && same_bytes(x, y), "by %s: %s", way_names[way], tensor_error_text());
    y = tensor_contiguous(tensor_to(y, (int)tensor_device(x)));
    return tensor_scope_return(scope, y);
}

// ---- modules that are the same afterwards ----

TEST_FN tensor_t *pass_in(nn_module_t *m, tensor_t *x, void *user) {
    (void)m, (void)x, (void)user;
    n_hooks++;
    return NULL;
}
TEST_FN tensor_t *pass_out(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x, (void)y, (void)user;
    n_hooks++;
    return NULL;
}
TEST_FN tensor_t *pass_back(nn_module_t *m, tensor_t *dx, tensor_t *dy, void *user) {
    (void)m, (void)dx, (void)dy, (void)user;
    n_hooks++;
    return NULL;
}
TEST_FN void count_module(nn_module_t *m, void *user) {
    (void)m;
    ++*(int *)user;
}
TEST_FN nn_module_t *detour_none(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)s, (void)other;
    return m;
}
TEST_FN nn_module_t *detour_cloned(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)other;
    return s->module[s->nmodules++] = USE(nn_clone)(m);
}
TEST_FN nn_module_t *detour_copied(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)s;
    USE(nn_copy_state)(other, m);
    return other;
}
TEST_FN nn_module_t *detour_in_memory(state_t *s, nn_module_t *m, nn_module_t *other) {
    tensor_t *file = USE(nn_save_memory)(m);
    (void)s;
    USE(nn_load_memory)(tensor_data(file), (size_t)tensor_numel(file), other, 0);
    return other;
}
TEST_FN nn_module_t *detour_in_a_file(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)s;
    USE(nn_save)(a_path(), m);
    USE_WITH(nn_load, a_path(), other);
    return other;
}
TEST_FN nn_module_t *detour_in_a_checkpoint(state_t *s, nn_module_t *m, nn_module_t *other) {
    nn_training_t c;
    (void)s;
    memset(&c, 0, sizeof c);
    c.module = m, c.step = 7;
    USE(nn_save_training)(a_path(), &c);
    c.module = other, c.step = 0;
    USE(nn_load_training)(a_path(), &c);
    CHECK(c.step == 7);
    return other;
}
TEST_FN nn_module_t *detour_taken_back(state_t *s, nn_module_t *m, nn_module_t *other) {
    size_t n = USE(nn_snapshot_size)(m, NULL);
    void *block = malloc(n + 1);
    USE(nn_snapshot)(m, NULL, block, n);
    nn_copy_state(m, other);
    USE(nn_restore)(m, NULL, block, n);
    free(block);
    (void)s;
    return m;
}
TEST_FN nn_module_t *detour_as_a_vector(state_t *s, nn_module_t *m, nn_module_t *other) {
    tensor_t *list[64];
    int n = USE(nn_parameters)(m, list, 64);
    (void)s, (void)other;
    if (n) {
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        tensor_t *vector = USE(nn_parameters_to_vector)(list, n);
        int k;
        for (k = 0; k < n; k++) { tensor_fill_(list[k], 0.5); }
        USE(nn_vector_to_parameters)(vector, list, n);
        tensor_scope_end(scope);
    }
    return m;
}
TEST_FN nn_module_t *detour_averaged(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)s;
    USE(nn_ema_update)(other, m, 0, 0.9);
    nn_copy_state(other, m);
    USE(nn_swa_update)(other, m, 0);
    return other;
}
TEST_FN nn_module_t *detour_thawed(state_t *s, nn_module_t *m, nn_module_t *other) {
    (void)s, (void)other;
    USE(nn_requires_grad_)(m, 0);
    USE(nn_requires_grad_named)(m, "*", 1);
    return m;
}
TEST_FN nn_module_t *detour_hooked(state_t *s, nn_module_t *m, nn_module_t *other) {
    int64_t gone;
    (void)s, (void)other;
    USE(nn_register_forward_pre_hook)(m, pass_in, NULL);
    USE(nn_register_forward_hook)(m, pass_out, NULL);
    USE(nn_register_full_backward_hook)(m, pass_back, NULL);
    gone = nn_register_forward_hook(m, pass_out, NULL);
    CHECK(USE(nn_remove_hook)(m, gone) == 1);
    return m;
}
// Part of a module of the user's.
TEST_FN void free_box(nn_module_t *box) {
    free(box);
}
TEST_FN tensor_t *forward_box(nn_module_t *box, tensor_t *x) {
    return nn_forward(nn_get_child(box, "part"), x);
}
TEST_FN nn_module_t *detour_inside(state_t *s, nn_module_t *m, nn_module_t *other) {
    nn_module_t *box = (nn_module_t *)calloc(1, sizeof *box), *child = NULL;
    const char *name = NULL;
    int k;
    (void)other;
    USE(nn_module_init)(box, "Box", forward_box, free_box);
    USE(nn_child)(box, "part", m);
    USE(nn_parameter)(box, "scale", tensor_ones(2));
    USE(nn_buffer)(box, "count", tensor_zeros(1));
    USE(nn_buffer_transient)(box, "table", tensor_zeros(3));
    CHECK(USE(nn_get_child)(box, "part") == m && tensor_numel(USE(nn_get)(box, "table")) == 3);
    CHECK(USE(nn_children)(box, &child, &name, 1) == 1 && child == m && strcmp(name, "part") == 0);
    CHECK(USE(nn_named_buffers)(box).count >= 2);
    for (k = 0; k < s->nmodules; k++) {
        if (s->module[k] == m) { s->module[k] = box; } // which frees m
    }
    return m;
}
TEST_FN nn_module_t *detour_parametrized(state_t *s, nn_module_t *m, nn_module_t *other) {
    nn_named_list_t l = USE(nn_named_parameters)(m);
    int64_t k;
    (void)s, (void)other;
    for (k = 0; k < l.count; k++) {
        if (strcmp(l.item[k].name, "weight") == 0) {
            USE(nn_register_parametrization)(m, "weight", nn_identity());
            USE(nn_remove_parametrizations)(m, "weight", 0);
            break;
        }
    }
    return m;
}
TEST_FN nn_module_t *detour_looked_at(state_t *s, nn_module_t *m, nn_module_t *other) {
    static char text[4096];
    int seen = 0;
    (void)s, (void)other;
    USE(nn_to_string)(m, text, sizeof text);
    USE(nn_num_parameters)(m);
    USE(nn_apply)(m, count_module, &seen);
    CHECK(seen == USE(nn_modules)(m, NULL, 0));
    return m;
}
static nn_module_t *(*const detours[DETOURS])(state_t *s, nn_module_t *m, nn_module_t *other) = {
#define X(name) detour_##name,
    EACH_DETOUR(X)
#undef X
};
TEST_FN int same_state(nn_module_t *a, nn_module_t *b) {
    nn_named_list_t l = USE(nn_state)(a), r;
    int64_t k, n = l.count;
    tensor_t *mine[64];
    for (k = 0; k < n && k < 64; k++) { mine[k] = l.item[k].tensor; }
    r = nn_state(b); // the list of a may be gone
    if (r.count != n) { return 0; }
    for (k = 0; k < n && k < 64; k++) {
        if (!same_bytes(mine[k], r.item[k].tensor)) { return 0; }
    }
    return 1;
}
// -> the module that is m now. kept: another one of its kind with its state; other: with another state
TEST_FN nn_module_t *go_by(state_t *s, nn_module_t *m, nn_module_t *kept, nn_module_t *other, int detour) {
    nn_copy_state(kept, m);
    m = detours[detour](s, m, other);
    CHECK_MSG(tensor_ok() && same_state(m, kept), "%s: %s", detour_names[detour], tensor_error_text());
    return m;
}

// ---- steps of an optimizer that are plain steps ----

TEST_FN void plain_step(nn_optimizer_t *o, tensor_t *x) {
    (void)x;
    USE(nn_step)(o);
}
// A scale of 1 changes no gradient; a step of infinite ones would be left out.
TEST_FN void scaled_step(nn_optimizer_t *o, tensor_t *x) {
    tensor_t *scaler;
    if (!tensor_grad(x) || !tensor_item_i64(tensor_all(tensor_isfinite(tensor_grad(x))))) {
        nn_step(o);
        return;
    }
    scaler = USE(nn_grad_scaler)(1, 1000);
    USE(nn_scaler_scale)(scaler, tensor_scalar(1, TENSOR_F32));
    USE(nn_scaler_unscale)(scaler, o);
    USE(nn_scaler_step)(scaler, o);
    USE(nn_scaler_update)(scaler);
    tensor_free(scaler);
}
TEST_FN void group_step(nn_optimizer_t *o, tensor_t *x) {
    double lr = USE(nn_get_group_lr)(o, 0), momentum = USE(nn_get_momentum)(o);
    CHECK(USE(nn_num_groups)(o) == 1 && lr == nn_get_lr(o));
    USE(nn_set_group_lr)(o, 0, lr);
    if (momentum == momentum) { USE(nn_set_momentum)(o, momentum); }
    nn_step(o);
    USE(nn_optimizer_state)(o, x, "exp_avg"), tensor_clear_error(); // not all have it
}
TEST_FN void step_again(nn_optimizer_t *o, tensor_t *x) {
    size_t n = nn_snapshot_size(NULL, o);
    void *block = malloc(n + 1);
    (void)x;
    nn_snapshot(NULL, o, block, n);
    nn_step(o);
    nn_restore(NULL, o, block, n);
    nn_step(o);
    free(block);
}
// Limits that no gradient reaches, and a gradient that is taken away and given back.
TEST_FN void limited_step(nn_optimizer_t *o, tensor_t *x) {
    tensor_t *g = tensor_grad(x);
    if (g && tensor_item_i64(tensor_all(tensor_isfinite(g)))) {
        tensor_keep(g);
        USE(nn_clip_grad_value)(o, 1e30);
        USE(nn_clip_grad_norm)(o, 1e30);
        USE(nn_zero_grad)(o);
        CHECK(!tensor_grad(x));
        tensor_set_grad(x, g);
        tensor_free(g);
    }
    nn_step(o);
}
// The dtype that a module's floats have.
TEST_FN tensor_dtype_t module_dtype(nn_module_t *m) {
    nn_named_list_t l = nn_state(m);
    int64_t k;
    for (k = 0; k < l.count; k++) {
        if (is_real((int)tensor_dtype(l.item[k].tensor))) { return tensor_dtype(l.item[k].tensor); }
    }
    return TENSOR_F32;
}
static void (*const ways_of_step[STEPS])(nn_optimizer_t *o, tensor_t *x) = {plain_step, scaled_step, group_step, step_again,
                                                                     limited_step};

// ---- gradients and first values ----

// -> the norm, in the dtype of the first gradient, NULL where there is none
TEST_FN tensor_t *clip_gradients(tensor_t *const *list, int n, int how, double most) {
    tensor_t *grads[MAX_INPUTS], *norm = NULL;
    int k;
    for (k = 0; k < n; k++) { grads[k] = tensor_grad(list[k]); }
    switch (how) {
    case CLIP_NORM: norm = USE(nn_clip_grad_norm_n)(list, n, most); break;
    case CLIP_LARGEST:
        norm = USE_WITH(nn_clip_grad_norm, NULL, most, .list = list, .count = n, .norm_type = (double)INFINITY);
        break;
    case CLIP_VALUE: USE(nn_clip_grad_value_n)(list, n, most); break;
    case CLIP_BY_TOTAL:
        norm = USE_WITH(nn_get_total_norm, grads, n);
        USE(nn_clip_grads_with_norm)(list, n, most, norm);
        break;
    default: norm = nn_get_total_norm(grads, n, .norm_type = 1); break;
    }
    return norm ? tensor_to(norm, (int)tensor_dtype(grads[0])) : NULL;
}
TEST_FN void fill_first(tensor_t *x, int how, double v) {
    switch (how) {
    case INIT_CONSTANT: USE(nn_init_constant_)(x, v); break;
    case INIT_ZEROS: USE(nn_init_zeros_)(x); break;
    case INIT_ONES: USE(nn_init_ones_)(x); break;
    case INIT_EYE: USE(nn_init_eye_)(x); break;
    case INIT_DIRAC: USE(nn_init_dirac_)(x, 1); break;
    case INIT_UNIFORM: USE(nn_init_uniform_)(x, -v, v + 1); break;
    case INIT_NORMAL: USE(nn_init_normal_)(x, v, 2); break;
    case INIT_TRUNC_NORMAL: USE(nn_init_trunc_normal_)(x, v, 1, v - 1, v + 2); break;
    case INIT_XAVIER_UNIFORM: USE(nn_init_xavier_uniform_)(x, USE(nn_gain)(NN_RELU, 0)); break;
    case INIT_XAVIER_NORMAL: USE(nn_init_xavier_normal_)(x, v); break;
    case INIT_KAIMING_UNIFORM: USE_WITH(nn_init_kaiming_uniform_, x, .a = v); break;
    case INIT_KAIMING_NORMAL: USE_WITH(nn_init_kaiming_normal_, x, .fan_out = 1); break;
    case INIT_ORTHOGONAL: USE(nn_init_orthogonal_)(x, 1); break;
    default: USE(nn_init_sparse_)(x, 0.5, 1); break;
    }
}

// ---- what only looks ----

// The jobs of the library from the last to the first, on the thread that calls.
TEST_FN void backwards(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    (void)user;
    while (n--) { task(arg, n); }
}
TEST_FN void heard_call(void *user, const tensor_profiler_call_t *call) {
    (void)user;
    if (call->inputs) { USE(tensor_profiler_operand)(call, 0); }
    (void)USE(tensor_profiler_node)();
}
TEST_FN void heard_range(void *user, const char *name) {
    (void)user, (void)name;
}
TEST_FN void look_at(tensor_t *x, int how) {
    static const tensor_profiler_t profiler = {NULL, heard_call, heard_call, NULL, heard_range, NULL, NULL, NULL};
    static char text[4096];
    tensor_context_t *was, *own;
    tensor_scope_t scope;
    switch (how) {
    case LOOK_NAMES:
        CHECK(USE(tensor_version)() > 0 && USE(tensor_num_processors)() > 0 && USE(tensor_get_num_threads)() > 0);
        CHECK(*USE(tensor_isa_name)() && *USE(tensor_code_name)(TENSOR_ERR_SHAPE));
        CHECK(*USE(tensor_dtype_name)(tensor_dtype(x)) && USE_WITH(tensor_check, x, "...") == 0);
        break;
    case LOOK_MEMORY:
        CHECK(USE(tensor_memory_report)(text, sizeof text) > 0);
        USE(tensor_reset_peak_memory)();
        USE(tensor_empty_cache)();
        USE(tensor_set_memory_limit)((uint64_t)1 << 40);
        tensor_set_memory_limit(0);
        break;
    case LOOK_MODES:
        USE(tensor_set_generator)(USE(tensor_get_generator)());
        USE(tensor_set_default_dtype)(TENSOR_F64);
        CHECK(USE(tensor_get_default_dtype)() == TENSOR_F64);
        tensor_set_default_dtype(TENSOR_F32);
        tensor_set_default_device(USE(tensor_get_default_device)());
        USE(tensor_set_grad_enabled)(USE(tensor_grad_enabled)());
        USE(tensor_set_autocast)(USE(tensor_autocast_dtype)());
        USE(tensor_set_detect_anomaly)(1);
        tensor_set_detect_anomaly(0);
        break;
    case LOOK_ERROR:
        USE(tensor_raise)(TENSOR_ERR_SHAPE, "no error");
        CHECK(tensor_error_code() == TENSOR_ERR_SHAPE && strstr(tensor_error_text(), "no error"));
        tensor_clear_error();
        break;
    case LOOK_CONTEXT:
        own = USE(tensor_context_new)();
        was = USE(tensor_context_use)(own);
        scope = tensor_scope_begin();
        CHECK(tensor_item(tensor_sum(tensor_arange(0, 5, 1, TENSOR_F32))) == 10);
        tensor_scope_end(scope);
        tensor_context_use(was);
        USE(tensor_context_free)(own);
        break;
    case LOOK_PROFILER:
        scope = tensor_scope_begin_no_grad();
        USE(tensor_profiler_set)(&profiler);
        USE(tensor_range_push)("copies");
        tensor_clone(x);
        USE(tensor_range_pop)();
        tensor_profiler_set(NULL);
        tensor_scope_end(scope);
        break;
    default: USE(tensor_set_parallel_for)(backwards, NULL, 3); break;
    }
}

#endif

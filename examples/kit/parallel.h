// parallel.h - one net trained by several processes, each on its share of the data (DistributedDataParallel)
//
// A file to copy and to change. In one C file of the program, which mpicc compiles and mpirun starts:
//
//   #define KIT_PARALLEL_IMPLEMENTATION
//   #define KIT_MPI_IMPLEMENTATION
//   #include "kit/mpi.h"                                     // which includes parallel.h
//
//   kit_collectives_t ranks;
//   if (kit_mpi_ranks(&ranks, 30)) return 1;
//   kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, step); // ranks now have the weights of rank 0
//   tensor_t *mine = kit_parallel_shard(p, samples, seed, epoch);
//   ...
//       tensor_backward(kit_parallel_loss(p, loss, samples_of_this_batch));
//       if (kit_parallel_finish(p)) break;                   // gradients are those of the whole batch
//       nn_step(opt);
//
// Gradients become their mean over ranks, as in PyTorch's DistributedDataParallel, in buckets of 25 MB while
// backward still runs. After a finish they are views of the buckets (PyTorch: gradient_as_bucket_view), which
// the next sum writes: clone what is to stay. mpi.h has ranks on the CPU, nccl.h ranks on GPUs; another
// engine fills a kit_collectives_t of its own. Parameters are of f32, on the ranks' device.
#ifndef KIT_PARALLEL_H
#define KIT_PARALLEL_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_parallel_t kit_parallel_t;

// Compares the nets of all ranks, gives them the state of rank 0 and hooks into the gradients of the
// parameters that require one now, which are the same on all ranks; net must not get others afterwards.
// States, counts and options of opt are compared, not sent: each rank loads the checkpoint. The host has
// room for a copy of net and states. Random numbers go on with the generator of rank 0, which a checkpoint
// has, and differ between ranks, so their masks of dropout do; a resume by as many ranks draws what this run
// would.
//   ranks   copied
//   opt     NULL = none is compared (nn_lbfgs)
//   step    what nn_load_checkpoint gave, or 0
//   -> p, NULL on failure, on all ranks
//   errors  SHAPE (nets, what requires a gradient, states or steps differ), UNSUPPORTED (not f32, not on the
//           ranks' device; nn_lbfgs), IO (also where another rank has an error, or no memory), OUT_OF_MEMORY,
//           POISONED (net NULL). Of a GPU without the few bytes of a gather others hear by the timeout alone
kit_parallel_t *kit_parallel_open(const kit_collectives_t *ranks, nn_module_t *net, nn_optimizer_t *opt,
                                  int64_t step);
void kit_parallel_close(kit_parallel_t *p); // before the net is freed

// Mean loss of `samples` of this rank, weighted by its share of them times the number of ranks, so that the
// mean of gradients over ranks is the gradient of the mean over all samples. A rank without samples calls it
// with loss NULL and calls no backward. Where batches are equal the weight is 1.
//   -> loss to call backward with (NULL if it was), poison on failure;  errors IO
tensor_t *kit_parallel_loss(kit_parallel_t *p, tensor_t *loss, int64_t samples);
// After backward, before the optimizer's step: waits until gradients are the means over ranks. A parameter
// without a gradient on some ranks counts as zero there, without one on all it keeps what it has. What an
// earlier finish has left and nobody has dropped is equal on all ranks, so it stays. Two backwards count both
// only where the second comes before the sums begin. Where an error is pending on a rank, all ranks fail, and
// go on once all have cleared it; after an error of the engine p can only be closed.
//   -> code;  errors IO, AUTOGRAD (a gradient came again too late; other ranks hear of it or time out),
//   what is pending on this rank
int kit_parallel_finish(kit_parallel_t *p);
// 0: backward adds up gradients on this rank alone, and no finish is called; 1: the next backward sums what
// there is.
void kit_parallel_sync(kit_parallel_t *p, int on);
// Mean of a number over ranks, weighted.   -> mean, NaN after an error;  errors IO
double kit_parallel_mean(kit_parallel_t *p, double value, double weight);
// The samples of this rank in an epoch: each of 0..n-1 is on one rank, in another order in each epoch. Ranks
// get n / size or one more.   -> new i64;  errors OUT_OF_MEMORY
tensor_t *kit_parallel_shard(const kit_parallel_t *p, int64_t n, uint64_t seed, uint64_t epoch);

kit_parallel_t *kit_parallel__at_open(const char *site, kit_parallel_t *p);
#define kit_parallel_open(...) kit_parallel__at_open(TENSOR_HERE, (kit_parallel_open)(__VA_ARGS__))
#define kit_parallel_loss(...) kit_parallel__at_tensor(TENSOR_HERE, (kit_parallel_loss)(__VA_ARGS__))
#define kit_parallel_finish(...) kit_parallel__at(TENSOR_HERE, (kit_parallel_finish)(__VA_ARGS__))
#define kit_parallel_mean(...) kit_parallel__at_number(TENSOR_HERE, (kit_parallel_mean)(__VA_ARGS__))
#define kit_parallel_shard(...) kit_parallel__at_tensor(TENSOR_HERE, (kit_parallel_shard)(__VA_ARGS__))
#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_PARALLEL_IMPLEMENTATION) && !defined(KIT_PARALLEL_DONE)
#define KIT_PARALLEL_DONE

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- gradients

#ifndef KIT_PARALLEL_BUCKET
#define KIT_PARALLEL_BUCKET (25 << 20) // bytes
#endif

typedef struct kit_parallel__parameter_t {
    struct kit_parallel_t *p;
    tensor_t *t, *place; // place: a view of its part of the bucket, in its shape
    int64_t hook, bucket;
    int ready; // its place is filled, in this backward
    float has; // 1: this rank has a gradient, and it is in its place
} kit_parallel__parameter_t;

// data: the gradients, then for each parameter 1 if this rank has one, then 1 if an error is pending here
typedef struct kit_parallel__bucket_t {
    tensor_t *data, *marks; // marks: a view of what follows the gradients
    float *mark;            // [count + 1], of the host
    tensor_t *host;         // mark as a tensor
    void *request;
    int64_t first, count, elements, waiting; // parameters; elements of gradients; parameters not ready yet
} kit_parallel__bucket_t;

struct kit_parallel_t {
    kit_collectives_t ranks;
    kit_parallel__parameter_t *parameter; // the last of the net first: their gradients come first
    kit_parallel__bucket_t *bucket;
    int64_t count, buckets, begun;
    double *totals; // two numbers of each rank
    int sync, code; // code: the first failure of the engine, after which nothing is sent
};

// Gives the place this rank's part of the sum. What an earlier finish has left is there already.
static void kit_parallel__copy(kit_parallel__parameter_t *q) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *grad = tensor_grad(q->t);
    q->has = grad != NULL;
    if (grad) {
        tensor_copy_(q->place, grad);
    } else {
        tensor_zero_(q->place);
    }
    tensor_scope_end(scope);
}

// What follows the gradients in a bucket. An error that is pending goes with it: the other ranks must hear.
static void kit_parallel__mark(kit_parallel_t *p, kit_parallel__bucket_t *b) {
    for (int64_t k = 0; k < b->count; k++) { b->mark[k] = p->parameter[b->first + k].has; }
    b->mark[b->count] = !tensor_ok();
    tensor_copy_(b->marks, b->host);
}

// Makes the sum a mean: each rank adds its share.
static void kit_parallel__share(kit_parallel_t *p, kit_parallel__bucket_t *b) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    if (p->ranks.size > 1) {
        tensor_mul_scalar_(tensor_narrow(b->data, 0, 0, b->elements), 1.0 / p->ranks.size);
    }
    tensor_scope_end(scope);
}

// Begins the buckets that are whole, up to number `most`, in their order, which is the same on all ranks.
static void kit_parallel__begin(kit_parallel_t *p, int64_t most) {
    while (p->begun < most && p->bucket[p->begun].waiting == 0 && !p->code) {
        kit_parallel__bucket_t *b = &p->bucket[p->begun++];
        kit_parallel__mark(p, b);
        kit_parallel__share(p, b);
        p->code = p->ranks.sum(p->ranks.user, 0, b->data, &b->request);
    }
}

static void kit_parallel__arrived(tensor_t *x, void *user) {
    kit_parallel__parameter_t *q = (kit_parallel__parameter_t *)user;
    kit_parallel_t *p = q->p;
    (void)x;
    if (p->code || !(p->sync || q->ready)) { return; }
    if (q->bucket < p->begun) {
        (tensor_raise)(TENSOR_ERR_AUTOGRAD,
                       "kit_parallel: a gradient came again after its sum had begun; call "
                       "kit_parallel_sync(p, 0) before all backwards but the last");
        return;
    }
    kit_parallel__copy(q); // once more where a second backward has added to it
    p->bucket[q->bucket].waiting -= !q->ready;
    q->ready = 1;
    // The last bucket begins in finish: what goes wrong on a rank until then is known to all when it ends.
    kit_parallel__begin(p, p->buckets - 1);
    for (int64_t k = 0; k < p->begun && !p->code; k++) {
        p->code = p->ranks.wait(p->ranks.user, &p->bucket[k].request, 1);
    }
}

// Gives parameters their means as gradients. -> how many ranks have failed
static float kit_parallel__spread(kit_parallel__bucket_t *b, kit_parallel__parameter_t *parameter) {
    if (tensor_copy_out(b->marks, b->mark, (size_t)(b->count + 1) * sizeof(float))) { return 1; }
    for (int64_t k = 0; k < b->count; k++) {
        if (b->mark[k] > 0) { tensor_set_grad(parameter[k].t, parameter[k].place); }
    }
    return b->mark[b->count];
}

// What failed has its own error; where the program has cleared it, the next call says why it cannot go on.
static int kit_parallel__broken(kit_parallel_t *p) {
    if (p->code && tensor_ok()) {
        (tensor_raise)(p->code, "kit_parallel: an earlier call has failed; close it and open it again");
    }
    return p->code;
}

int (kit_parallel_finish)(kit_parallel_t *p) {
    float failed = 0;
    if (kit_parallel__broken(p)) { return p->code; }
    for (int64_t k = 0; k < p->count && !p->code; k++) {
        kit_parallel__parameter_t *q = &p->parameter[k];
        if (!q->ready) { kit_parallel__copy(q); } // nothing produced it here, or backward did not run
    }
    for (int64_t k = 0; k < p->buckets; k++) { p->bucket[k].waiting = 0; }
    kit_parallel__begin(p, p->buckets);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (int64_t k = 0; k < p->buckets; k++) {
        kit_parallel__bucket_t *b = &p->bucket[k];
        if (!p->code) { p->code = p->ranks.wait(p->ranks.user, &b->request, 0); }
        if (!p->code) { failed += kit_parallel__spread(b, &p->parameter[b->first]); }
        b->waiting = b->count;
    }
    (tensor_scope_end)(scope);
    for (int64_t k = 0; k < p->count; k++) { p->parameter[k].ready = 0; }
    p->begun = 0;
    if (!p->code && failed > 0 && tensor_ok()) {
        (tensor_raise)(TENSOR_ERR_IO, "kit_parallel: another rank has an error");
    }
    return p->code ? p->code : tensor_error_code(); // this rank's own
}

void kit_parallel_sync(kit_parallel_t *p, int on) { p->sync = on; }

// ---- opening

typedef struct kit_parallel__summary_t {
    uint64_t version, count, hash, usable, failed, state;
    int64_t step;
    tensor_generator_t generator;
    char error[160]; // that is pending, as of a file that is missing
} kit_parallel__summary_t;

static uint64_t kit_parallel__mix(uint64_t hash, const void *data, size_t n) {
    const unsigned char *c = (const unsigned char *)data;
    for (size_t i = 0; i < n; i++) { hash = (hash ^ c[i]) * UINT64_C(1099511628211); }
    return hash;
}

// Names, shapes and dtypes of all that a net holds; whether its parameters are of a kind that can be summed.
static kit_parallel__summary_t kit_parallel__look(nn_named_list_t all, tensor_device_t device, int64_t step) {
    kit_parallel__summary_t s = {(uint64_t)tensor_version(), 0, 7, 1, 0, 0, step, {0, 0}, {0}};
    s.generator = tensor_get_generator();
    s.count = (uint64_t)all.count;
    for (int64_t i = 0; i < all.count; i++) {
        tensor_t *t = all.item[i].tensor;
        tensor_shape_t shape = tensor_shape(t);
        int kind[2] = {(int)tensor_dtype(t), !all.item[i].is_buffer && tensor_requires_grad(t)};
        s.hash = kit_parallel__mix(s.hash, all.item[i].name, strlen(all.item[i].name) + 1);
        s.hash = kit_parallel__mix(s.hash, shape.dims, (size_t)shape.ndim * sizeof shape.dims[0]);
        s.hash = kit_parallel__mix(s.hash, kind, sizeof kind);
        if (tensor_device(t) != (int)device) { s.usable = 0; }
        if (!all.item[i].is_buffer && kind[0] != TENSOR_F32) { s.usable = 0; }
    }
    return s;
}

// What disagrees with rank 0; NULL = nothing.
static const char *kit_parallel__odd(const kit_parallel__summary_t *one, const kit_parallel__summary_t *all) {
    if (one->failed) { return "has an error: "; }
    if (!one->usable) { return "has a net that is not of f32 on its device"; }
    if (one->version != all->version) { return "has another version of tensor.h than rank 0"; }
    if (one->count != all->count) { return "has another number of parameters than rank 0"; }
    if (one->hash != all->hash) { return "has other names, shapes, dtypes or frozen parameters than rank 0"; }
    if (one->step != all->step) { return "is at another step than rank 0; all ranks load the file"; }
    if (one->state != all->state) {
        return "has another optimizer state than rank 0; all ranks load the file";
    }
    return NULL;
}

// Compares, and takes the generator of rank 0. An error that is pending here, as of memory, is heard by all.
//   -> code, on all ranks or on none
static int kit_parallel__agree(const kit_collectives_t *c, kit_parallel__summary_t *mine) {
    char text[320];
    kit_parallel__summary_t *all = (kit_parallel__summary_t *)calloc((size_t)c->size, sizeof *all);
    if (!all) { (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory"); }
    mine->failed = !tensor_ok();
    if (mine->failed) { snprintf(mine->error, sizeof mine->error, "%s", tensor_error_text()); }
    int code = c->gather(c->user, mine, sizeof *mine, all);
    if (!all) { return tensor_error_code(); }
    if (!code) { mine->generator = all[0].generator; }
    for (int k = 0; k < c->size && !code; k++) {
        const char *what = kit_parallel__odd(&all[k], all);
        if (!what) { continue; }
        snprintf(text, sizeof text, "kit_parallel: rank %d %s%s", k, what, all[k].error);
        code = all[k].usable ? TENSOR_ERR_SHAPE : TENSOR_ERR_UNSUPPORTED;
        code = (tensor_raise)(all[k].failed ? TENSOR_ERR_IO : code, text);
    }
    free(all);
    return code;
}

// Copies of all that a net holds, for the broadcasts. They are made before ranks speak with one another: a
// rank without memory must not be missing in a broadcast.   -> NULL after raising
static tensor_t **kit_parallel__copies(nn_named_list_t all) {
    tensor_t **copy = (tensor_t **)calloc((size_t)all.count + 1, sizeof *copy);
    if (!copy) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory");
        return NULL;
    }
    tensor_scope_t scope = (tensor_scope_begin_no_grad)();
    for (int64_t i = 0; i < all.count; i++) {
        copy[i] = (tensor_keep)((tensor_clone)((tensor_contiguous)(all.item[i].tensor)));
    }
    (tensor_scope_end)(scope);
    return copy;
}

// Gives the net the state of rank 0, once all ranks agree.   -> code of the engine
static int kit_parallel__start(const kit_collectives_t *c, nn_named_list_t all, tensor_t **copy) {
    int code = 0;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (int64_t i = 0; i < all.count && !code; i++) {
        code = c->broadcast(c->user, copy[i]);
        if (!code) { tensor_copy_(all.item[i].tensor, copy[i]); }
        if (code) { copy[i] = NULL; } // the engine may still write to it
    }
    (tensor_scope_end)(scope);
    return code;
}

// After the start weights are equal, so all that a snapshot holds is, but for the generator.
static uint64_t kit_parallel__hash_state(nn_module_t *net, nn_optimizer_t *opt) {
    tensor_generator_t before = tensor_get_generator();
    size_t size = nn_snapshot_size(net, opt);
    char *block = (char *)calloc(1, size + 1);
    uint64_t hash = 7;
    tensor_manual_seed(0);
    if (!block) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory");
    } else if (!nn_snapshot(net, opt, block, size)) {
        hash = kit_parallel__mix(hash, block, size);
    }
    tensor_set_generator(before);
    free(block);
    return hash;
}

// Which parameters are in which bucket.
static void kit_parallel__share_out(kit_parallel_t *p, nn_named_list_t list) {
    for (int64_t i = list.count - 1; i >= 0; i--) {
        kit_parallel__parameter_t *q = &p->parameter[p->count];
        kit_parallel__bucket_t *b = p->buckets ? &p->bucket[p->buckets - 1] : NULL;
        if (!tensor_requires_grad(list.item[i].tensor)) { continue; }
        q->p = p;
        q->t = list.item[i].tensor;
        int64_t n = tensor_numel(q->t);
        if (!b || b->elements + n > KIT_PARALLEL_BUCKET / (int64_t)sizeof(float)) {
            b = &p->bucket[p->buckets++];
            b->first = p->count;
        }
        q->bucket = p->buckets - 1;
        b->elements += n;
        b->waiting = ++b->count;
        p->count++;
    }
}

// Memory of the buckets, and where each parameter has its place there. -> 1 or 0
static int kit_parallel__allocate(kit_parallel_t *p) {
    int good = 1;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (int64_t k = 0; k < p->buckets && good; k++) {
        kit_parallel__bucket_t *b = &p->bucket[k];
        int64_t at = 0, n = b->elements + b->count + 1;
        int64_t marks = b->count + 1;
        b->mark = (float *)calloc((size_t)marks, sizeof(float));
        good = b->mark != NULL;
        if (!good) { break; }
        b->host = tensor_keep(tensor_wrap_n(b->mark, TENSOR_F32, &marks, 1, NULL, NULL));
        b->data = tensor_keep(tensor_to(tensor_zeros_n(&n, 1, TENSOR_F32), (int)p->ranks.device));
        b->marks = tensor_keep(tensor_narrow(b->data, 0, b->elements, marks));
        for (int64_t i = b->first; i < b->first + b->count; i++) {
            kit_parallel__parameter_t *q = &p->parameter[i];
            tensor_shape_t s = tensor_shape(q->t);
            n = tensor_numel(q->t);
            q->place = tensor_keep(tensor_view_n(tensor_narrow(b->data, 0, at, n), s.dims, s.ndim));
            q->hook = tensor_register_post_accumulate_grad_hook(q->t, kit_parallel__arrived, q);
            good = good && q->hook != 0;
            at += n;
        }
    }
    tensor_scope_end(scope);
    return good && tensor_ok();
}

// Memory and hooks. -> NULL after raising
static kit_parallel_t *kit_parallel__build(const kit_collectives_t *ranks, nn_module_t *net) {
    nn_named_list_t list = nn_named_parameters(net);
    kit_parallel_t *p = (kit_parallel_t *)calloc(1, sizeof *p);
    int good = p != NULL;
    if (good) {
        p->ranks = *ranks;
        p->sync = 1;
        p->parameter = (kit_parallel__parameter_t *)calloc((size_t)list.count + 1, sizeof *p->parameter);
        p->bucket = (kit_parallel__bucket_t *)calloc((size_t)list.count + 1, sizeof *p->bucket);
        p->totals = (double *)calloc((size_t)ranks->size, 2 * sizeof *p->totals);
        good = p->parameter && p->bucket && p->totals;
    }
    if (good) {
        kit_parallel__share_out(p, list);
        good = kit_parallel__allocate(p);
    }
    if (good) { return p; }
    kit_parallel_close(p);
    (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory");
    return NULL;
}

kit_parallel_t *(kit_parallel_open)(const kit_collectives_t *ranks, nn_module_t *net, nn_optimizer_t *opt,
                                    int64_t step) {
    nn_named_list_t all = {NULL, 0};
    if (net) {
        all = nn_state(net);
    } else {
        (tensor_raise)(TENSOR_ERR_POISONED, "kit_parallel_open: argument net is NULL");
    }
    kit_parallel__summary_t mine = kit_parallel__look(all, ranks->device, step);
    tensor_t **copy = kit_parallel__copies(all);
    int code = kit_parallel__agree(ranks, &mine);
    if (!code) { code = kit_parallel__start(ranks, all, copy); }
    for (int64_t i = 0; copy && i < all.count; i++) { (tensor_free)(copy[i]); }
    free(copy);
    if (code) { return NULL; }
    if (opt) { mine.state = kit_parallel__hash_state(net, opt); }
    kit_parallel_t *p = kit_parallel__build(ranks, net);
    if (kit_parallel__agree(ranks, &mine)) { // also where another rank has no memory for it
        kit_parallel_close(p);
        return NULL;
    }
    mine.generator.seed += (uint64_t)ranks->rank * UINT64_C(0xBF58476D1CE4E5B9); // any odd number
    tensor_set_generator(mine.generator);
    return p;
}

void kit_parallel_close(kit_parallel_t *p) {
    if (!p) { return; }
    for (int64_t k = 0; k < p->count; k++) {
        (tensor_remove_hook)(p->parameter[k].hook);
        (tensor_free)(p->parameter[k].place);
    }
    for (int64_t k = 0; p->bucket && k < p->buckets; k++) {
        kit_parallel__bucket_t *b = &p->bucket[k];
        (tensor_free)(b->marks);
        (tensor_free)(b->host);
        if (!b->request) { (tensor_free)(b->data); } // else the engine may still write to it
        free(b->mark);
    }
    free(p->bucket);
    free(p->parameter);
    free(p->totals);
    free(p);
}

kit_parallel_t *kit_parallel__at_open(const char *site, kit_parallel_t *p) {
    kit_parallel__at(site, 0);
    return p;
}

// ---- samples and numbers

tensor_t *(kit_parallel_loss)(kit_parallel_t *p, tensor_t *loss, int64_t samples) {
    double mine[2] = {(double)samples, 0}, sums[2] = {0, 0};
    if (!kit_parallel__broken(p)) { p->code = kit_parallel__total(&p->ranks, p->totals, mine, sums); }
    if (!loss) { return NULL; }
    if (p->code) { return (tensor_detach)(NULL); }
    double weight = sums[0] > 0 ? (double)samples * p->ranks.size / sums[0] : 0;
    return (tensor_mul_scalar)(loss, weight);
}

double (kit_parallel_mean)(kit_parallel_t *p, double value, double weight) {
    double mine[2] = {value * weight, weight}, sums[2] = {0, 0};
    if (!kit_parallel__broken(p)) { p->code = kit_parallel__total(&p->ranks, p->totals, mine, sums); }
    return p->code ? (double)NAN : sums[0] / sums[1];
}

tensor_t *(kit_parallel_shard)(const kit_parallel_t *p, int64_t n, uint64_t seed, uint64_t epoch) {
    if (n < 0) {
        char text[96];
        snprintf(text, sizeof text, "kit_parallel_shard: n is %lld; it must be 0 or more", (long long)n);
        (tensor_raise)(TENSOR_ERR_SHAPE, text);
        return (tensor_detach)(NULL);
    }
    tensor_generator_t before = tensor_get_generator();
    tensor_manual_seed(seed + epoch * UINT64_C(0x9E3779B97F4A7C15));
    tensor_t *order = (tensor_randperm)(n);
    tensor_set_generator(before);
    int64_t mine = (n - p->ranks.rank + p->ranks.size - 1) / p->ranks.size;
    tensor_t *at = (tensor_arange)(0, (double)mine, 1, TENSOR_I64);
    at = (tensor_add_scalar)((tensor_mul_scalar)(at, p->ranks.size), p->ranks.rank);
    return (tensor_index_select)(order, 0, at);
}

#endif

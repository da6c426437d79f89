// collectives.h - what ranks do together: sums, broadcasts, gathers; parallel.h trains with them
//
// A file to copy and to change, with parallel.h, mpi.h or nccl.h, which include it. One file of the program
// defines KIT_PARALLEL_IMPLEMENTATION.
#ifndef KIT_COLLECTIVES_H
#define KIT_COLLECTIVES_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// What ranks do together. All call the same functions in the same order on a channel: 0 is for gradients, 1
// for sums of layers, broadcast and gather have one of their own. Each gives 0, or a code that it has raised:
// IO where a rank has gone, or has not answered in time. Tensors are contiguous and on `device`.
typedef struct kit_collectives_t {
    int rank, size;
    tensor_device_t device;
    void *user;
    // Begins to sum data (f32) over ranks, in place; it stays until wait. A request is NULL when it is done.
    int (*sum)(void *user, int channel, tensor_t *data, void **request);
    int (*wait)(void *user, void **request, int poll); // poll: only gives it time to go on
    int (*broadcast)(void *user, tensor_t *data);      // from rank 0
    // Of the host: all [size * bytes], or NULL where this rank has no memory for it but takes part.
    int (*gather)(void *user, const void *mine, size_t bytes, void *all);
} kit_collectives_t;

// One rank alone: a program need not know whether there are more.
kit_collectives_t kit_parallel_alone(void);

// Sum over ranks, with a gradient.   -> new;  errors IO, UNSUPPORTED (not f32)
tensor_t *kit_parallel_sum(const kit_collectives_t *ranks, tensor_t *x);
// The same in place, for nn_sync_batch_norm(64, .all_reduce = kit_parallel_all_reduce, .user = &ranks), where
// ranks is a kit_collectives_t that outlives the layer. All ranks need samples in each batch: one without
// does not come, and the others time out.   -> code;  errors as above
int kit_parallel_all_reduce(tensor_t *x, void *ranks);
// Sums of two numbers over ranks, in double.   -> code;  errors IO, OUT_OF_MEMORY
int kit_parallel_total(const kit_collectives_t *c, double first, double second, double sums[2]);

// As in tensor.h, an error names the place of the program's call.
int kit_parallel__at(const char *site, int code);
tensor_t *kit_parallel__at_tensor(const char *site, tensor_t *t);
double kit_parallel__at_number(const char *site, double value);
#define kit_parallel_sum(...) kit_parallel__at_tensor(TENSOR_HERE, (kit_parallel_sum)(__VA_ARGS__))
#define kit_parallel_all_reduce(...) kit_parallel__at(TENSOR_HERE, (kit_parallel_all_reduce)(__VA_ARGS__))
#define kit_parallel_total(...) kit_parallel__at(TENSOR_HERE, (kit_parallel_total)(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_PARALLEL_IMPLEMENTATION) && !defined(KIT_COLLECTIVES_DONE)
#define KIT_COLLECTIVES_DONE

#include <stdlib.h>
#include <string.h>

// ---- places

// tensor_check_with gives the error that is pending the place in its options, unless it has one. The kit
// itself raises errors, and ends scopes after them, by functions in parentheses, which note no place.
int kit_parallel__at(const char *site, int code) {
    static tensor_check_args_t none;
    tensor_check_args_t place = none;
    place.site_ = site;
    if (!tensor_ok()) { (void)tensor_check_with(place); }
    return code;
}

tensor_t *kit_parallel__at_tensor(const char *site, tensor_t *t) {
    kit_parallel__at(site, 0);
    return t;
}

double kit_parallel__at_number(const char *site, double value) {
    kit_parallel__at(site, 0);
    return value;
}

// ---- one rank

static int kit_parallel__sum_alone(void *user, int channel, tensor_t *data, void **request) {
    (void)user, (void)channel, (void)data;
    *request = NULL;
    return 0;
}

static int kit_parallel__wait_alone(void *user, void **request, int poll) {
    (void)user, (void)request, (void)poll;
    return 0;
}

static int kit_parallel__broadcast_alone(void *user, tensor_t *data) {
    (void)user, (void)data;
    return 0;
}

static int kit_parallel__gather_alone(void *user, const void *mine, size_t bytes, void *all) {
    (void)user;
    if (all) { memcpy(all, mine, bytes); }
    return 0;
}

kit_collectives_t kit_parallel_alone(void) {
    kit_collectives_t c = {0, 1, tensor_get_default_device(), NULL, kit_parallel__sum_alone,
                           kit_parallel__wait_alone, kit_parallel__broadcast_alone,
                           kit_parallel__gather_alone};
    return c;
}

// all: room for two numbers of each rank, NULL = there is no memory for it
static int kit_parallel__total(const kit_collectives_t *c, double *all, const double mine[2],
                               double sums[2]) {
    int code = c->gather(c->user, mine, 2 * sizeof *mine, all);
    sums[0] = sums[1] = 0;
    for (int k = 0; all && k < c->size; k++) {
        sums[0] += all[2 * k];
        sums[1] += all[2 * k + 1];
    }
    if (all) { return code; }
    (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory"); // unless there is an error
    return tensor_error_code();
}

int (kit_parallel_total)(const kit_collectives_t *c, double first, double second, double sums[2]) {
    double mine[2] = {first, second};
    double *all = (double *)calloc((size_t)c->size, sizeof mine);
    int code = kit_parallel__total(c, all, mine, sums);
    free(all);
    return code;
}

// ---- sums with a gradient

int (kit_parallel_all_reduce)(tensor_t *x, void *ranks) {
    const kit_collectives_t *c = (const kit_collectives_t *)ranks;
    void *request = NULL;
    int code = 0;
    if (tensor_dtype(x) != TENSOR_F32) {
        code = (tensor_raise)(TENSOR_ERR_UNSUPPORTED, "kit_parallel: what is to be summed is not of f32");
    }
    if (!code) { code = c->sum(c->user, 1, x, &request); }
    if (!code) { code = c->wait(c->user, &request, 0); }
    if (request) { (tensor_keep)(x); } // the engine may still write to it
    return code;
}

static tensor_t *kit_parallel__sum_forward(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int n) {
    tensor_t *y = tensor_clone(tensor_contiguous(inputs[0]));
    (void)n;
    return (kit_parallel_all_reduce)(y, tensor_function_user(ctx)) ? tensor_detach(NULL) : y;
}

static int kit_parallel__sum_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)n;
    grads[0] = (kit_parallel_sum)((const kit_collectives_t *)tensor_function_user(ctx), grad);
    return tensor_error_code();
}

tensor_t *(kit_parallel_sum)(const kit_collectives_t *ranks, tensor_t *x) {
    static const tensor_function_t sum = {"kit_parallel_sum", kit_parallel__sum_forward,
                                          kit_parallel__sum_backward, NULL};
    return (tensor_apply)(&sum, (void *)(uintptr_t)ranks, &x, 1);
}

#endif

// nccl.h - GPUs behind the collectives of parallel.h: a process for each, or a thread
//
// A file to copy and to change, with parallel.h beside it. In one C file of the program, which is linked with
// tensor_cuda.o:
//
//   #define KIT_PARALLEL_IMPLEMENTATION
//   #define KIT_NCCL_IMPLEMENTATION
//   #include "kit/nccl.h"                                    // which includes parallel.h
//
//   char id[TENSOR_CUDA_ID_BYTES];
//   if (rank == 0) tensor_cuda_comm_id(id);                  // and send it to the others: file, socket, MPI
//   kit_collectives_t ranks;
//   if (kit_nccl_ranks(&ranks, rank, size, id, (tensor_device_t)(TENSOR_CUDA + rank), 30)) return 1;
//   tensor_set_default_device(ranks.device);                 // or nn_to(net, (int)ranks.device)
//   kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, step);
//   ...
//   kit_parallel_close(p);
//   kit_nccl_end(&ranks);
//
// Sums run on streams of their own, so that backward goes on beside them.
#ifndef KIT_NCCL_H
#define KIT_NCCL_H

#include "../../tensor_cuda.h"
#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

// One rank's end; waits until all ranks have called it.
//   id       of tensor_cuda_comm_id, the same on all ranks
//   device   of this rank, started by tensor_cuda_init
//   timeout  seconds that a rank waits for the others, here and in each sum, before it gives up; 0 = without
//            a limit, which is all that NCCL before 2.14 can at the start
//   -> code;  errors as tensor_cuda_comm_new, OUT_OF_MEMORY
int kit_nccl_ranks(kit_collectives_t *ranks, int rank, int size, const void *id, tensor_device_t device,
                   double timeout);
// Frees what ranks holds. After an error it does not wait for the others.
void kit_nccl_end(kit_collectives_t *ranks);

#define kit_nccl_ranks(...) kit_parallel__at(TENSOR_HERE, (kit_nccl_ranks)(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_NCCL_IMPLEMENTATION) && !defined(KIT_NCCL_DONE)
#define KIT_NCCL_DONE

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KIT_NCCL_LAYERS = 1, KIT_NCCL_REST = 2, KIT_NCCL_CHANNELS = 3 }; // 0 is for gradients

// Ranks may interleave the channels in different orders, so each has a communicator and a stream.
typedef struct kit_nccl__channel_t {
    tensor_cuda_comm_t *comm;
    tensor_cuda_stream_t *stream;
} kit_nccl__channel_t;

typedef struct kit_nccl__state_t {
    kit_nccl__channel_t channel[KIT_NCCL_CHANNELS];
    tensor_device_t device;
    int rank, size, failed;
    double timeout;
} kit_nccl__state_t;

// Another rank has gone. All that waits for it ends, so that the streams go on and memory can be freed; no
// channel can be used again.
static void kit_nccl__give_up(kit_nccl__state_t *s) {
    tensor_cuda_comm_t *comm[KIT_NCCL_CHANNELS];
    for (int k = 0; k < KIT_NCCL_CHANNELS; k++) {
        comm[k] = s->channel[k].comm;
        s->channel[k].comm = NULL;
    }
    (tensor_cuda_comm_abort_n)(comm, KIT_NCCL_CHANNELS);
    s->failed = 1;
}

// Queues one collective: all_gather into y if there is a y, a broadcast from rank 0 or a sum otherwise.
static int kit_nccl__queue(kit_nccl__state_t *s, int channel, tensor_t *x, tensor_t *y, int broadcast) {
    kit_nccl__channel_t *c = &s->channel[channel];
    int code;
    if (s->failed) { return (tensor_raise)(TENSOR_ERR_IO, "kit_parallel: an earlier call has failed"); }
    tensor_cuda_stream_t *before = (tensor_cuda_set_stream)(c->stream);
    if (!before) { return tensor_error_code(); }
    if (y) {
        code = (tensor_cuda_all_gather)(c->comm, y, x);
    } else if (broadcast) {
        code = (tensor_cuda_broadcast)(c->comm, x, 0);
    } else {
        code = (tensor_cuda_all_reduce)(c->comm, x, 0);
    }
    (tensor_cuda_set_stream)(before);
    if (code) { kit_nccl__give_up(s); } // this rank is not part of it, so the others would wait for ever
    return code;
}

static int kit_nccl__wait(void *user, void **request, int poll) {
    kit_nccl__state_t *s = (kit_nccl__state_t *)user;
    kit_nccl__channel_t *c = (kit_nccl__channel_t *)*request;
    time_t begin = time(NULL);
    int before = tensor_error_code();
    if (!c || (poll && !s->failed)) { return 0; }
    while (!s->failed && !(tensor_cuda_stream_query)(c->stream)) {
        // A stream that cannot be asked is never done: the device is lost, or a capture is under way.
        if (tensor_error_code() != before || before == TENSOR_ERR_CUDA) {
            kit_nccl__give_up(s);
        } else if (s->timeout > 0 && difftime(time(NULL), begin) > s->timeout) {
            char text[160];
            const char *what = "has not answered in time";
            if (c == &s->channel[KIT_NCCL_LAYERS]) {
                what = "did not come to a layer's sum; all ranks need samples in each batch";
            }
            snprintf(text, sizeof text, "kit_parallel: rank %d: another rank %s", s->rank, what);
            (tensor_raise)(TENSOR_ERR_IO, text);
            kit_nccl__give_up(s);
        }
    }
    *request = NULL;
    if (s->failed && tensor_ok()) {
        (tensor_raise)(TENSOR_ERR_IO, "kit_parallel: an earlier call has failed");
    }
    return s->failed ? tensor_error_code() : 0;
}

static int kit_nccl__sum(void *user, int channel, tensor_t *data, void **request) {
    kit_nccl__state_t *s = (kit_nccl__state_t *)user;
    int code = kit_nccl__queue(s, channel, data, NULL, 0);
    *request = code ? NULL : &s->channel[channel];
    return code;
}

static int kit_nccl__broadcast_on(kit_nccl__state_t *s, int channel, tensor_t *data) {
    void *request = &s->channel[channel];
    int code = kit_nccl__queue(s, channel, data, NULL, 1);
    return code ? code : kit_nccl__wait(s, &request, 0);
}

static int kit_nccl__broadcast(void *user, tensor_t *data) {
    return kit_nccl__broadcast_on((kit_nccl__state_t *)user, KIT_NCCL_REST, data);
}

static int kit_nccl__gather(void *user, const void *mine, size_t bytes, void *all) {
    kit_nccl__state_t *s = (kit_nccl__state_t *)user;
    int64_t one = (int64_t)bytes, many = one * s->size;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x = (tensor_to)((tensor_from_n)(mine, TENSOR_U8, &one, 1), (int)s->device);
    tensor_t *y = (tensor_to)((tensor_empty_n)(&many, 1, TENSOR_U8), (int)s->device);
    void *request = &s->channel[KIT_NCCL_REST];
    int code = kit_nccl__queue(s, KIT_NCCL_REST, x, y, 0);
    if (!code) { code = kit_nccl__wait(s, &request, 0); }
    if (!code && all) { code = (tensor_copy_out)(y, all, (size_t)many); }
    (tensor_scope_end)(scope);
    return code;
}

// The id of a further communicator goes to the other ranks by the first one.
static int kit_nccl__open_more(kit_nccl__state_t *s, kit_nccl__channel_t *c) {
    unsigned char id[TENSOR_CUDA_ID_BYTES] = {0};
    int64_t bytes = TENSOR_CUDA_ID_BYTES;
    int code = s->rank == 0 ? (tensor_cuda_comm_id)(id) : 0;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x = (tensor_to)((tensor_from_n)(id, TENSOR_U8, &bytes, 1), (int)s->device);
    if (!code) { code = kit_nccl__broadcast_on(s, 0, x); }
    if (!code) { code = (tensor_copy_out)(x, id, sizeof id); }
    (tensor_scope_end)(scope);
    if (code) { return code; }
    c->comm = (tensor_cuda_comm_new)(s->rank, s->size, id, s->device, s->timeout);
    return c->comm ? 0 : tensor_error_code();
}

static int kit_nccl__open(kit_nccl__state_t *s, const void *id) {
    for (int k = 0; k < KIT_NCCL_CHANNELS; k++) {
        s->channel[k].stream = (tensor_cuda_stream_new)(s->device);
        if (!s->channel[k].stream) { return tensor_error_code(); }
    }
    s->channel[0].comm = (tensor_cuda_comm_new)(s->rank, s->size, id, s->device, s->timeout);
    if (!s->channel[0].comm) { return tensor_error_code(); }
    int code = kit_nccl__open_more(s, &s->channel[KIT_NCCL_LAYERS]);
    return code ? code : kit_nccl__open_more(s, &s->channel[KIT_NCCL_REST]);
}

void kit_nccl_end(kit_collectives_t *ranks) {
    kit_nccl__state_t *s = (kit_nccl__state_t *)ranks->user;
    for (int k = 0; s && k < KIT_NCCL_CHANNELS; k++) {
        void *request = &s->channel[k];
        if (s->channel[k].comm) { kit_nccl__wait(s, &request, 0); } // for sums that nobody has waited for
    }
    for (int k = 0; s && k < KIT_NCCL_CHANNELS; k++) {
        if (s->channel[k].comm) { (tensor_cuda_comm_free)(s->channel[k].comm); }
        if (s->channel[k].stream) { (tensor_cuda_stream_free)(s->channel[k].stream); }
    }
    free(s);
    ranks->user = NULL;
}

int (kit_nccl_ranks)(kit_collectives_t *ranks, int rank, int size, const void *id, tensor_device_t device,
                     double timeout) {
    kit_nccl__state_t *s = (kit_nccl__state_t *)calloc(1, sizeof *s);
    if (!s) { return (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory"); }
    kit_collectives_t c = {rank,           size,           device,              s,
                           kit_nccl__sum, kit_nccl__wait, kit_nccl__broadcast, kit_nccl__gather};
    s->rank = rank;
    s->size = size;
    s->device = device;
    s->timeout = timeout;
    int code = kit_nccl__open(s, id);
    if (code) {
        kit_nccl_end(&c);
    } else {
        *ranks = c;
    }
    return code;
}

#endif

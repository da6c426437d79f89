// profiler_cuda.h - times of a GPU for profiler.h, by events around each call
//
// A file to copy and to change, with profiler.h beside it. In one C file of the program, which is linked with
// tensor_cuda.o:
//
//   #define KIT_PROFILER_IMPLEMENTATION
//   #define KIT_PROFILER_CUDA_IMPLEMENTATION
//   #include "kit/profiler_cuda.h"                           // which includes profiler.h
//
//   kit_profiler_t *p = kit_profiler_cuda_start();           // the rest as in profiler.h
//   for (int step = 0; step < 10; step++) train_step();
//   kit_profiler_print(p, KIT_PROFILER_OPS, 20);             // has a column "device us"
//   kit_profiler_trace(p, "step.json");                      // has a track for each device
//   kit_profiler_free(p);
//
// The time of a call is that between its events on the thread's stream: with what the stream waits for in it,
// and with the gaps of a stream that has nothing to do. Calls in a capture have none. Events are used again:
// a device has at most KIT_PROFILER_MARKS + 1 of them.
//
// The first report stops the profiler and waits for the GPU. It must come outside of a capture, and before
// tensor_cuda_shutdown: after that there are no times of the device, and if CUDA has been started again, the
// events are not those of the profiler. Where an event fails, the error is reported and cleared, the program
// goes on, and calls have no times from there on.
#ifndef KIT_PROFILER_CUDA_H
#define KIT_PROFILER_CUDA_H

#include "../../tensor_cuda.h"
#include "profiler.h"

#ifdef __cplusplus
extern "C" {
#endif

// kit_profiler_start with marks on GPUs. Takes 48 bytes more for each call there.
//   -> profiler, NULL on failure;  errors OUT_OF_MEMORY
kit_profiler_t *kit_profiler_cuda_start(void);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_PROFILER_CUDA_IMPLEMENTATION) && !defined(KIT_PROFILER_CUDA_DONE)
#define KIT_PROFILER_CUDA_DONE

#include <math.h>
#include <stdlib.h>

typedef struct kit_profiler_cuda__ring_t {
    tensor_cuda_event_t *event[KIT_PROFILER_MARKS + 1]; // [0]: of mark 0, which stays; NULL: not made yet
    int64_t marks;
} kit_profiler_cuda__ring_t;

typedef struct kit_profiler_cuda__state_t {
    kit_profiler_cuda__ring_t ring[KIT_PROFILER_DEVICES];
    int failed, gone; // a mark failed: no more of them; the events cannot be read
} kit_profiler_cuda__state_t;

static tensor_cuda_event_t **kit_profiler_cuda__event(kit_profiler_cuda__ring_t *ring, int64_t mark) {
    return &ring->event[mark ? 1 + (mark - 1) % KIT_PROFILER_MARKS : 0];
}

// An error of the profiler is not one of the program, unless that had one before.
static void kit_profiler_cuda__clear(int was_ok) {
    if (was_ok && !tensor_ok()) { tensor_clear_error(); }
}

static int64_t kit_profiler_cuda__mark(void *user, tensor_device_t device) {
    kit_profiler_cuda__state_t *s = (kit_profiler_cuda__state_t *)user;
    kit_profiler_cuda__ring_t *ring = &s->ring[(int)device - TENSOR_CUDA];
    tensor_cuda_event_t **event = kit_profiler_cuda__event(ring, ring->marks);
    int was_ok = tensor_ok();
    if (s->failed) { return -1; }
    tensor_cuda_stream_t *stream = (tensor_cuda_current_stream)(device);
    if (stream && !*event) { *event = (tensor_cuda_event_new)(device, 1); }
    s->failed = !stream || !*event || (tensor_cuda_event_record)(*event, stream) != 0;
    kit_profiler_cuda__clear(was_ok);
    return s->failed ? -1 : ring->marks++;
}

static double kit_profiler_cuda__between(void *user, tensor_device_t device, int64_t from, int64_t to) {
    kit_profiler_cuda__state_t *s = (kit_profiler_cuda__state_t *)user;
    kit_profiler_cuda__ring_t *ring = &s->ring[(int)device - TENSOR_CUDA];
    int was_ok = tensor_ok();
    double ms = NAN;
    if (from && ring->marks - from > KIT_PROFILER_MARKS) { return NAN; } // its event was used again
    if (!s->gone && (tensor_cuda_current_stream)(device)) { // else a shutdown has freed the events
        ms = (tensor_cuda_event_elapsed_time)(*kit_profiler_cuda__event(ring, from),
                                              *kit_profiler_cuda__event(ring, to));
    }
    s->gone = isnan(ms) != 0;
    kit_profiler_cuda__clear(was_ok);
    return 1e-3 * ms;
}

static void kit_profiler_cuda__end(void *user) {
    kit_profiler_cuda__state_t *s = (kit_profiler_cuda__state_t *)user;
    int was_ok = tensor_ok();
    for (int d = 0; d < KIT_PROFILER_DEVICES && !s->gone; d++) {
        kit_profiler_cuda__ring_t *ring = &s->ring[d];
        const tensor_device_t device = (tensor_device_t)(TENSOR_CUDA + d);
        if (!ring->event[0] || !(tensor_cuda_current_stream)(device)) { continue; }
        for (int k = 0; k <= KIT_PROFILER_MARKS; k++) { (tensor_cuda_event_free)(ring->event[k]); }
    }
    kit_profiler_cuda__clear(was_ok);
    free(s);
}

kit_profiler_t *kit_profiler_cuda_start(void) {
    kit_profiler_cuda__state_t *s = (kit_profiler_cuda__state_t *)calloc(1, sizeof *s);
    kit_profiler_t *p = s ? kit_profiler_start() : NULL;
    if (!s) { (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_profiler_cuda_start: out of memory"); }
    if (!p) {
        free(s);
        return NULL;
    }
    kit_profiler_marks_t marks = {s, kit_profiler_cuda__mark, kit_profiler_cuda__between,
                                  kit_profiler_cuda__end};
    kit_profiler_set_marks(p, &marks);
    return p;
}

#endif

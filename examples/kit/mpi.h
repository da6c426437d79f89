// mpi.h - the ranks of mpirun behind the collectives of parallel.h
//
// A file to copy and to change, with parallel.h beside it; mpicc compiles it. In one C file of the program:
//
//   #define KIT_PARALLEL_IMPLEMENTATION
//   #define KIT_MPI_IMPLEMENTATION
//   #include "kit/mpi.h"
#ifndef KIT_MPI_H
#define KIT_MPI_H

#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

// The ranks of mpirun. Initialises MPI unless the program has, and ends it then at exit. Where ranks have
// failed, the exit ends all of them.
//   timeout   seconds that a rank waits for the others, here and later, before it gives up. Only
//             MPI_Init_thread itself has no limit, whoever calls it: mpirun starts all ranks or none
//   -> code
//   errors  OUT_OF_MEMORY (IO on the other ranks), IO, UNSUPPORTED (MPI cannot be initialised, has ended, or
//           was initialised by MPI_Init, without threads: the program calls MPI_Init_thread with
//           MPI_THREAD_FUNNELED or more)
int kit_mpi_ranks(kit_collectives_t *ranks, double timeout);

#define kit_mpi_ranks(...) kit_parallel__at(TENSOR_HERE, (kit_mpi_ranks)(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_MPI_IMPLEMENTATION) && !defined(KIT_MPI_DONE)
#define KIT_MPI_DONE

#if defined(__has_include)
#if !__has_include(<mpi.h>)
#error "kit/mpi.h: there is no mpi.h; install MPI (Debian: libopenmpi-dev) and compile with mpicc"
#endif
#endif
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Channels; 0 is for gradients. START is none: it says what a rank waits for.
enum { KIT_MPI_LAYERS = 1, KIT_MPI_REST = 2, KIT_MPI_END = 3, KIT_MPI_CHANNELS = 4, KIT_MPI_START = 4 };
enum { KIT_MPI_PIECE = 256 }; // bytes of a rank that a gather moves at a time

typedef struct kit_mpi__request_t {
    MPI_Request mpi;
    int channel;
} kit_mpi__request_t;

// What is there from the start, so that a rank without memory can still say so to the others.
static struct {
    MPI_Comm channel[KIT_MPI_CHANNELS];
    double timeout;
    int failed, open, rank, size;           // open: all channels are there
    int lacks;               // ranks without memory, at the start
    kit_mpi__request_t only; // of all but sums, which come one at a time
    char *block;             // [size + 1][KIT_MPI_PIECE]: what a gather brings, and what it sends
} kit_mpi__state;

static int kit_mpi__fail(const char *what) {
    char text[160];
    snprintf(text, sizeof text, "kit_parallel: rank %d: %s", kit_mpi__state.rank, what);
    kit_mpi__state.failed = 1;
    return (tensor_raise)(TENSOR_ERR_IO, text);
}

// Every operation is one that does not block, so that a rank that never comes is noticed.
static int kit_mpi__wait(void *user, void **request, int poll) {
    kit_mpi__request_t *r = (kit_mpi__request_t *)*request;
    double end = MPI_Wtime() + kit_mpi__state.timeout;
    int done = 0, good = 1;
    (void)user;
    if (!r) { return 0; }
    if (kit_mpi__state.failed) { return kit_mpi__fail("an earlier call has failed"); }
    do {
        good = MPI_Test(&r->mpi, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    } while (good && !done && !poll && MPI_Wtime() < end);
    if (good && !done && poll) { return 0; }
    if (!good) { return kit_mpi__fail("MPI reports an error of another rank"); }
    if (!done && r->channel == KIT_MPI_LAYERS) {
        return kit_mpi__fail("another rank did not come to a layer's sum; all ranks need samples in "
                             "each batch");
    }
    if (!done && r->channel == KIT_MPI_START) {
        return kit_mpi__fail("another rank has not come to kit_mpi_ranks in time");
    }
    if (!done) { return kit_mpi__fail("another rank has not answered in time"); } // r stays: MPI has it
    if (r != &kit_mpi__state.only) { free(r); }
    *request = NULL;
    return 0;
}

// -> the request that MPI fills, NULL after an error
static MPI_Request *kit_mpi__request(void **request, int channel) {
    kit_mpi__request_t *r = NULL;
    if (kit_mpi__state.failed) {
        kit_mpi__fail("an earlier call has failed");
    } else if (channel < KIT_MPI_REST) {
        r = (kit_mpi__request_t *)malloc(sizeof *r);
    } else {
        r = &kit_mpi__state.only;
    }
    *request = r;
    if (!r) {
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory"); // unless there is an error
        return NULL;
    }
    r->channel = channel;
    return &r->mpi;
}

static int kit_mpi__sum(void *user, int channel, tensor_t *data, void **request) {
    (void)user;
    *request = NULL;
    if (tensor_numel(data) > INT_MAX) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED,
                              "kit_parallel: a tensor of 2^31 elements or more is too large for a sum of "
                              "MPI");
    }
    MPI_Request *r = kit_mpi__request(request, channel);
    if (!r) { return tensor_error_code(); }
    int n = (int)tensor_numel(data);
    int code = MPI_Iallreduce(MPI_IN_PLACE, tensor_data_mut(data), n, MPI_FLOAT, MPI_SUM,
                              kit_mpi__state.channel[channel], r);
    return code == MPI_SUCCESS ? 0 : kit_mpi__fail("a sum cannot begin");
}

static int kit_mpi__broadcast(void *user, tensor_t *x) {
    char *data = (char *)tensor_data_mut(x);
    size_t bytes = (size_t)tensor_numel(x) * tensor_dtype_size(tensor_dtype(x));
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < (1u << 28) ? bytes - at : 1u << 28;
        void *request;
        MPI_Request *r = kit_mpi__request(&request, KIT_MPI_REST);
        if (!r) { return tensor_error_code(); }
        if (MPI_Ibcast(data + at, (int)piece, MPI_BYTE, 0, kit_mpi__state.channel[KIT_MPI_REST], r)) {
            return kit_mpi__fail("a broadcast cannot begin");
        }
        int code = kit_mpi__wait(user, &request, 0);
        if (code) { return code; }
        at += piece;
    }
    return 0;
}

// MPI works on a block of its own, which stays with it when a rank gives up: the memory of the caller goes.
static int kit_mpi__gather(void *user, const void *mine, size_t bytes, void *all) {
    char *block = kit_mpi__state.block, *own = block + (size_t)kit_mpi__state.size * KIT_MPI_PIECE;
    for (size_t at = 0; at < bytes; at += KIT_MPI_PIECE) {
        size_t piece = bytes - at < KIT_MPI_PIECE ? bytes - at : KIT_MPI_PIECE;
        void *request;
        MPI_Request *r = kit_mpi__request(&request, KIT_MPI_REST);
        if (!r) { return tensor_error_code(); }
        memcpy(own, (const char *)mine + at, piece);
        if (MPI_Iallgather(own, (int)piece, MPI_BYTE, block, (int)piece, MPI_BYTE,
                           kit_mpi__state.channel[KIT_MPI_REST], r)) {
            return kit_mpi__fail("a gather cannot begin");
        }
        int code = kit_mpi__wait(user, &request, 0);
        if (code) { return code; }
        for (int k = 0; all && k < kit_mpi__state.size; k++) {
            memcpy((char *)all + (size_t)k * bytes + at, block + (size_t)k * piece, piece);
        }
    }
    return 0;
}

static void kit_mpi__end(void) {
    int over = 0;
    MPI_Finalized(&over);
    if (over) { return; }
    if (kit_mpi__state.failed) { // MPI_Finalize would wait for the others
        // mpirun of Open MPI 4.1 crashes or hangs when several ranks abort at once. The first to abort ends
        // the others while they wait here.
        int place = kit_mpi__state.rank < 8 ? kit_mpi__state.rank : 8;
        double begin = MPI_Wtime();
        while (MPI_Wtime() - begin < 0.25 * place) { continue; }
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    // A rank that waits in MPI_Finalize when another aborts makes that mpirun crash or hang too; here it does
    // not. However long the others go on is right: where they fail, they end this one.
    MPI_Request others;
    if (kit_mpi__state.open && !MPI_Ibarrier(kit_mpi__state.channel[KIT_MPI_END], &others)) {
        while (!over && !MPI_Test(&others, &over, MPI_STATUS_IGNORE)) { continue; }
    }
    MPI_Finalize();
}

// Makes a channel; waits for the other ranks to come here.   -> code
static int kit_mpi__channel(MPI_Comm *channel) {
    void *request;
    MPI_Request *r = kit_mpi__request(&request, KIT_MPI_START);
    if (!r) { return tensor_error_code(); }
    if (MPI_Comm_idup(MPI_COMM_WORLD, channel, r)) { return kit_mpi__fail("no communicator"); }
    int code = kit_mpi__wait(NULL, &request, 0);
    if (!code) { MPI_Comm_set_errhandler(*channel, MPI_ERRORS_RETURN); }
    return code;
}

// Takes the memory of gathers.   -> code, on all ranks or on none
static int kit_mpi__reserve(void) {
    void *request;
    MPI_Request *r = kit_mpi__request(&request, KIT_MPI_START);
    if (!r) { return tensor_error_code(); }
    kit_mpi__state.block = (char *)malloc(((size_t)kit_mpi__state.size + 1) * KIT_MPI_PIECE);
    int here = kit_mpi__state.block == NULL;
    kit_mpi__state.lacks = here;
    if (MPI_Iallreduce(MPI_IN_PLACE, &kit_mpi__state.lacks, 1, MPI_INT, MPI_SUM,
                       kit_mpi__state.channel[KIT_MPI_REST], r)) {
        return kit_mpi__fail("a sum cannot begin");
    }
    int code = kit_mpi__wait(NULL, &request, 0);
    if (code || !kit_mpi__state.lacks) { return code; }
    free(kit_mpi__state.block);
    kit_mpi__state.block = NULL;
    if (here) { return (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_parallel: out of memory"); }
    return (tensor_raise)(TENSOR_ERR_IO, "kit_parallel: another rank has no memory");
}

int (kit_mpi_ranks)(kit_collectives_t *ranks, double timeout) {
    int there = 0, over = 0, level = 0;
    kit_collectives_t c = {0,            1, TENSOR_CPU, NULL, kit_mpi__sum, kit_mpi__wait, kit_mpi__broadcast,
                           kit_mpi__gather};
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (over) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED, "kit_parallel: MPI has ended in this process");
    }
    if (!there) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level)) {
            return (tensor_raise)(TENSOR_ERR_UNSUPPORTED, "kit_parallel: MPI cannot be initialised");
        }
        atexit(kit_mpi__end);
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED) {
        return (tensor_raise)(TENSOR_ERR_UNSUPPORTED,
                              "kit_parallel: MPI was initialised without threads; call MPI_Init_thread with "
                              "MPI_THREAD_FUNNELED or more, or leave it to kit_mpi_ranks");
    }
    kit_mpi__state.timeout = timeout;
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.size);
    kit_mpi__state.rank = c.rank;
    kit_mpi__state.size = c.size;
    kit_mpi__state.open = 0;
    for (int k = 0; k < KIT_MPI_CHANNELS; k++) {
        int code = kit_mpi__channel(&kit_mpi__state.channel[k]);
        if (code) { return code; }
    }
    kit_mpi__state.open = 1;
    int code = kit_mpi__reserve();
    if (code) { return code; }
    *ranks = c;
    return 0;
}
#endif

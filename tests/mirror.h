// mirror.h - a device for tests: the CPU with memory at addresses the host cannot touch. Its kernels
// translate the addresses and call the CPU's, so that results are the CPU's, bit for bit, and whatever reads
// or writes tensor data beside the gate crashes. The file that includes it has the shared region
// (TENSOR_BACKEND or an implementation).
#ifndef TEST_MIRROR_H
#define TEST_MIRROR_H
#include "test.h"

#define MIRROR_FAR ((uintptr_t)1 << 62)        // no address of the host has this bit
enum { MIRROR_ARGS = 600 };

static int mirror_blocks, mirror_fail_alloc, mirror_fail_copy;
static long mirror_kernels;

static int mirror_count(void) { return 2; }
static int mirror_take(int index, uint64_t bytes, void **data, void **block) {
    void *p = index < 2 && !mirror_fail_alloc ? malloc((size_t)bytes) : NULL;
    if (!p) return TENSOR_ERR_OUT_OF_MEMORY;
    memset(p, 0xFF, (size_t)bytes);
    mirror_blocks++;
    *block = p;
    *data = (void *)((uintptr_t)p ^ MIRROR_FAR);
    return 0;
}
static void mirror_give(void *data, void *block) {
    CHECK(((uintptr_t)data ^ MIRROR_FAR) == (uintptr_t)block);
    mirror_blocks--;
    free(block);
}
static void *mirror_near(const void *p, int index) {
    return (void *)((uintptr_t)p ^ (index < 0 ? 0 : MIRROR_FAR));
}
static int mirror_copy(void *to, int to_index, const void *from, int from_index, uint64_t bytes) {
    if (mirror_fail_copy) return TENSOR_ERR_CUDA;
    memcpy(mirror_near(to, to_index), mirror_near(from, from_index), (size_t)bytes);
    return 0;
}
static int mirror_run(tensor_call_t *c) {
    tensor_arg_t arg[MIRROR_ARGS];
    tensor_call_t here = *c;
    int i, n = c->nin + c->nout, code;
    void *scratch = NULL;
    CHECK(n <= MIRROR_ARGS && c->device);
    mirror_kernels++;
    for (i = 0; i < n; i++) {
        arg[i] = c->arg[i];
        if (!arg[i].data || !arg[i].storage) continue;
        CHECK_MSG(arg[i].storage->device == c->device, "%s: argument %d is elsewhere", c->row->name, i);
        if (arg[i].storage->device) arg[i].data = mirror_near(arg[i].data, 0);
    }
    here.arg = arg;
    here.scratch = NULL;
    if (c->row->scratch) {
        uint64_t bytes = c->row->scratch(&here);
        if (bytes) {
            scratch = malloc((size_t)bytes + 64);
            here.scratch = (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
        }
    }
    code = c->row->cpu(&here);
    free(scratch);
    return code;
}
static tensor_backend_t mirror = {
    TENSOR__API_VERSION, sizeof(tensor_backend_t), "mirror", mirror_count, mirror_take, mirror_give,
        mirror_copy,
    {mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run,
        mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run,
            mirror_run, mirror_run, mirror_run, mirror_run, mirror_run,
        mirror_run}};

TEST_FN tensor_t *on(tensor_t *x) { return tensor_to(x, TENSOR_CUDA); }
TEST_FN tensor_t *off(tensor_t *x) { return tensor_to(x, TENSOR_CPU); }

#endif

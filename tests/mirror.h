// mirror.h - a device for tests: the CPU with memory at addresses the host cannot touch. Its kernels
// translate the addresses and call the CPU's, so that results are the CPU's, bit for bit, and whatever reads
// or writes tensor data beside the gate crashes. The file that includes it has the shared region
// (TENSOR_BACKEND or an implementation).
//
// With TEST_CUDA the same tests run on tensor_cuda.cu: in the emulator (TEST_CUDA_SIM too), or on a GPU.
#ifndef TEST_MIRROR_H
#define TEST_MIRROR_H
#include "test.h"

#ifdef TEST_CUDA
#include "tensor_cuda.h"
#define DEVICE_NAME "cuda"
#ifdef TEST_CUDA_SIM
// In cusim.cpp: "devices", "fail_alloc" (that call from now on fails, -1 none), "fail_call", "protect" ...
extern void cusim_set(const char *what, long value);
extern void cusim_counted(long *five);          // launches, and more
#endif
TEST_FN int device_start(void) {
    int code = tensor_cuda_init();
    tensor_cuda_set_conv_tf32(0);               // results are compared with the CPU's
    CHECK_MSG(code == 0, "%s", tensor_error_text());
    return code;
}
TEST_FN int device_two(void) { return tensor_cuda_device_count() > 1; }
TEST_FN void device_add(void *user, const char *op, int64_t native, int64_t fallback) {
    (void)op;
    ((int64_t *)user)[0] += native;
    ((int64_t *)user)[1] += fallback;
    ((int64_t *)user)[native ? 2 : 3] += native || fallback;
}
// Calls of kernels since the start.
TEST_FN long device_calls(void) {
    int64_t n[4] = {0, 0, 0, 0};
    tensor_cuda_op_counts(device_add, n);
    return (long)(n[0] + n[1]);
}
// What each row ran on since the last note, and in the cases of which dtypes.
enum { DEVICE_ROWS = 800 };
static struct {
    char name[56];
    int64_t native, fallback;
    int native_of, fallback_of;                 // bits of dtypes
} device_rows[DEVICE_ROWS];
static int device_row, device_dtype, device_rows_there;
TEST_FN void device_line(void *user, const char *op, int64_t native, int64_t fallback) {
    int k = device_row++;                       // rows come in one order; new ones stand between
    (void)user;
    if (k >= DEVICE_ROWS || device_rows_there >= DEVICE_ROWS) { return; }
    if (k == device_rows_there || strcmp(device_rows[k].name, op)) {
        memmove(&device_rows[k + 1], &device_rows[k],
                (size_t)(device_rows_there - k) * sizeof device_rows[0]);
        memset(&device_rows[k], 0, sizeof device_rows[0]);
        snprintf(device_rows[k].name, sizeof device_rows[k].name, "%s", op);
        device_rows_there++;
    }
    if (native > device_rows[k].native) { device_rows[k].native_of |= 1 << device_dtype; }
    if (fallback > device_rows[k].fallback) { device_rows[k].fallback_of |= 1 << device_dtype; }
    device_rows[k].native = native;
    device_rows[k].fallback = fallback;
}
TEST_FN void device_note(int dtype) {
    device_row = 0;
    device_dtype = dtype;
    tensor_cuda_op_counts(device_line, NULL);
    CHECK(device_rows_there < DEVICE_ROWS);
}
// Lines for each row: its calls; where it ran, for tests/cuda/rows.txt.
TEST_FN void device_print(void) {
    static const char *const names[] = {"f32", "f64", "i32", "i64", "u8", "bool", "f16", "bf16", "i8", "i16"};
    int k, d;
    for (k = 0; k < device_rows_there; k++) {
        printf("%-28s %6lld native %6lld fallback\n", device_rows[k].name, (long long)device_rows[k].native,
               (long long)device_rows[k].fallback);
        printf("row %s:", device_rows[k].name);
        for (d = 0; d < 10; d++) {
            if (device_rows[k].fallback_of >> d & 1) {
                printf(" CPU:%s", names[d]);
            } else if (device_rows[k].native_of >> d & 1) {
                printf(" %s", names[d]);
            }
        }
        printf("\n");
    }
}
// CUDA's own formulas: the CPU's to a few units of the last place, integers and layouts alike.
TEST_FN int device_same(tensor_t *a, tensor_t *b) {
    int half = tensor_dtype(a) == TENSOR_F16 || tensor_dtype(a) == TENSOR_BF16;
    if (tensor_dtype(a) != tensor_dtype(b)) { return 0; }
    if (tensor_equal(a, b)) { return 1; }
    return (half || tensor_dtype(a) == TENSOR_F32 || tensor_dtype(a) == TENSOR_F64) &&
           tensor_allclose(a, b, half ? 4e-3 : 1e-5, half ? 1e-3 : 1e-5);
}
#else
#define DEVICE_NAME "mirror"
#define MIRROR_FAR ((uintptr_t)1 << (8 * sizeof(uintptr_t) - 2))   // no address of 64 bits has this bit
enum { MIRROR_ARGS = 600 };

static int mirror_blocks, mirror_fail_alloc, mirror_fail_copy;
static long mirror_kernels;

static int mirror_devices = 2;
static int mirror_count(void) { return mirror_devices; }
static int mirror_take(int index, uint64_t bytes, void **data, void **block) {
    void *p = index >= 0 && index < mirror_devices && !mirror_fail_alloc ? malloc((size_t)bytes) : NULL;
    if (!p) { return TENSOR_ERR_OUT_OF_MEMORY; }
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
static void *mirror_near(const void *p, int there) {
    return (void *)((uintptr_t)p ^ (there ? MIRROR_FAR : 0));
}
static int mirror_copy(void *to, tensor__storage_t *to_in, const void *from, tensor__storage_t *from_in,
                       uint64_t bytes, int wait, const char *op) {
    (void)op;
    (void)wait;
    if (mirror_fail_copy) { return TENSOR_ERR_CUDA; }
    memcpy(mirror_near(to, to_in && to_in->device), mirror_near(from, from_in && from_in->device),
           (size_t)bytes);
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
        if (!arg[i].data || !arg[i].storage) { continue; }
        CHECK_MSG(arg[i].storage->device == c->device, "%s: argument %d is elsewhere", c->row->name, i);
        if (arg[i].storage->device) { arg[i].data = mirror_near(arg[i].data, 1); }
    }
    here.arg = arg;
    here.scratch = NULL;
    if (c->row->scratch) {
        uint64_t plan[TENSOR__PLAN_BYTES / 8] = {0}, bytes;
        here.scratch = plan;
        bytes = c->row->scratch(&here);
        here.scratch = NULL;
        if (bytes) {
            scratch = malloc((size_t)bytes + sizeof plan + 64);
            here.scratch = (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
            memcpy(here.scratch, plan, sizeof plan);
        }
    }
    code = c->row->cpu(&here);
    free(scratch);
    return code;
}
static tensor_backend_t mirror = {
    TENSOR__API_VERSION, sizeof(tensor_backend_t), "mirror", mirror_count, mirror_take, mirror_give,
        mirror_copy, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    {mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run,
     mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run,
     mirror_run, mirror_run, mirror_run, mirror_run, mirror_run, mirror_run}, 0, 0, 0, NULL};

TEST_FN int device_start(void) { return TENSOR__(set_backend)(&mirror); }
TEST_FN int device_two(void) { return 1; }
TEST_FN long device_calls(void) { return mirror_kernels; }
TEST_FN void device_note(int dtype) { (void)dtype; }
TEST_FN void device_print(void) {}
TEST_FN int device_same(tensor_t *a, tensor_t *b) { return tensor_equal(a, b); }
#endif

TEST_FN tensor_t *on(tensor_t *x) { return tensor_to(x, TENSOR_CUDA); }
TEST_FN tensor_t *off(tensor_t *x) { return tensor_to(x, TENSOR_CPU); }

#endif

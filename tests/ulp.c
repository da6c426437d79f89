// ulp.c - the unary f32 kernels against libm in double, over all floats: errors in units of the last place
//
//   build/tests/ulp            every 257th bit pattern, 16.7 million inputs a function
//   build/tests/ulp all        all 2^32 (make test-exhaustive);  ulp 1 tanh: one function, any stride
//
// The unit is that of the exact result, subnormal ones included; infinity counts as 2^128; NaN where libm
// has NaN. The functions marked OWN in ops.def have no promised bar and are held near where they are; they
// and the scalar pass see every 7th of the inputs.
#include "cases.h"
#include "elements.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 14, MAX_ISAS = 5, MAX_THREADS = 8, SPARSE = 7 };
enum { OWN_BAR = 1, OF_X = 2, TINY = 4 };

typedef struct function_t {
    const char *name;
    void (*call)(arguments_t *a);
    double (*exact)(const double *v, const arguments_t *a);
    const char *cases;
    double bar;
    int flags; // OF_X: units of the larger of result and x; TINY: of 2^-143 at least (x times a subnormal)
} function_t;

// The UNARY rows of ops.def with a number of units, called with the arguments of their last case.
#define NO_BAR -1, 0
#define BAR(units) units, 0
#define OWN(units) units, OWN_BAR
#define OWN_OF_X(units) units, OWN_BAR | OF_X
#define OWN_TINY(units) units, OWN_BAR | TINY
static const function_t functions[] = {
#define UNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, units, torch)                   \
    {#name, call_##name, ref_##name, cases, units},
#include "ops.def"
};
enum { FUNCTIONS = (int)(sizeof functions / sizeof functions[0]) };

static const char *isas[MAX_ISAS];
static uint64_t strides[MAX_ISAS];
static int nisas, nthreads, terminal;
static time_t begin;

typedef struct worst_t {
    double ulp;
    float x, got;
    double want;
} worst_t;
typedef struct worker_t {
    pthread_t thread;
    int id, failed;
    const function_t *f;
    arguments_t given;
    worst_t worst[MAX_ISAS];
    uint64_t inputs[MAX_ISAS];
} worker_t;

// Error of got in units of the last place of want, a float's.
static double error(double got, double want, double x, int flags) {
    double size = fabs(want), top = 0x1p128;
    int e, bottom;
    if (got != got || want != want) { return got != got && want != want ? 0 : (double)INFINITY; }
    if (got > top) { got = top; }
    if (got < -top) { got = -top; }
    if (want > top) { want = top; }
    if (want < -top) { want = -top; }
    if (got == want) { return 0; }
    if ((flags & OF_X) && fabs(x) > size) { size = fabs(x); }
    frexp(size < top ? size : 0x1p127, &e);
    bottom = flags & TINY ? -119 : -125;
    return ldexp(fabs(got - want), 24 - (e > bottom ? e : bottom));
}

// Chunks id, id + nthreads, ... of the inputs, every instruction set on the same ones.
static void *work(void *arg) {
    worker_t *w = (worker_t *)arg;
    float *x = (float *)malloc(CHUNK * sizeof *x), *y = (float *)malloc(CHUNK * sizeof *y),
          *first = (float *)malloc(CHUNK * sizeof *first);
    double *want = (double *)malloc(CHUNK * sizeof *want);
    uint64_t stride = strides[0] * (w->f->flags & OWN_BAR ? SPARSE : 1);
    uint64_t chunk, chunks = (((uint64_t)1 << 32) / stride + CHUNK) / CHUNK;
    tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
    const int64_t dims[1] = {CHUNK};
    w->failed = !x || !y || !first || !want || !own;
    for (chunk = (uint64_t)w->id; chunk < chunks && !w->failed; chunk += (uint64_t)nthreads) {
        int k, s, n = 0;
        if (terminal && w->id == 0 && chunk / (uint64_t)nthreads % 64 == 0) {
            fprintf(stderr, "\r%-11s %3d %%", w->f->name, (int)(chunk * 100 / chunks));
        }
        for (k = 0; k < CHUNK; k++) {
            uint64_t bits = (chunk * CHUNK + (uint64_t)k) * stride;
            uint32_t u = bits >> 32 ? 0 : (uint32_t)bits;
            n += !(bits >> 32);
            memcpy(&x[k], &u, 4);
        }
        for (k = 0; k < n; k++) {
            double element = (double)x[k];
            want[k] = w->f->exact(&element, &w->given);
        }
        for (s = 0; s < nisas; s++) {
            tensor_scope_t scope;
            tensor_t *t;
            arguments_t a;
            if (chunk % (strides[s] / strides[0])) { continue; }
            scope = tensor_scope_begin_no_grad();
            (tensor_set_isa)(isas[s]);
            a = w->given;
            a.in[0] = (tensor_wrap_n)(x, TENSOR_F32, dims, 1, NULL, NULL), a.nin = 1;
            w->f->call(&a);
            t = a.out[0];
            w->failed |= (tensor_copy_out)(t, s ? y : first, CHUNK * sizeof *y) != 0;
            tensor_scope_end(scope);
            w->inputs[s] += (uint64_t)n;
            if (s && !memcmp(first, y, CHUNK * sizeof *y)) { // the errors are known already
                if (w->worst[0].ulp > w->worst[s].ulp) { w->worst[s] = w->worst[0]; }
                continue;
            }
            for (k = 0; k < n; k++) {
                float got = s ? y[k] : first[k];
                double e = fabs((double)got - want[k]);
                // A unit is at least 2^-24 of the result.
                if (e <= w->worst[s].ulp * 0x1p-24 * fabs(want[k])) { continue; }
                e = error((double)got, want[k], (double)x[k], w->f->flags);
                if (e > w->worst[s].ulp) {
                    worst_t bad = {e, x[k], got, want[k]};
                    w->worst[s] = bad;
                }
            }
        }
    }
    tensor_context_use(before);
    if (own) { tensor_context_free(own); }
    tensor_thread_end();
    free(x), free(y), free(first), free(want);
    return NULL;
}

static void one(const function_t *f) {
    static case_t cases[MAX_CASES];
    worker_t workers[MAX_THREADS];
    int k, s, n = read_cases(f->cases, 1, "", 0, cases, MAX_CASES);
    memset(workers, 0, sizeof workers);
    for (k = 0; k < nthreads; k++) {
        workers[k].id = k;
        workers[k].f = f;
        workers[k].given = cases[n - 1].given;
        CHECK(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0);
    }
    for (k = 0; k < nthreads; k++) {
        pthread_join(workers[k].thread, NULL);
        CHECK_MSG(!workers[k].failed, "%s: a worker failed", f->name);
        for (s = 0; s < nisas && k; s++) {
            workers[0].inputs[s] += workers[k].inputs[s];
            if (workers[k].worst[s].ulp > workers[0].worst[s].ulp) {
                workers[0].worst[s] = workers[k].worst[s];
            }
        }
    }
    if (terminal) { fprintf(stderr, "\r%-17s\r", ""); }
    printf("%-11s bar %3g:", f->name, f->bar);
    for (s = 0; s < nisas; s++) { printf("  %s %.3f", isas[s], workers[0].worst[s].ulp); }
    printf("  %ld s\n", (long)(time(NULL) - begin));
    fflush(stdout);
    for (s = 0; s < nisas; s++) {
        const worst_t *b = &workers[0].worst[s];
        CHECK_MSG(b->ulp <= f->bar && workers[0].inputs[s] > 1000,
                  "%s, %s: %.9g (%a) gives %.9g, exact %.17g: %.3f ulp, bar %g", f->name, isas[s],
                  (double)b->x, (double)b->x, (double)b->got, b->want, b->ulp, f->bar);
    }
}

int main(int argc, char **argv) {
    static const char *const names[] = {"avx512", "avx2", "sse2", "neon", "scalar"};
    uint64_t stride = 257;
    int k, done = 0;
    begin = time(NULL);
    terminal = isatty(2);
    if (argc > 1) { stride = strcmp(argv[1], "all") == 0 ? 1 : strtoull(argv[1], NULL, 10); }
    if (stride < 1) { stride = 257; }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (argc < 2) { stride *= 31; }
#endif
    test_name = "ulp";
    tensor_set_error_handler(test_quiet, NULL);
    for (k = 0; k < MAX_ISAS; k++) {
        if (tensor_set_isa(names[k])) {
            tensor_clear_error();
            continue;
        }
        strides[nisas] = stride * (strcmp(names[k], "scalar") == 0 && nisas ? SPARSE : 1);
        isas[nisas++] = names[k];
    }
    tensor_set_isa(NULL);
    CHECK(nisas > 0);
    nthreads = tensor_num_processors();
    if (nthreads > MAX_THREADS) { nthreads = MAX_THREADS; }
    for (k = 0; k < nisas; k++) {
        printf("%s: every %lluth of 2^32 inputs\n", isas[k], (unsigned long long)strides[k]);
    }
    for (k = 0; k < FUNCTIONS && nisas; k++) {
        if (functions[k].bar >= 0 && (argc < 3 || strcmp(argv[2], functions[k].name) == 0)) {
            one(&functions[k]);
            done++;
        }
    }
    CHECK(done > 30 || argc > 2);
    printf("ulp: %d functions, %d instruction sets, %d threads, %ld s\n", done, nisas, nthreads,
           (long)(time(NULL) - begin));
    return test_report();
}

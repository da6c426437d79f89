// test.h - the few words every test program here is written in
//
//   static void adds(void) { CHECK(tensor_item(tensor_add_scalar(tensor_ones(1), 1)) == 2); }
//   int main(void) { RUN(adds); return test_report(); }
//
// RUN opens a scope, calls the test, ends the scope, and fails the test if an error is left pending or if
// tensors or autograd nodes are left alive. The last line printed is "N passed, N failed"; tests/run.sh adds
// these lines up.
#ifndef TEST_H
#define TEST_H

#include "tensor_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define TEST_FN __attribute__((unused)) static
#define TEST_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TEST_FN static
#define TEST_PRINTF(a, b)
#endif
#include <stdarg.h>

enum { TEST_MAX_LINES = 20 };        // failures printed per test, so that a broken loop stays readable

static int test_passed, test_failed, test_lines;
static const char *test_name = "";

TEST_FN void test_note(int good, const char *file, int line, const char *format, ...) TEST_PRINTF(4, 5);
TEST_FN void test_note(int good, const char *file, int line, const char *format, ...) {
    va_list list;
    if (good) {
        test_passed++;
        return;
    }
    test_failed++;
    if (++test_lines > TEST_MAX_LINES) { return; }
    printf("%s:%d: %s: ", file, line, test_name);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    if (test_lines == TEST_MAX_LINES) {
        printf("(more failures of %s are counted, not printed)\n", test_name);
    }
    fflush(stdout);
}

// A condition; with a printf text; two doubles within tol (both NaN agree); two strings.
#define CHECK(condition) test_note((condition) != 0, __FILE__, __LINE__, "%s", #condition)
#define CHECK_MSG(condition, ...) test_note((condition) != 0, __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_NEAR(got, want, tol)                                                                           \
    test_near((double)(got), (double)(want), (double)(tol), __FILE__, __LINE__, #got)
#define CHECK_TEXT(got, want) test_text((got), (want), __FILE__, __LINE__, #got)

// The error pending now is `code` and its text contains `part` (NULL = any text); it is cleared. CHECK_POISON
// also evaluates an expression that must give poison.
#define CHECK_ERROR(code, part) test_error((code), (part), __FILE__, __LINE__)
#define CHECK_POISON(expression, code, part)                                                                 \
    do {                                                                                                     \
        CHECK_MSG(tensor_is_poison(expression), "%s is not poison", #expression);                            \
        CHECK_ERROR(code, part);                                                                             \
    } while (0)
// No error is pending (otherwise prints and clears it).
#define CHECK_OK() test_ok(__FILE__, __LINE__)
#define RUN(test) test_run(#test, test)

TEST_FN void test_near(double got, double want, double tol, const char *file, int line, const char *what) {
    int good = (got != got && want != want) || got == want || fabs(got - want) <= tol;
    test_note(good, file, line, "%s is %.17g, expected %.17g within %g", what, got, want, tol);
}

TEST_FN void test_text(const char *got, const char *want, const char *file, int line, const char *what) {
    int good = got && want && strcmp(got, want) == 0;
    test_note(good, file, line, "%s is\n%s\nexpected\n%s", what, got ? got : "(null)",
              want ? want : "(null)");
}

TEST_FN void test_error(int code, const char *part, const char *file, int line) {
    int got = tensor_error_code();
    const char *text = tensor_error_text();
    test_note(got == code && (!part || strstr(text, part) != NULL), file, line,
              "error is %s \"%s\", expected %s with \"%s\"", tensor_code_name(got), text,
              tensor_code_name(code), part ? part : "");
    tensor_clear_error();
}

TEST_FN void test_ok(const char *file, int line) {
    int good = tensor_ok();
    test_note(good, file, line, "error pending: %s", tensor_error_text());
    if (!good) { tensor_clear_error(); }
}

// Expected errors are looked at by CHECK_ERROR; nothing goes to stderr.
TEST_FN void test_quiet(int code, const char *text, void *user) {
    (void)code;
    (void)text;
    (void)user;
}

TEST_FN void test_run(const char *name, void (*test)(void)) {
    tensor_memory_stats_t before, after;
    tensor_scope_t scope;
    tensor_set_error_handler(test_quiet, NULL);
    test_name = name;
    test_lines = 0;
    before = tensor_memory_stats();
    scope = tensor_scope_begin();
    test();
    CHECK_OK();
    CHECK(tensor_scope_end(scope) == 0);
    after = tensor_memory_stats();
    CHECK_MSG(after.live_tensors == before.live_tensors, "%lld tensors left alive",
              (long long)(after.live_tensors - before.live_tensors));
    CHECK_MSG(after.live_nodes == before.live_nodes, "%lld autograd nodes left alive",
              (long long)(after.live_nodes - before.live_nodes));
    test_name = "";
}

// Frees everything, prints the counts; for the end of main.
TEST_FN int test_report(void) {
    tensor_memory_stats_t end;
    test_name = "shutdown";
    test_lines = 0;
    CHECK(tensor_shutdown() == 0);
    end = tensor_memory_stats();
    CHECK_MSG(end.live_tensors == 0 && end.live_bytes == 0, "%lld tensors, %llu bytes alive after shutdown",
              (long long)end.live_tensors, (unsigned long long)end.live_bytes);
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed != 0;
}

// ---- small helpers ----

// Bytes of a tensor's elements in row-major order hashed (FNV-1a), for "same bits" tests. h chains calls.
TEST_FN uint64_t test_hash(uint64_t h, tensor_t *x) {
    size_t bytes = (size_t)tensor_numel(x) * tensor_dtype_size(tensor_dtype(x));
    unsigned char *data = (unsigned char *)malloc(bytes + 1);
    size_t i;
    if (!data || tensor_copy_out(x, data, bytes)) {
        h ^= 0xBADu;
    } else {
        for (i = 0; i < bytes; i++) { h = (h ^ data[i]) * 1099511628211ull; }
    }
    free(data);
    return h ^ (h >> 29);
}
enum { TEST_HASH = 1469598103 };      // start value of test_hash

// Whether two tensors have the same shape, dtype and bits (NaN equal to itself, unlike tensor_equal).
TEST_FN int test_same_bits(tensor_t *a, tensor_t *b) {
    int k;
    if (tensor_ndim(a) != tensor_ndim(b) || tensor_dtype(a) != tensor_dtype(b)) { return 0; }
    for (k = 0; k < tensor_ndim(a); k++) {
        if (tensor_size(a, k) != tensor_size(b, k)) { return 0; }
    }
    return test_hash(TEST_HASH, a) == test_hash(TEST_HASH, b);
}

#endif

// bench.h - clock, medians and output of the benchmark programs: one line "row value unit" each.
#ifndef BENCH_H
#define BENCH_H

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__GNUC__)
#define BENCH_FN __attribute__((unused)) static
#else
#define BENCH_FN static
#endif

BENCH_FN double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

BENCH_FN int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds per call of fn(arg, repeats), which does its work `repeats` times: median of 9 samples of some 20 ms;
// 3 of them for work of over 0.2 s, or where the environment has BENCH_QUICK.
BENCH_FN double bench_median(void (*fn)(void *arg, long repeats), void *arg) {
    enum { SAMPLES = 9 };
    double s[SAMPLES], took = 0;
    long repeats = 1;
    int i, samples = getenv("BENCH_QUICK") ? 3 : SAMPLES;
    fn(arg, 1);
    for (; repeats < 1L << 30; repeats *= 2) {
        took = bench_now();
        fn(arg, repeats);
        took = bench_now() - took;
        if (took > 0.02) { break; }
    }
    if (took > 0.2) { samples = 3; }
    for (i = 0; i < samples; i++) {
        s[i] = bench_now();
        fn(arg, repeats);
        s[i] = (bench_now() - s[i]) / (double)repeats;
    }
    qsort(s, (size_t)samples, sizeof s[0], bench_compare);
    return s[samples / 2];
}

BENCH_FN void bench_row(const char *row, double value, const char *unit) {
    printf("%-28s %14.6g %s\n", row, value, unit);
    fflush(stdout);
}

#endif

// profiler_clock.h - the time of profiler.h: a counter of the processor, whose rate the system's clock tells
//
// A part of profiler.h, to copy with it.
#ifndef KIT_PROFILER_CLOCK_H
#define KIT_PROFILER_CLOCK_H

#include "profiler.h"

#endif

#if defined(KIT_PROFILER_IMPLEMENTATION) && !defined(KIT_PROFILER_CLOCK_DONE)
#define KIT_PROFILER_CLOCK_DONE

#include <time.h>
#if defined(_WIN32)
// Not windows.h, whose macros and types a program may have for names of its own.
#ifdef __cplusplus
extern "C" {
#endif
union _LARGE_INTEGER;
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *ticks);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *rate);
#ifdef __cplusplus
}
#endif
#else
#include <sys/time.h>
#endif
#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__) && !defined(__TINYC__)
#include <cpuid.h>
#define KIT_PROFILER__COUNTER __builtin_ia32_rdtsc()
#elif defined(__aarch64__) && defined(__GNUC__)
static uint64_t kit_profiler__counter(void) {
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
}
#define KIT_PROFILER__COUNTER kit_profiler__counter()
#elif (defined(_M_X64) || defined(_M_IX86)) && defined(_MSC_VER)
#include <intrin.h>
#define KIT_PROFILER__COUNTER __rdtsc()
#endif

// Seconds of the system. Strict C hides the monotonic clock of POSIX.
static double kit_profiler__clock(void) {
#if defined(_WIN32)
    int64_t ticks = 0, rate = 1;
    QueryPerformanceCounter((union _LARGE_INTEGER *)(void *)&ticks);
    QueryPerformanceFrequency((union _LARGE_INTEGER *)(void *)&rate);
    return (double)ticks / (double)rate;
#elif defined(CLOCK_MONOTONIC)
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
#endif
}

// Whether the processor has a counter of one rate at every clock speed and in every sleep, for all cores.
static int kit_profiler__counts(void) {
#if !defined(KIT_PROFILER__COUNTER)
    return 0;
#elif defined(_MSC_VER) && !defined(__clang__)
    int most[4], about[4] = {0, 0, 0, 0};
    __cpuid(most, 0x80000000);
    if ((unsigned)most[0] >= 0x80000007u) { __cpuid(about, 0x80000007); }
    return about[3] >> 8 & 1;
#elif defined(__aarch64__)
    return 1; // the architecture says so
#else
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
#endif
}

// Ticks of the counter, which costs some ten nanoseconds to read; without one, nanoseconds of the clock. A
// core whose counter is behind that of the core before does not make time go back.
static inline uint64_t kit_profiler__ticks(kit_profiler_t *p) {
#if defined(KIT_PROFILER__COUNTER)
    uint64_t now = p->counts ? KIT_PROFILER__COUNTER : (uint64_t)(1e9 * kit_profiler__clock());
#else
    uint64_t now = (uint64_t)(1e9 * kit_profiler__clock());
#endif
    if (now > p->latest) { p->latest = now; }
    return p->latest;
}

// One moment by counter and clock. Another program's turn may come between the two: it is the best of some.
static kit_profiler__moment_t kit_profiler__moment(kit_profiler_t *p) {
    kit_profiler__moment_t best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int k = 0; k < 5; k++) {
        uint64_t before = kit_profiler__ticks(p);
        double clock = kit_profiler__clock();
        uint64_t took = kit_profiler__ticks(p) - before;
        if (took >= least) { continue; }
        least = took;
        best.ticks = before + took / 2;
        best.clock = clock;
    }
    return best;
}

// Time begins, by the processor's counter or without it.
static void kit_profiler__set_off(kit_profiler_t *p, int counts) {
    p->counts = counts;
    p->latest = 0;
    p->start = kit_profiler__moment(p);
    p->begin = p->spent = kit_profiler__ticks(p);
}

// Seconds of a tick since a moment. A fifth of a millisecond at least, for the clock's own grain.
static double kit_profiler__rate(kit_profiler_t *p, kit_profiler__moment_t from) {
    kit_profiler__moment_t to = kit_profiler__moment(p);
    while (to.clock - from.clock < 2e-4) { to = kit_profiler__moment(p); }
    return to.ticks > from.ticks ? (to.clock - from.clock) / (double)(to.ticks - from.ticks) : 0;
}

#endif

// check.h - CHECK, and the count that tests/cuda.sh adds up
#pragma once
#include <cstdio>
static int check_passed, check_failed;
#define CHECK(c)                                                                                             \
    do {                                                                                                     \
        if (c) {                                                                                             \
            check_passed++;                                                                                  \
        } else if (check_failed++ < 20) {                                                                    \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, #c);                                              \
        }                                                                                                    \
    } while (0)
static inline int check_report() {
    std::printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed != 0;
}

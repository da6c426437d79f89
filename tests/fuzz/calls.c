// calls.c - programs of random bytes through the api target, many in a process: no coverage steers them, so
// they run many times faster than libFuzzer's (make calls)
//
//   calls N SEED [FIRST]   programs number FIRST (0), FIRST + 1, ... of the seed until N calls were made
//
// A program depends only on the seed and its number. When one fails, both are on stderr: `calls 1 SEED
// NUMBER` runs that program alone, FUZZ_TRACE=1 prints it.
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "api.c"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1024, SECONDS_MOST = 120, CALLS_A_LINE = 1000000, PROGRAMS_A_LIFE = 2000 };

static uint64_t seed, number;

static void fails(int sig) {
    char text[100];
    int n = snprintf(text, sizeof text, "signal %d in program %llu of seed %llu\n", sig,
                     (unsigned long long)number, (unsigned long long)seed);
    if (write(2, text, (size_t)n) < 0) { _exit(2); }
    signal(sig, SIG_DFL);
    raise(sig);
}

// SplitMix64: the bytes of program number.
static void fill(uint8_t *bytes) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u + 1;
    int k, j;
    for (k = 0; k < BYTES; k += 8) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        for (j = 0; j < 8; j++) {
            bytes[k + j] = (uint8_t)(z >> 8 * j);
        }
    }
}

int main(int argc, char **argv) {
    uint8_t bytes[BYTES];
    uint64_t wanted, said = 0;
    time_t began = time(NULL);
    if (argc < 3) {
        fprintf(stderr, "usage: calls N SEED [FIRST]\n");
        return 2;
    }
    wanted = strtoull(argv[1], NULL, 10);
    seed = strtoull(argv[2], NULL, 10);
    number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    signal(SIGABRT, fails);
    signal(SIGALRM, fails);
    signal(SIGFPE, fails);
#if !defined(__SANITIZE_ADDRESS__)
    signal(SIGSEGV, fails);
    signal(SIGBUS, fails);
#endif
    for (; calls < wanted; number++) {
        fill(bytes);
        alarm(SECONDS_MOST);
        LLVMFuzzerTestOneInput(bytes, BYTES);
        if (number % PROGRAMS_A_LIFE == 0) { // the library begins anew, without the memory it took
            PROMISE(tensor_shutdown() == TENSOR_OK, "shutdown");
        }
        if (calls / CALLS_A_LINE > said || calls >= wanted) {
            said = calls / CALLS_A_LINE;
            printf("%llu calls, %llu failed with an error, next program %llu of seed %llu, %lld s\n",
                   (unsigned long long)calls, (unsigned long long)errors, (unsigned long long)(number + 1),
                   (unsigned long long)seed, (long long)(time(NULL) - began));
            fflush(stdout);
        }
    }
    return 0;
}

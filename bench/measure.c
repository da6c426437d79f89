// measure.c - runs a command; the last line of stderr is what it took, "measure: 1.25 s 1.20 s 34 MB":
// seconds by the clock, seconds of processors, peak memory.
//
// Build: cc bench/measure.c -o build/measure && build/measure command arguments        (POSIX)
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct timeval begin, end;
    struct rusage used;
    int status = 1;
    gettimeofday(&begin, NULL);
    pid_t child = argc > 1 ? fork() : -1;
    if (child == 0) {
        execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) { return 1; }
    gettimeofday(&end, NULL);
    getrusage(RUSAGE_CHILDREN, &used);
    double wall = (double)(end.tv_sec - begin.tv_sec) + 1e-6 * (double)(end.tv_usec - begin.tv_usec);
    double core = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                  1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    fprintf(stderr, "measure: %.2f s %.2f s %ld MB\n", wall, core, used.ru_maxrss / 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

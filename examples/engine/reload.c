// reload.c - hot reload: a library with a network in it is exchanged twice while the program runs
//
// Code goes, what it learnt stays: the weights wait as bytes in the program's memory. Each build is loaded,
// opened with those bytes, learns, is saved, closed (tensor_shutdown ends its threads) and unloaded.
//
// Build: F="-O2 -fPIC -shared -fvisibility=hidden -DTENSOR_ISA=sse2 -I."
//        I="-DTENSOR_STATIC -DTENSOR_IMPLEMENTATION -DTENSOR_NN_IMPLEMENTATION"
//        cc $F $I examples/engine/brain.c -lm -pthread -o brain1.so
//        cc $F $I -DBRAIN_RATE=0.03 examples/engine/brain.c -lm -pthread -o brain2.so
//        cc -Iexamples/engine examples/engine/reload.c -ldl -o reload
//        ./reload ./brain1.so ./brain2.so ./brain1.so
// Output:
//   ./brain1.so: loss 0.6..
//   ./brain2.so: loss 0.0..
//   ./brain1.so: loss 0.0..
#define _GNU_SOURCE
#include "brain.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct brain_t {
    void *library;
    int (*open)(const void *weights, size_t size);
    double (*learn)(int steps);
    size_t (*save)(void *to, size_t room);
    int (*close)(void);
} brain_t;

// A pointer to a function from dlsym: ISO C has no cast for it.
static int find(void *library, const char *name, void *to) {
    void *p = dlsym(library, name);
    if (!p) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    memcpy(to, &p, sizeof p);
    return 1;
}

static int load(brain_t *b, const char *path) {
    memset(b, 0, sizeof *b);
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!b->library) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    return find(b->library, "brain_open", &b->open) && find(b->library, "brain_learn", &b->learn) &&
           find(b->library, "brain_save", &b->save) && find(b->library, "brain_close", &b->close);
}

int main(int argc, char **argv) {
    unsigned char *weights = NULL;
    size_t size = 0;
    for (int turn = 1; turn < argc; turn++) {
        brain_t b;
        if (!load(&b, argv[turn])) { return 1; }
        if (b.open(weights, size)) { return 1; }
        printf("%s: loss %.4f\n", argv[turn], b.learn(turn == 1 ? 20 : 150));
        size = b.save(NULL, 0);
        free(weights);
        weights = (unsigned char *)malloc(size ? size : 1);
        if (!weights || b.save(weights, size) != size || b.close()) { return 1; }
        if (dlclose(b.library)) { return 1; }
        if (dlopen(argv[turn], RTLD_NOW | RTLD_NOLOAD)) {
            fprintf(stderr, "%s is still there\n", argv[turn]);
            return 1;
        }
    }
    free(weights);
    if (argc < 2) { fprintf(stderr, "use: reload library.so ..\n"); }
    if (fflush(stdout) || ferror(stdout)) { return fprintf(stderr, "reload: cannot write to stdout\n"), 1; }
    return argc < 2;
}

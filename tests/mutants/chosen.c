// chosen.c - reads MUTANT, the number of the mutant that runs; at the end writes to the file MET which were met
#include "mutants.h"

#include <stdio.h>
#include <stdlib.h>

int tensor__mutant = -1;
unsigned char tensor__met[MOST_MUTANTS];

static void write_met(void) {
    const char *path = getenv("MET");
    FILE *f = path ? fopen(path, "w") : NULL;
    int k;
    for (k = 0; f && k < MOST_MUTANTS; k++) {
        if (tensor__met[k]) { fprintf(f, "%d\n", k); }
    }
    if (f) { fclose(f); }
}
__attribute__((constructor)) static void choose(void) {
    const char *text = getenv("MUTANT");
    if (text) { tensor__mutant = atoi(text); }
    atexit(write_met);
}

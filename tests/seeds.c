// seeds.c - the committed inputs of the fuzz targets (tests/fuzz/NAME.seeds), each through its target
//
//   seeds                     runs them
//   seeds unpack NAME DIR     writes each to a file of its own, for libFuzzer
//   seeds pack FILE ...       prints files as lines of NAME.seeds: printable ASCII, all else and \ as \xx
#define FUZZ_SEEDS
#include "fuzz/arrays.c"
#include "fuzz/checkpoint.c"
#include "fuzz/csv.c"
#include "fuzz/dlpack.c"
#include "fuzz/gguf.c"
#include "fuzz/idx.c"
#include "fuzz/lora.c"
#include "fuzz/media.c"
#include "fuzz/safetensors.c"
#include "fuzz/shards.c"
#include "fuzz/snapshot.c"
#include "fuzz/strings.c"
#include "fuzz/tokens.c"
#include "fuzz/torchfile.c"
#include "fuzz/api.c" // last: its names of one word are members and parameters in the kit

static const struct target_t {
    const char *name;
    void (*setup)(void);
    void (*run)(const uint8_t *data, size_t size);
} targets[] = {
    {"api", api_setup, api},
    {"arrays", arrays_setup, arrays},
    {"checkpoint", checkpoint_setup, checkpoint},
    {"csv", csv_setup, csv},
    {"dlpack", dlpack_setup, dlpack},
    {"gguf", gguf_setup, gguf},
    {"idx", idx_setup, idx},
    {"lora", lora_setup, lora},
    {"media", media_setup, media},
    {"safetensors", safetensors_setup, safetensors},
    {"shards", shards_setup, shards},
    {"snapshot", snapshot_setup, snapshot},
    {"strings", strings_setup, strings},
    {"tokens", tokens_setup, tokens},
    {"torchfile", torchfile_setup, torchfile},
};
enum { TARGETS = (int)(sizeof targets / sizeof targets[0]), LONGEST = 1 << 16 };

// Calls visit for each input of the target. -> how many, -1: there is no such file
static long each_seed(const char *name, void (*visit)(const uint8_t *data, size_t size, long number)) {
    static char line[LONGEST];
    char path[100];
    long count = 0;
    FILE *f;
    snprintf(path, sizeof path, "tests/fuzz/%s.seeds", name);
    f = fopen(path, "r");
    if (!f) { return -1; }
    while (fgets(line, sizeof line, f)) {
        uint8_t *data = (uint8_t *)malloc(strlen(line) + 1);
        size_t n = 0;
        const char *p;
        unsigned byte;
        if (!data) { abort(); }
        for (p = line; *p && *p != '\n'; p++) {
            if (*p == '\\' && sscanf(p + 1, "%2x", &byte) == 1) {
                data[n++] = (uint8_t)byte;
                p += 2;
            } else {
                data[n++] = (uint8_t)*p;
            }
        }
        data = (uint8_t *)realloc(data, n + !n); // its exact size: a sanitizer sees reads behind it
        visit(data, n, count++);
        free(data);
    }
    fclose(f);
    return count;
}

static const struct target_t *now;
static void run_one(const uint8_t *data, size_t size, long number) {
    int failed = test_failed;
    fuzz_one(now->setup, now->run, data, size);
    CHECK_MSG(test_failed == failed, "%s: seed %ld", now->name, number);
}
static void seeds(void) {
    long n = each_seed(now->name, run_one);
    CHECK_MSG(n > 0, "no seeds of %s", now->name);
    printf("%ld cases of %s\n", n, now->name);
}

static const char *folder;
static void unpack(const uint8_t *data, size_t size, long number) {
    char path[300];
    FILE *f;
    snprintf(path, sizeof path, "%s/%04ld", folder, number);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size) { exit(1); }
    fclose(f);
}
static void pack(const char *path) {
    FILE *f = fopen(path, "rb");
    int c;
    if (!f) { exit(1); }
    while ((c = getc(f)) != EOF) {
        if (c < ' ' || c > '~' || c == '\\') {
            printf("\\%02x", (unsigned)c);
        } else {
            putchar(c);
        }
    }
    putchar('\n');
    fclose(f);
}

int main(int argc, char **argv) {
    int k;
    if (argc == 4 && strcmp(argv[1], "unpack") == 0) {
        folder = argv[3];
        return each_seed(argv[2], unpack) < 0;
    }
    if (argc > 2 && strcmp(argv[1], "pack") == 0) {
        for (k = 2; k < argc; k++) { pack(argv[k]); }
        return 0;
    }
    for (k = 0; k < TARGETS; k++) {
        now = &targets[k];
        now->setup();
        RUN(seeds);
    }
    return test_report();
}

// files.c - reading and writing under hostile conditions: two savers of one path, failing reads, writes and
// allocations at every place, other locales, files that are none, objects made and freed all day
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE   // fsync, setenv, renameat
#endif
#include "test.h"

#include <locale.h>
#ifdef __linux__
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

// ---- libc between the library and the disk ----

// These take libc's place in this program: they count, fail when told to, and wait for no disk.
static struct {
    long reads, fail_read;          // fail_read: this one and all later ones; < 0 none
    int fail_sync, fail_rename;     // errno of the next one; 0 = none
    int syncs, folder_syncs, renames, order;
    int file_sync_at, rename_at, folder_sync_at;
    char temporary[300];            // what was renamed last
} disk = {0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, ""};

#ifdef __linux__
size_t fread(void *restrict to, size_t size, size_t n, FILE *restrict f) {
    unsigned char *p = (unsigned char *)to;
    size_t i;
    long read = __atomic_fetch_add(&disk.reads, 1, __ATOMIC_RELAXED);
    if (disk.fail_read >= 0 && read >= disk.fail_read) { return 0; }
    for (i = 0; i < size * n; i++) {
        int c = getc(f);
        if (c == EOF) { break; }
        p[i] = (unsigned char)c;
    }
    return size ? i / size : 0;
}
static pthread_mutex_t disk_mutex = PTHREAD_MUTEX_INITIALIZER;

// -> errno to fail with, 0 = none
static int noted_sync(int folder) {
    int error;
    pthread_mutex_lock(&disk_mutex);
    error = disk.fail_sync;
    disk.fail_sync = 0;
    if (error == 0 && folder) {
        disk.folder_syncs++;
        disk.folder_sync_at = ++disk.order;
    } else if (error == 0) {
        disk.syncs++;
        disk.file_sync_at = ++disk.order;
    }
    pthread_mutex_unlock(&disk_mutex);
    return error;
}
static int noted_rename(const char *from) {
    int error;
    pthread_mutex_lock(&disk_mutex);
    disk.renames++;
    disk.rename_at = ++disk.order;
    snprintf(disk.temporary, sizeof disk.temporary, "%s", from);
    error = disk.fail_rename;
    disk.fail_rename = 0;
    pthread_mutex_unlock(&disk_mutex);
    return error;
}
int fsync(int fd) {
    struct stat st;
    int error;
    if (fstat(fd, &st) != 0) { return -1; }
    error = noted_sync(S_ISDIR(st.st_mode));
    if (error == 0) { return 0; }
    errno = error;
    return -1;
}
int rename(const char *from, const char *to) {
    int error = strstr(from, ".tmp") ? noted_rename(from) : 0;
    if (error == 0) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
    errno = error;
    return -1;
}

// Files in folder whose name begins with prefix.
static int files_of(const char *folder, const char *prefix) {
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;
    while (d && (e = readdir(d)) != NULL) { n += strncmp(e->d_name, prefix, strlen(prefix)) == 0; }
    if (d) { closedir(d); }
    return n;
}
#endif

static unsigned char *bytes_of(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    unsigned char *p = (unsigned char *)malloc(1 << 20);
    int c;
    *n = 0;
    while (f && p && *n < 1 << 20 && (c = getc(f)) != EOF) { p[(*n)++] = (unsigned char)c; }
    if (f) { fclose(f); }
    return p;
}
static void put_bytes(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n);
    if (f) { fclose(f); }
}
static uint64_t file_hash(const char *path) {
    size_t n, i;
    unsigned char *p = bytes_of(path, &n);
    uint64_t h = TEST_HASH;
    for (i = 0; i < n; i++) { h = (h ^ p[i]) * 1099511628211ull; }
    free(p);
    return h ^ n;
}

// ---- two savers ----

#ifdef __linux__
static const char *const raced = "files_race.safetensors";
static int save_errors;

static void *saver(void *wide) {
    nn_module_t *m = wide ? nn_sequential(nn_linear(300, 200), nn_linear(200, 90)) : nn_linear(300, 90);
    int i;
    for (i = 0; i < 150; i++) {
        if (nn_save(raced, m) == 0) { continue; }
        __atomic_fetch_add(&save_errors, 1, __ATOMIC_RELAXED);
        tensor_clear_error();
    }
    nn_free(m);
    tensor_thread_end();
    return NULL;
}
#endif

static void two_savers(void) {
#ifdef __linux__
    pthread_t t[2];
    static int yes = 1;
    int i, loads = 0, malformed = 0, before = files_of(".", "files_race");
    CHECK(pthread_create(&t[0], NULL, saver, NULL) == 0 && pthread_create(&t[1], NULL, saver, &yes) == 0);
    for (i = 0; i < 400; i++) {
        nn_safetensors_t *r = nn_safetensors_open(raced);
        if (r) {
            loads++;
        } else {
            malformed += tensor_error_code() != TENSOR_ERR_IO;
        }
        tensor_clear_error();
        nn_safetensors_close(r);
        usleep(300);
    }
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    CHECK_MSG(malformed == 0 && save_errors == 0, "%d of %d files malformed, %d errors of saves", malformed,
              loads, save_errors);
    CHECK(loads > 0);
    CHECK(nn_safetensors_close(nn_safetensors_open(raced)) == 0);
    remove(raced);
    CHECK_MSG(files_of(".", "files_race") == before, "files stayed");
#endif
}

// The file is on the disk before its name is, the name when the call returns; what fails leaves nothing.
static void synced_saves(void) {
#ifdef __linux__
    const char *path = "files_dir/x.safetensors";
    nn_module_t *m = nn_linear(3, 2), *other = nn_linear(3, 2);
    uint64_t before;
    struct stat st;
    char next[320], *dash;
    long number;
    CHECK(mkdir("files_dir", 0700) == 0 && nn_save(path, m) == 0);
    CHECK(disk.syncs > 0 && disk.folder_syncs > 0);
    CHECK(disk.file_sync_at < disk.rename_at && disk.rename_at < disk.folder_sync_at);
    before = file_hash(path);
    disk.fail_sync = EIO;
    CHECK(nn_save(path, other) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "cannot write \"files_dir/x.safetensors.tmp");
    disk.fail_rename = EACCES;
    CHECK(nn_save(path, other) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "cannot rename to \"files_dir/x.safetensors\"");
    CHECK(file_hash(path) == before && files_of("files_dir", "x") == 1);
    CHECK(nn_save(NULL, m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "path is NULL at files.c:");
    disk.fail_sync = EINVAL;                    // a file system without it
    CHECK(nn_save(path, m) == 0 && file_hash(path) == before);
    // A file or link that lies at the next temporary name is left alone, whoever made it.
    dash = strrchr(disk.temporary, '-');
    CHECK(dash != NULL);
    if (dash) {
        number = atol(dash + 1);
        snprintf(next, sizeof next, "%.*s-%ld", (int)(dash - disk.temporary), disk.temporary, number + 1);
        put_bytes(next, "mine", 4);
        CHECK(nn_save(path, other) == 0 && stat(next, &st) == 0 && st.st_size == 4);
        remove(next);
        snprintf(next, sizeof next, "%.*s-%ld", (int)(dash - disk.temporary), disk.temporary, number + 3);
        CHECK(symlink("elsewhere", next) == 0 && nn_save(path, m) == 0);
        CHECK(lstat(next, &st) == 0 && S_ISLNK(st.st_mode) && stat("files_dir/elsewhere", &st) != 0);
        remove(next);
    }
    CHECK(chmod(path, 0640) == 0 && nn_save(path, m) == 0);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640);
    CHECK(files_of("files_dir", "x") == 1);
    // A name that leaves no room for a longer one.
    memcpy(next, "files_dir/", 10);
    memset(next + 10, 'a', 245);
    next[255] = 0;
    CHECK(nn_save(next, m) == 0 && nn_load(next, other) == 0);
    CHECK(files_of("files_dir", "aaa") == 1 && files_of("files_dir", ".tensor") == 0);
    remove(next);
    remove(path);
    remove("files_dir");
    nn_free(m);
    nn_free(other);
#endif
}

// ---- loading as a whole or not at all ----

static struct { long calls, fail_at, refused; int persistent; } heap;

static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    long call = heap.calls++;
    char *raw, *p;
    (void)user;
    if (heap.fail_at >= 0 && (heap.persistent ? call >= heap.fail_at : call == heap.fail_at)) {
        heap.refused++;
        return NULL;
    }
    raw = (char *)malloc(bytes + alignment + sizeof(void *));
    if (!raw) { return NULL; }
    p = raw + sizeof(void *);
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - sizeof(void *), &raw, sizeof raw);
    return p;
}
static void heap_free(void *user, void *block, size_t bytes, size_t alignment) {
    char *raw;
    (void)user;
    (void)bytes;
    (void)alignment;
    memcpy(&raw, (char *)block - sizeof(void *), sizeof raw);
    free(raw);
}

typedef struct {
    tensor_context_t *context, *before;
    nn_module_t *net;
    nn_optimizer_t *opt;
    int64_t step;
    uint64_t base_hash;
} world_t;

static char good[60], base[60], probe[60], broken[60];

// Thousands of small files: in memory, where there is such a folder.
static void place(char *path, size_t size, const char *name) {
#ifdef __linux__
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "";
    snprintf(path, size, "%stensor-files-%ld-%s", folder, (long)getpid(), name);
#else
    snprintf(path, size, "files-%s", name);
#endif
}

static void train(world_t *w, int steps) {
    for (; steps > 0; steps--) {
        tensor_scope_t scope = tensor_scope_begin();
        nn_zero_grad(w->opt);
        tensor_backward(tensor_sum(tensor_square(nn_forward(w->net, tensor_randn(5, 4)))));
        nn_step(w->opt);
        tensor_scope_end(scope);
    }
}
// Everything that a load may change, as the bytes of a checkpoint.
static uint64_t world_hash(world_t *w) {
    long fail_read = disk.fail_read, fail_at = heap.fail_at;
    disk.fail_read = heap.fail_at = -1;
    CHECK(nn_save_checkpoint(probe, w->net, w->opt, w->step) == 0);
    disk.fail_read = fail_read;
    heap.fail_at = fail_at;
    return file_hash(probe);
}
// A context of its own on the failing heap, in it a net with buffers and an optimizer with groups; two
// checkpoints of it, of which it is at the first.
static void world_open(world_t *w) {
    tensor_allocator_t a;
    tensor_t *bias;
    a.alloc = heap_alloc;
    a.free = heap_free;
    a.user = NULL;
    place(good, sizeof good, "good");
    place(base, sizeof base, "base");
    place(probe, sizeof probe, "probe");
    place(broken, sizeof broken, "broken");
    heap.fail_at = disk.fail_read = -1;
    w->context = tensor_context_new();
    w->before = tensor_context_use(w->context);
    tensor_set_allocator(&a);
    tensor_set_error_handler(test_quiet, NULL);
    tensor_manual_seed(3);
    w->net = nn_sequential(nn_linear(4, 6), nn_batch_norm1d(6), nn_relu(), nn_linear(6, 2));
    w->opt = nn_adamw(w->net, .lr = 0.01, .amsgrad = 1);
    bias = nn_get(w->net, "3.bias");
    nn_optimizer_group(w->opt, &bias, 1, .lr = 0.5, .weight_decay = 0.25);
    train(w, 2);
    w->step = 2;
    CHECK(nn_save_checkpoint(base, w->net, w->opt, w->step) == 0);
    train(w, 3);
    w->step = 5;
    nn_set_lr(w->opt, 0.125);
    CHECK(nn_save_checkpoint(good, w->net, w->opt, w->step) == 0);
    CHECK(nn_load_checkpoint(base, w->net, w->opt, &w->step) == 0 && w->step == 2);
    w->base_hash = file_hash(base);
    CHECK(world_hash(w) == w->base_hash && w->base_hash != file_hash(good));
}
static void world_close(world_t *w) {
    tensor_context_use(w->before);
    tensor_context_free(w->context);
    remove(good);
    remove(base);
    remove(probe);
    remove(broken);
}

// Loads path; the state must be that of base if it failed, else good's or, for a damaged file, any. -> code
static int whole_or_not(world_t *w, const char *path, int module_only, const char *what, long k) {
    int code = module_only ? nn_load(path, w->net, .partial = 1)
                           : nn_load_checkpoint(path, w->net, w->opt, &w->step);
    heap.fail_at = disk.fail_read = -1;
    CHECK_MSG(code == tensor_error_code(), "%s %ld: code %d, error %d", what, k, code, tensor_error_code());
    tensor_clear_error();
    if (code) {
        int same = world_hash(w) == w->base_hash;
        CHECK_MSG(same, "%s %ld: half of it is in place (code %d)", what, k, code);
        if (same) { return code; }
    } else if (strcmp(path, good) == 0 && !module_only) {
        CHECK_MSG(world_hash(w) == file_hash(good), "%s %ld: not all of it is in place", what, k);
    }
    CHECK(nn_load_checkpoint(base, w->net, w->opt, &w->step) == 0);
    return code;
}

static void failing_reads(void) {
#ifdef __linux__
    world_t w;
    int module_only;
    long k, failed;
    world_open(&w);
    for (module_only = 0; module_only < 2; module_only++) {
        for (k = 0, failed = 1; failed && k < 1000; k++) {
            disk.reads = 0;
            disk.fail_read = k;
            failed = whole_or_not(&w, good, module_only, "read", k) != 0;
        }
        CHECK_MSG(k > 8, "only %ld reads failed", k);
        printf("%ld cases of failed reads\n", k - 1);
    }
    world_close(&w);
#else
    printf("skipped 1 test of failing reads: not Linux\n");
#endif
}

static void failing_allocations(void) {
    world_t w;
    int mode, module_only;
    long k, refused;
    world_open(&w);
    for (mode = 0; mode < 2; mode++) {
        for (module_only = 0; module_only < 2; module_only++) {
            for (k = 0, refused = 1; refused && k < 2000; k++) {
                int code;
                tensor_empty_cache();
                heap.calls = heap.refused = 0;
                heap.fail_at = k;
                heap.persistent = mode;
                code = whole_or_not(&w, good, module_only, "allocation", k);
                refused = heap.refused;
                CHECK(code == 0 || (refused && code == TENSOR_ERR_OUT_OF_MEMORY));
                CHECK(!mode || !refused || code);       // nothing to be had: it must fail
            }
            CHECK_MSG(k > 3 && k < 2000, "%ld allocations failed", k);
            printf("%ld cases of failed allocations\n", k - 1);
        }
    }
    world_close(&w);
}

// Every truncation, and every byte of the header (which ends at its length + 8) changed.
static void damaged_checkpoints(void) {
    world_t w;
    size_t n, i, header;
    unsigned char *p;
    world_open(&w);
    p = bytes_of(good, &n);
    header = 8 + (size_t)p[0] + ((size_t)p[1] << 8) + ((size_t)p[2] << 16);
    CHECK(header < n);
    for (i = 0; i < n; i++) {
        put_bytes(broken, p, i);
        CHECK(whole_or_not(&w, broken, (int)(i & 1), "length", (long)i) == TENSOR_ERR_FORMAT);
    }
    for (i = 0; i < header; i++) {
        p[i] ^= 1;
        put_bytes(broken, p, n);
        whole_or_not(&w, broken, (int)(i & 1), "byte", (long)i);
        p[i] ^= 1;
    }
    free(p);
    world_close(&w);
}

// What no copy could be made into is found before the first copy.
static void unchangeable(void) {
    nn_module_t m, source;
    tensor_t *one = tensor_ones(3), *wide = tensor_expand(tensor_ones(1, 1), 2, 2);
    const char *path = "files_expanded.safetensors";
    nn_module_init(&source, "S", NULL, NULL);
    nn_buffer(&source, "a", tensor_full(5, 3));
    nn_buffer(&source, "b", tensor_full(7, 2, 2));
    nn_module_init(&m, "M", NULL, NULL);
    nn_buffer(&m, "a", one);
    nn_buffer(&m, "b", wide);
    CHECK(nn_save(path, &source) == 0);
    CHECK(nn_load(path, &m) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "load: x [2,2] is expanded");
    CHECK(tensor_item(tensor_sum(one)) == 3);
    nn_free(&m);
    nn_free(&source);
    remove(path);
}

// ---- other locales ----

#ifdef __linux__
// Sets a locale of that language, compiled into the build folder if the system has none. -> 1 if it has point
static int use_locale(const char *language, const char *point) {
    const char *build = getenv("B") ? getenv("B") : "build";
    char name[60], folder[400], command[900];
    struct stat st;
    snprintf(name, sizeof name, "%s.UTF-8", language);
    snprintf(folder, sizeof folder, "%s/locale", build);
    if (getenv("LOCPATH") || !setlocale(LC_ALL, name)) {
        mkdir(build, 0777);
        mkdir(folder, 0777);
        snprintf(command, sizeof command, "%s/%s", folder, name);
        if (stat(command, &st) != 0) {
            snprintf(command, sizeof command, "localedef -i %s -f UTF-8 %s/%s >/dev/null 2>&1", language,
                     folder, name);
            if (system(command) == -1) { return 0; }
        }
        if (setenv("LOCPATH", folder, 1) != 0) { return 0; }
        setlocale(LC_ALL, name);        // the first try with this path: libc remembers what it did not find
    }
    return strcmp(localeconv()->decimal_point, point) == 0;
}
#endif

static void in_locale(void) {
    const float v[4] = {0.0013f, 1.5f, -2.25f, 3};
    const char *path = "files_locale.safetensors";
    tensor_t *x = tensor_from(v, TENSOR_F32, 2, 2), *flat = tensor_reshape(x, 4);
    nn_module_t *m = nn_sequential(nn_linear(2, 2), nn_dropout(0.1));
    nn_module_t *other = nn_sequential(nn_linear(2, 2));
    nn_optimizer_t *o = nn_adam(m, .lr = 0.25);
    int64_t step = 0;
    char text[500];
    tensor_to_string(x, text, sizeof text);
    CHECK_TEXT(text, "tensor([[ 1.3000e-03,  1.5000e+00],\n        [-2.2500e+00,  3.0000e+00]])");
    tensor_to_string(tensor_mul_scalar(tensor_ones(2), 0.5), text, sizeof text);
    CHECK_TEXT(text, "tensor([0.5000, 0.5000])");
    tensor_to_string(tensor_full(3, 2), text, sizeof text);
    CHECK_TEXT(text, "tensor([3., 3.])");
    CHECK_NEAR(tensor_item(tensor_linalg_norm(flat, "2.5", NULL, 0, 0)), 3.67767906, 1e-5);
    CHECK_NEAR(tensor_item(tensor_linalg_norm(flat, "25e-1", NULL, 0, 0)), 3.67767906, 1e-5);
    CHECK_NEAR(tensor_item(tensor_linalg_norm(flat, "inf", NULL, 0, 0)), 3, 0);
    CHECK_POISON(tensor_linalg_norm(flat, "2,5", NULL, 0, 0), TENSOR_ERR_FORMAT, "2,5");
    CHECK_POISON(tensor_linalg_norm(flat, "", NULL, 0, 0), TENSOR_ERR_FORMAT, NULL);
    nn_to_string(m, text, sizeof text);
    CHECK(strstr(text, "p=0.1") != NULL);
    CHECK(nn_adam(m, .lr = -0.5) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "got -0.5");
    CHECK(nn_save_checkpoint(path, m, o, 1) == 0 && nn_load_checkpoint(path, m, o, &step) == 0 && step == 1);
    CHECK(nn_get_lr(o) == 0.25);
    CHECK(nn_load(path, other, .partial = 1) == 0);
    CHECK(test_same_bits(nn_get(m, "0.weight"), nn_get(other, "0.weight")));
    CHECK(nn_load(path, other, .partial = 1, .prefix = "net.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "names is one of the module's");
    nn_optimizer_free(o);
    nn_free(m);
    nn_free(other);
    remove(path);
}

static void locales(void) {
    in_locale();
#ifdef __linux__
    if (use_locale("de_DE", ",")) {
        in_locale();
    } else {
        printf("skipped 1 test of a comma locale: no de_DE, and localedef makes none\n");
    }
    if (use_locale("ps_AF", "\xd9\xab")) {
        in_locale();
    } else {
        printf("skipped 1 test of a two-byte decimal point: no ps_AF, and localedef makes none\n");
    }
    setlocale(LC_ALL, "C");
#else
    printf("skipped 2 tests of locales: not Linux\n");
#endif
}

// ---- made and freed all day ----

static void user_init(nn_module_t *m) {
    nn_module_init(m, "User", NULL, NULL);
    nn_parameter(m, "w", tensor_ones(2));
}

// One object of a kind, made and freed.
static void one_round(int kind, tensor_t *file, nn_module_t *m, tensor_t *x) {
    nn_module_t user;
    switch (kind) {
    case 0: nn_safetensors_close(nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file))); break;
    case 1: nn_free(nn_sequential(nn_linear(2, 2), nn_relu())); break;
    case 2: nn_optimizer_free(nn_adam(m)); break;
    case 3: nn_data_loader_free(nn_data_loader(nn_tensor_dataset(x, x), .shuffle = 1)); break;
    case 4: nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), m, 0); break;
    case 5:
        user_init(&user);
        nn_free(&user);
        break;
    case 6: CHECK(nn_safetensors_parse("12345678", 8) == NULL); tensor_clear_error(); break;
    default: CHECK(nn_linear(0, 2) == NULL); tensor_clear_error(); break;
    }
}
static void freed_memory(void) {
    nn_module_t *m = nn_linear(2, 2);
    tensor_t *file = nn_save_memory(m), *x = tensor_ones(4, 2);
    int kind, i;
    for (kind = 0; kind < 8; kind++) {
        tensor_memory_stats_t before = tensor_memory_stats(), after;
        for (i = 0; i < 10500; i++) {
            tensor_scope_t scope = tensor_scope_begin();
            if (i == 500) { before = tensor_memory_stats(); }
            one_round(kind, file, m, x);
            tensor_scope_end(scope);
        }
        after = tensor_memory_stats();
        CHECK_MSG(after.reserved_bytes == before.reserved_bytes, "kind %d: %lld bytes more after 10,000",
                  kind, (long long)(after.reserved_bytes - before.reserved_bytes));
        CHECK_MSG(after.live_bytes == before.live_bytes && after.live_tensors == before.live_tensors,
                  "kind %d: %lld live bytes more after 10,000", kind,
                  (long long)(after.live_bytes - before.live_bytes));
    }
    nn_free(m);
}

// A stale pointer is told as long as dead objects wait; one whose memory serves again is another object.
static void stale_pointers(void) {
    nn_module_t *m = nn_linear(2, 2), *dead = nn_linear(2, 2), user, parent;
    nn_optimizer_t *o = nn_sgd(m, .lr = 0.1);
    tensor_t *x = tensor_ones(4, 2), *file = nn_save_memory(m);
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(x, x));
    nn_safetensors_t *r = nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file));
    int i;
    nn_free(dead);
    nn_optimizer_free(o);
    nn_data_loader_free(l);
    nn_safetensors_close(r);
    for (i = 0; i < 60; i++) {
        CHECK_POISON(nn_forward(dead, x), TENSOR_ERR_POISONED, "was freed");
        CHECK(nn_free(dead) == TENSOR_ERR_OWNER);
        tensor_clear_error();
        CHECK(nn_step(o) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, "step: the optimizer was freed");
        CHECK(nn_step((nn_optimizer_t *)(void *)m) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, "step: a module was given, its optimizer is wanted");
        CHECK(nn_zero_grad((nn_optimizer_t *)(void *)m) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, "is wanted (or nn_module_zero_grad)");
        CHECK(nn_seek(l, 0) == TENSOR_ERR_OWNER);
        tensor_clear_error();
        CHECK_POISON(nn_safetensors_get(r, "weight"), TENSOR_ERR_OWNER, "the reader was closed");
        nn_free(nn_linear(2, 2));
        nn_optimizer_free(nn_sgd(m, .lr = 0.1));
        nn_data_loader_free(nn_data_loader(nn_tensor_dataset(x, x)));
        nn_safetensors_close(nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file)));
    }
    // A user's struct that went with its parent is told for good, though its block serves others.
    user_init(&user);
    nn_module_init(&parent, "Parent", NULL, NULL);
    nn_child(&parent, "user", &user);
    nn_free(&parent);
    for (i = 0; i < 300; i++) {
        nn_free(nn_sequential(nn_linear(2, 2)));
        CHECK_POISON(nn_get(&user, "w"), TENSOR_ERR_POISONED, "get: the module was freed");
    }
    nn_free(m);
}

// ---- no allocation in a steady step ----

static void lstm_step(nn_module_t *lstm, nn_optimizer_t *o, nn_module_t *copy) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *h = NULL, *c = NULL, *y = nn_lstm_forward(lstm, tensor_randn(3, 2, 4), &h, &c);
    nn_zero_grad(o);
    tensor_backward(tensor_sum(tensor_square(y)));
    nn_clip_grad_norm(o, 1);
    nn_step(o);
    nn_copy_state(copy, lstm);
    nn_module_zero_grad(copy);
    nn_requires_grad_(copy, 0);
    CHECK(nn_num_parameters(copy) > 0 && nn_parameters(copy, NULL, 0) > 0);
    tensor_free(h);
    tensor_free(c);
    tensor_scope_end(scope);
}
static void steady_steps(void) {
    int kind, i;
    for (kind = 0; kind < 3; kind++) {
        nn_module_t *lstm = nn_lstm(4, 5, .layers = 1 + (kind == 1), .bidirectional = kind == 1,
                                    .dropout = kind == 1 ? 0.5 : 0);
        nn_module_t *copy = nn_clone(lstm);
        nn_optimizer_t *o = nn_adam(lstm);
        uint64_t before = 0;
        for (i = 0; i < 60; i++) {
            tensor_scope_t scope =
                kind == 2 ? tensor_scope_begin_autocast(TENSOR_BF16) : tensor_scope_begin();
            if (i == 30) { before = tensor_memory_stats().allocs; }
            lstm_step(lstm, o, copy);
            tensor_scope_end(scope);
        }
        before = tensor_memory_stats().allocs - before;
        CHECK_MSG(before == 0, "kind %d: %lld allocations in 30 steps", kind, (long long)before);
        nn_optimizer_free(o);
        nn_free(copy);
        nn_free(lstm);
    }
}

// Many steps of training, with a copy of the net now and then, ask the system for nothing: no block of the
// allocator and no page more.
static long soak_steps = 20000;         // make soak: a million
static long resident_pages(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long all = 0, resident = 0;
    if (f && fscanf(f, "%ld %ld", &all, &resident) != 2) { resident = 0; }
    if (f) { fclose(f); }
    return resident;
}
static void soak(void) {
    nn_module_t *net = nn_sequential(nn_linear(2, 16), nn_tanh(), nn_linear(16, 1)), *best = nn_clone(net);
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, labels[] = {0, 1, 1, 0};
    tensor_t *x = tensor_from(inputs, TENSOR_F32, 4, 2), *y = tensor_from(labels, TENSOR_F32, 4, 1);
    tensor_memory_stats_t before = tensor_memory_stats(), after;
    long pages = 0;
    double loss = 0;
    CHECK(tensor_set_num_threads(2) == 0);
    for (long step = 0; step < soak_steps; step++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *l = tensor_binary_cross_entropy_with_logits(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(l);
        nn_step(opt);
        if (step % 1000 == 0) {
            loss = tensor_item(l);
            nn_copy_state(best, net);
        }
        tensor_scope_end(scope);
        if (step == 10000) {
            before = tensor_memory_stats();
            pages = resident_pages();
        }
    }
    after = tensor_memory_stats();
    CHECK_OK();
    CHECK_MSG(loss < 0.1, "loss %g", loss);
    CHECK_MSG(after.allocs == before.allocs, "%lld allocations", (long long)(after.allocs - before.allocs));
    CHECK(after.live_bytes == before.live_bytes && after.live_tensors == before.live_tensors);
    CHECK(after.live_nodes == before.live_nodes && after.reserved_bytes == before.reserved_bytes);
    CHECK_MSG(resident_pages() <= pages + 64, "%ld pages after 10,000 steps, %ld after %ld", pages,
              resident_pages(), soak_steps);
    CHECK(tensor_set_num_threads(1) == 0);
    nn_optimizer_free(opt);
    nn_free(best);
    nn_free(net);
}

// ---- what files hold ----

// A safetensors file in memory: the header's text, then n bytes 1.
static nn_safetensors_t *parsed(const char *header, size_t n) {
    static unsigned char file[4000];
    size_t k, length = strlen(header);
    for (k = 0; k < 8; k++) { file[k] = (unsigned char)(k < 2 ? length >> 8 * k : 0); }
    memcpy(file + 8, header, length);
    memset(file + 8 + length, 1, n);
    return nn_safetensors_parse(file, 8 + length + n);
}
static void unsupported_tensors(void) {
    nn_safetensors_t *r = parsed(
        "{\"c\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[16,20]},"
        "\"f8\":{\"dtype\":\"F8_E8M0\",\"shape\":[3],\"data_offsets\":[20,23]},"
        "\"f4\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[23,26]},"
        "\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[26,29]},"
        "\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[29,31]}}", 31);
    nn_module_t m;
    CHECK_OK();
    CHECK(nn_safetensors_count(r) == 6);
    CHECK(tensor_item(tensor_sum(nn_safetensors_get(r, "w"))) == 2);
    CHECK_POISON(nn_safetensors_get(r, "c"), TENSOR_ERR_UNSUPPORTED, "c has dtype C64");
    CHECK_POISON(nn_safetensors_get(r, "deep"), TENSOR_ERR_UNSUPPORTED, "deep has 9 dims, tensors at most 8");
    CHECK_POISON(nn_safetensors_get(r, "f8"), TENSOR_ERR_UNSUPPORTED, "f8 has dtype F8_E8M0");
    CHECK_POISON(nn_safetensors_get(r, "f4"), TENSOR_ERR_UNSUPPORTED, "F4");
    CHECK_POISON(nn_safetensors_get(r, "f6"), TENSOR_ERR_UNSUPPORTED, "F6_E2M3");
    CHECK(tensor_item(tensor_sum(nn_safetensors_get(r, "w"))) == 2);
    nn_safetensors_close(r);
    // Their sizes are checked like all others'.
    CHECK(parsed("{\"c\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "disagree");
    CHECK(parsed("{\"c\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "disagree");
    CHECK(parsed("{\"c\":{\"dtype\":\"F6_E3M2\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "disagree");
    CHECK(parsed("{\"c\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,9007199254740992,9007199254740992],"
                 "\"data_offsets\":[0,1]}}", 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "overflows");
    // A module that wants one is told.
    nn_module_init(&m, "M", NULL, NULL);
    nn_buffer(&m, "c", tensor_ones(2));
    nn_buffer(&m, "deep", tensor_ones(4));
    {
        static const char header[] =
            "{\"c\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,16]},"
            "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[16,20]}}";
        static unsigned char file[300];
        file[0] = sizeof header - 1;
        memcpy(file + 8, header, sizeof header - 1);
        CHECK(nn_load_memory(file, 8 + sizeof header - 1 + 20, &m, 0) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT,
                    "2 of another shape [c C64 (module: f32), deep of 9 dims (module: [4])]");
    }
    nn_free(&m);
}

// Names of a file in order, with the values of one element each.
static void tied_parameters(void) {
    nn_module_t a, b;
    tensor_t *w = tensor_full(3, 2, 2), *v = tensor_full(1, 2, 2), *file;
    nn_safetensors_t *r;
    nn_module_init(&a, "A", NULL, NULL);
    nn_parameter(&a, "embed", w);
    nn_parameter(&a, "head", w);
    nn_module_init(&b, "B", NULL, NULL);
    nn_parameter(&b, "embed", v);
    nn_parameter(&b, "head", v);
    file = nn_save_memory(&a);
    r = nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file));
    CHECK(nn_safetensors_count(r) == 2);        // what a strict load_state_dict in PyTorch asks for
    CHECK(tensor_equal(nn_safetensors_get(r, "embed"), w) && tensor_equal(nn_safetensors_get(r, "head"), w));
    nn_safetensors_close(r);
    CHECK(nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), &b, 0) == 0);
    CHECK(nn_get(&b, "embed") == v && nn_get(&b, "head") == v && tensor_equal(v, w));
    {   // one name of two, as safetensors' own save_model writes it
        const char *one = "head";
        file = nn_safetensors_format(&one, &w, 1, NULL, 0);
        nn_init_zeros_(v);
        CHECK(nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), &b, 0) == 0);
        CHECK(tensor_equal(v, w));
    }
    nn_free(&a);
    nn_free(&b);
}

// ---- error texts ----

static void other_formats(void) {
    static const struct { const char *bytes; const char *text; } files[] = {
        {"PK\3\4\0\0\x08\x08\0\0\0\0",
         "\"memory\" is a torch.save file (zip), not safetensors; convert it in Python"},
        {"\x80\2\x8a\nl\xfc\x9c""F\xf9 j", "an old torch.save file"},
        {"\x80\4\x95\0\0\0\0\0\0\0\0", "pickle"},
        {"GGUF\3\0\0\0\1\0\0\0", "GGUF"},
        {"\x93NUMPY\1\0v\0{'", "NumPy"},
        {"\x89HDF\r\n\x1a\n\0\0\0", "HDF5"},
        {"\x1f\x8b\x08\0\0\0\0\0\0\3\0", "gunzip"},
        {"version https", "git lfs pull"},
        {"something else", "the header's length exceeds the file"},
    };
    const char *path = "files_foreign.pt";
    size_t i;
    for (i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK(nn_safetensors_parse(files[i].bytes, 11) == NULL);
        CHECK_ERROR(TENSOR_ERR_FORMAT, files[i].text);
    }
    put_bytes(path, "PK\3\4 and so on", 14);
    CHECK(nn_safetensors_open(path) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "\"files_foreign.pt\" is a torch.save file");
    remove(path);
}

static void load_texts(void) {
    nn_module_t *a = nn_sequential(nn_linear(3, 4)), *inner;
    nn_module_t *b = nn_sequential(nn_linear(3, 5), nn_linear(5, 1));
    tensor_t *file = nn_save_memory(a);
    const char *path = "files_prefix.safetensors";
    CHECK(nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), b, 1) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT,
                "2 of another shape [0.weight [4,3] (module: [5,3]), 0.bias [4] (module: [5])]");
    // A part of a larger file.
    inner = nn_linear(3, 5);
    CHECK(nn_save(path, b) == 0);
    CHECK(nn_load(path, inner) == TENSOR_ERR_FORMAT);
    tensor_clear_error();
    CHECK(nn_load(path, inner, .prefix = "0.") == 0);
    CHECK(tensor_equal(nn_get(inner, "weight"), nn_get(b, "0.weight")));
    CHECK(nn_load(path, inner, .prefix = "1.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "weight [1,5] (module: [5,3])");
    CHECK(nn_load(path, inner, .prefix = "2.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, ": none of its 4 names is one of the module's, behind the prefix 2.; its "
                                   "first is 0.bias, the module's weight at files.c:");
    nn_rename_t rename = {"encoder.", "0."};
    CHECK(nn_load(path, a, .renames = &rename, .nrenames = 1, .prefix = "net.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "one of the module's, renamed, behind the prefix net.; its first is "
                                   "0.bias, the module's 0.weight at ");
    remove(path);
    nn_free(a);
    nn_free(b);
    nn_free(inner);
}

static void note_key(void *user, const char *name, int missing) {
    char *text = (char *)user;
    size_t n = strlen(text);
    snprintf(text + n, 200 - n, "%s%s ", missing ? "-" : "+", name);
}

static void refuse_key(void *user, const char *name, int missing) {
    tensor_raise(TENSOR_ERR_FORMAT, name);
    note_key(user, name, missing);
}

// What load_state_dict(strict=False) returns.
static void unmatched_keys(void) {
    const char *path = "files_keys.safetensors";
    nn_module_t *a = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4), nn_linear(4, 2));
    nn_module_t *b = nn_sequential(nn_linear(3, 4), nn_relu(), nn_linear(4, 2, .no_bias = 1),
                                   nn_linear(2, 1));
    nn_module_t *c = nn_sequential(nn_linear(3, 4)), *d = nn_sequential(nn_linear(3, 5), nn_linear(5, 1));
    char text[200] = "";
    CHECK(nn_save(path, a) == 0);
    CHECK(nn_load(path, b, .partial = 1, .unmatched = note_key, .user = text) == 0);
    CHECK_TEXT(text, "-3.weight -3.bias +1.num_batches_tracked +1.bias +1.running_mean +1.running_var "
                     "+1.weight +2.bias ");
    CHECK(tensor_equal(nn_get(a, "0.weight"), nn_get(b, "0.weight")));
    // Nobody is told where all fits, where the load is whole, and where a shape differs.
    text[0] = 0;
    CHECK(nn_load(path, a, .partial = 1, .unmatched = note_key, .user = text) == 0 && !text[0]);
    CHECK(nn_load(path, c, .unmatched = note_key, .user = text) == TENSOR_ERR_FORMAT && !text[0]);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "unexpected");
    CHECK(nn_load(path, d, .partial = 1, .unmatched = note_key, .user = text) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "0.weight [4,3] (module: [5,3])");
    CHECK(!text[0]);
    // An error of the function is one of the load, and nothing changes.
    tensor_t *other = nn_get(b, "0.weight");
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_fill_(other, 7);
    tensor_scope_end(scope);
    CHECK(nn_load(path, b, .partial = 1, .unmatched = refuse_key, .user = text) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "3.weight");
    CHECK(tensor_item(tensor_min(other)) == 7 && tensor_item(tensor_max(other)) == 7);
    text[0] = 0;
    // Behind a prefix the names are the file's.
    nn_module_t *part = nn_linear(4, 2, .no_bias = 1);
    CHECK(nn_load(path, part, .partial = 1, .prefix = "2.", .unmatched = note_key, .user = text) == 0);
    CHECK_TEXT(text, "+2.bias ");
    remove(path);
    nn_free(a);
    nn_free(b);
    nn_free(c);
    nn_free(d);
    nn_free(part);
}

// A GAN: two nets, each with an optimizer, in a file each. Both have the generator of random numbers.
static void gan_step(nn_module_t *const net[2], nn_optimizer_t *const opt[2]) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *fake = nn_forward(net[0], tensor_randn(6, 3)), *real = tensor_rand(6, 2);
    tensor_t *yes = tensor_ones(6, 1), *no = tensor_zeros(6, 1);
    tensor_t *loss = tensor_binary_cross_entropy_with_logits(nn_forward(net[1], real), yes);
    tensor_t *more = tensor_binary_cross_entropy_with_logits(nn_forward(net[1], tensor_detach(fake)), no);
    nn_zero_grad(opt[1]);
    tensor_backward(tensor_add(loss, more));
    nn_step(opt[1]);
    nn_zero_grad(opt[0]);
    tensor_backward(tensor_binary_cross_entropy_with_logits(nn_forward(net[1], fake), yes));
    nn_step(opt[0]);
    tensor_scope_end(scope);
}

static uint64_t gan_hash(nn_module_t *const net[2]) {
    tensor_t *bytes[2] = {nn_save_memory(net[0]), nn_save_memory(net[1])};
    return test_hash(test_hash(TEST_HASH, bytes[0]), bytes[1]);
}

static void two_optimizers(void) {
    static const char *const path[2] = {"files_generator.safetensors", "files_critic.safetensors"};
    nn_module_t *net[2];
    nn_optimizer_t *opt[2];
    uint64_t want = 0;
    for (int run = 0; run < 2; run++) {
        tensor_manual_seed(run ? 99 : 5);
        net[0] = nn_sequential(nn_linear(3, 8), nn_batch_norm1d(8), nn_relu(), nn_linear(8, 2));
        net[1] = nn_sequential(nn_linear(2, 8), nn_leaky_relu(0.2), nn_dropout(0.3), nn_linear(8, 1));
        opt[0] = nn_adam(net[0], .lr = 0.01);
        opt[1] = nn_rmsprop(net[1], .lr = 0.02);
        for (int k = 0; k < 3 && !run; k++) { gan_step(net, opt); }
        for (int k = 0; k < 2; k++) {
            int64_t step = 0;
            if (run) {
                CHECK(nn_load_checkpoint(path[k], net[k], opt[k], &step) == 0 && step == 3);
            } else {
                CHECK(nn_save_checkpoint(path[k], net[k], opt[k], 3) == 0);
            }
        }
        for (int k = 0; k < 3; k++) { gan_step(net, opt); }
        if (run) {
            CHECK(gan_hash(net) == want);
            CHECK(nn_load_checkpoint(path[0], net[1], opt[1], NULL) == TENSOR_ERR_FORMAT);
            tensor_clear_error();
        } else {
            want = gan_hash(net);
        }
        for (int k = 0; k < 2; k++) {
            nn_optimizer_free(opt[k]);
            nn_free(net[k]);
            if (run) { remove(path[k]); }
        }
    }
}

static void label_texts(void) {
    tensor_t *x = tensor_randn(4, 3), *labels = tensor_zeros(4);
    CHECK_POISON(tensor_cross_entropy(x, labels), TENSOR_ERR_SHAPE, "class indices are i32 or i64, not f32");
}

// An error whose place is empty, as under TENSOR_NO_CALL_SITES.
static void no_place(void) {
    (void)tensor__at("", (tensor_matmul)(tensor_ones(2, 3), tensor_ones(2, 3)));
    CHECK(strstr(tensor_error_text(), " at ") == NULL);
    tensor_clear_error();
    (void)(tensor_matmul)(tensor_ones(2, 3), tensor_ones(2, 3));
    (void)tensor__at_int("", 1);
    CHECK_MSG(strstr(tensor_error_text(), " at ") == NULL, "\"%s\"", tensor_error_text());
    tensor_clear_error();
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "soak") == 0) {
        soak_steps = 1000000;
        RUN(soak);
        return test_report();
    }
    RUN(two_savers);
    RUN(synced_saves);
    RUN(failing_reads);
    RUN(failing_allocations);
    RUN(damaged_checkpoints);
    RUN(unchangeable);
    RUN(locales);
    RUN(freed_memory);
    RUN(stale_pointers);
    RUN(steady_steps);
    RUN(soak);
    RUN(unsupported_tensors);
    RUN(tied_parameters);
    RUN(other_formats);
    RUN(load_texts);
    RUN(unmatched_keys);
    RUN(two_optimizers);
    RUN(label_texts);
    RUN(no_place);
    return test_report();
}

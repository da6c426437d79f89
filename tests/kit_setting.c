// kit_setting.c - examples/kit/setting.h: numbers from the environment, files, and what is refused; file.h:
// files that are written appear whole or not at all
#define _POSIX_C_SOURCE 200809L     // setenv, lstat
#include "kit.h"

#if defined(__unix__)
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#define KIT_SETTING_IMPLEMENTATION
#include "../examples/kit/setting.h"

static int given(const char *text) {
#if defined(_WIN32)
    char all[100];
    snprintf(all, sizeof all, "KIT_TEST=%s", text);
    _putenv(all);
#else
    setenv("KIT_TEST", text, 1);
#endif
    return kit_setting("KIT_TEST", 7, 1, 100);
}

static void numbers(void) {
    static const char *const wrong[] = {"abc", "0", "101", "-1", "1.5", "5x", " ", "99999999999999999999"};
    CHECK(kit_setting("KIT_TEST_NOT_SET", 7, 1, 100) == 7);
    CHECK(given("1") == 1 && given("100") == 100 && given("") == 7);
    CHECK_OK();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[120];
        snprintf(text, sizeof text, "KIT_TEST: \"%s\" is not a whole number of 1 to 100", wrong[i]);
        CHECK(given(wrong[i]) == 7);
        CHECK_MSG(!strstr(tensor_error_text(), ".h:"), "the kit's own line: %s", tensor_error_text());
        CHECK_ERROR(TENSOR_ERR_FORMAT, text);
    }
}

static void real_numbers(void) {
    static const char *const wrong[] = {"abc", "-0.1", "2.1", "0.5x", "0,5", " ", "nan", "inf", "1e999"};
    CHECK(kit_real("T", NULL, 0.25, 0, 2) == 0.25 && kit_real("T", "", 0.25, 0, 2) == 0.25);
    CHECK(kit_real("T", "0", 1, 0, 2) == 0 && kit_real("T", "0.75", 1, 0, 2) == 0.75);
    CHECK(kit_real("T", "2", 1, 0, 2) == 2 && kit_real("T", "1e-3", 1, 0, 2) == 1e-3);
    CHECK_OK();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[120];
        snprintf(text, sizeof text, "T: \"%s\" is not a number of 0 to 2", wrong[i]);
        CHECK(kit_real("T", wrong[i], 0.25, 0, 2) == 0.25);
        CHECK_MSG(!strstr(tensor_error_text(), ".h:"), "the kit's own line: %s", tensor_error_text());
        CHECK_ERROR(TENSOR_ERR_FORMAT, text);
    }
}

static void bytes_of_files(void) {
    char got[8] = "";
    const char *path = kit_temporary("a.txt", "hello", 5);
    CHECK(kit_bytes_of(path, got, 4) == 4 && memcmp(got, "hell", 4) == 0 && got[4] == 0);
    CHECK(kit_bytes_of(path, got, 8) == 5 && memcmp(got, "hello", 5) == 0);
    CHECK_OK();
    remove(path);
    CHECK(kit_bytes_of(path, got, 8) == 0);
    CHECK_ERROR(TENSOR_ERR_IO, "No such file");
    CHECK(kit_refuse(TENSOR_ERR_FORMAT, "notes.txt", "these are too few") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "notes.txt: these are too few");
}

// Where a file of the test's own is to be, in the temporary folder.
static const char *place(const char *name) {
    static char paths[8][300];
    static int next;
    char *path = paths[next++ % 8];
    const char *folder = getenv("TMPDIR");
    snprintf(path, 300, "%s/kit_setting.%s", folder ? folder : "/tmp", name);
    return path;
}

// Whether the file at path has this text; NULL: there is none.
static int has(const char *path, const char *text) {
    static char got[20000];
    FILE *f = fopen(path, "rb");
    if (!f) { return text == NULL; }
    const size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[n] = 0;
    return text && strcmp(got, text) == 0;
}

// A file of the kit with that text.   -> code
static int put(const char *path, const char *text) {
    kit_file__new_t file = kit_file__begin(path);
    if (file.f) { fputs(text, file.f); }
    return kit_file__finish(&file, 1);
}

static void files_take_their_place_when_whole(void) {
    const char *path = place("a"), *other = place("b");
    CHECK(put(path, "old") == 0 && put(other, "old too") == 0 && has(path, "old"));
    // The user's own file of that name is not the one beside.
    CHECK(put(place("a.tmp"), "the user's") == 0);
    kit_file__new_t both[2] = {kit_file__begin(path), kit_file__begin(other)};
    CHECK(both[0].f && both[1].f && fputs("new", both[0].f) >= 0 && fputs("new too", both[1].f) >= 0);
    CHECK(has(path, "old") && has(other, "old too"));
    CHECK(kit_file__finish(both, 2) == 0 && has(path, "new") && has(other, "new too"));
    CHECK(has(place("a.tmp"), "the user's") && has(place("a.tmp1"), NULL) && has(place("b.tmp"), NULL));
    // Where one of two cannot be written, neither takes its place.
    kit_file__new_t one[2] = {kit_file__begin(path), kit_file__begin(place("no folder/b"))};
    CHECK(one[0].f && !one[1].f && fputs("newer", one[0].f) >= 0);
    CHECK(kit_file__finish(one, 2) == TENSOR_ERR_IO);
    CHECK_MSG(!strstr(tensor_error_text(), ".h:"), "the kit's own line: %s", tensor_error_text());
    CHECK_ERROR(TENSOR_ERR_IO, "no folder/b: cannot be written: No such file");
    CHECK(has(path, "new") && has(place("a.tmp1"), NULL));
    CHECK(put(NULL, "") == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "(no path): cannot be written");
    CHECK(kit_setting(NULL, 3, 0, 5) == 3);
    CHECK_ERROR(TENSOR_ERR_POISONED, "kit_setting: the name is NULL");
    remove(place("a.tmp"));
    remove(path);
    remove(other);
}

#if defined(__unix__)
static void links_and_permissions_stay(void) {
    struct stat about;
    const char *path = place("a"), *link = place("link"), *far_link = place("link2");
    CHECK(put(path, "old") == 0 && chmod(path, 0640) == 0);
    CHECK(symlink("kit_setting.a", link) == 0 && symlink(link, far_link) == 0);
    CHECK(put(far_link, "new") == 0 && has(path, "new"));
    CHECK(lstat(far_link, &about) == 0 && S_ISLNK(about.st_mode));
    CHECK(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
    CHECK(stat(path, &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & 07777) == 0640);
    CHECK(remove(link) == 0 && symlink(far_link, link) == 0);
    CHECK(put(link, "new") == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "kit_setting.link: cannot be written: Too many");
    remove(far_link);
    remove(link);
    remove(path);
    // A folder is refused. A pipe or a device is written where it is; here one that has nobody's bytes.
    CHECK(put("/", "new") == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "/: cannot be written: Is a directory");
    CHECK(put("/dev/null", "new") == 0 && stat("/dev/null", &about) == 0 && S_ISCHR(about.st_mode));
    // A name that is as long as names may be.
    char name[256];
    memset(name, 'n', sizeof name);
    name[255 - strlen("kit_setting.")] = 0;
    path = place(name);
    CHECK(put(path, "long") == 0 && has(path, "long") && put(path, "again") == 0 && has(path, "again"));
    remove(path);
    CHECK_OK();
}

static void a_full_disk_leaves_the_old_file(void) {
    static char much[10001];
    struct rlimit before, least;
    const char *path = place("a"), *other = place("b");
    memset(much, 'x', sizeof much - 1);
    CHECK(put(path, "old") == 0 && put(other, "old too") == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    least = before;
    least.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_FSIZE, &least) == 0);
    const int code = put(path, much);
    kit_file__new_t both[2] = {kit_file__begin(other), kit_file__begin(path)};
    CHECK(both[0].f && both[1].f && fputs("new", both[0].f) >= 0);
    fputs(much, both[1].f);
    const kit_file__new_t *failed = kit_file__settle(both, 2);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, handler);
    CHECK(code == TENSOR_ERR_IO && failed == &both[1] && failed->error == EFBIG);
    CHECK_ERROR(TENSOR_ERR_IO, "kit_setting.a: cannot be written: File too large");
    CHECK(has(path, "old") && has(place("a.tmp"), NULL));
    CHECK(has(other, "old too") && has(place("b.tmp"), NULL));
    remove(path);
    remove(other);
}
#endif

int main(void) {
    RUN(numbers);
    RUN(real_numbers);
    RUN(bytes_of_files);
    RUN(files_take_their_place_when_whole);
#if defined(__unix__)
    RUN(links_and_permissions_stay);
    RUN(a_full_disk_leaves_the_old_file);
#endif
    return test_report();
}

// kit_setting.c - examples/kit/setting.h: numbers from the environment, files, and what is refused
#define _POSIX_C_SOURCE 200112L     // setenv
#include "kit.h"

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

int main(void) {
    RUN(numbers);
    RUN(bytes_of_files);
    return test_report();
}

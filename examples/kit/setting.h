// setting.h - what a program is told by its environment, and how it refuses what it cannot use
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_SETTING_IMPLEMENTATION
//   #include "kit/setting.h"
//
//   int steps = kit_setting("STEPS", 600, 1, 1000000);      // STEPS=50 build/spiral
//   if (!tensor_ok()) { return tensor_shutdown() != 0; }    // STEPS=abc: one sentence, status 1
#ifndef KIT_SETTING_H
#define KIT_SETTING_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// The whole number of least..most in the environment's variable of that name.
//   -> the number; otherwise, if the variable is not set or empty, or after raising;  errors FORMAT
int kit_setting(const char *name, int otherwise, int least, int most);

// The same for a text that the program has, an argument for one; name is what the error calls it.
//   text    NULL or empty = otherwise
//   -> as kit_setting
int kit_whole(const char *name, const char *text, int otherwise, int least, int most);

// The same for a number that need not be whole, as 0.7; NaN is none.
double kit_real(const char *name, const char *text, double otherwise, double least, double most);

// Raises "what: why". The error has no line, because the program made no mistake.
//   why     NULL = what the system says of its last refusal, as in "notes.txt: No such file or directory"
//   -> code;  errors the one raised
int kit_refuse(int code, const char *what, const char *why);

// The first bytes of a file, at most room.
//   -> how many, 0 after raising;  errors IO
size_t kit_bytes_of(const char *path, void *to, size_t room);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_SETTING_IMPLEMENTATION) && !defined(KIT_SETTING_DONE)
#define KIT_SETTING_DONE

#include "file.h"

int kit_refuse(int code, const char *what, const char *why) {
    (void)kit_file__fail(code, what, NULL, -1, why ? why : strerror(errno));
    return code;
}

size_t kit_bytes_of(const char *path, void *to, size_t room) {
    FILE *f = kit_file__open(path, "rb");
    if (!f) {
        kit_refuse(TENSOR_ERR_IO, path, NULL);
        return 0;
    }
    size_t n = fread(to, 1, room, f);
    if (ferror(f)) {
        kit_refuse(TENSOR_ERR_IO, path, NULL);          // a folder, for one
        n = 0;
    }
    (void)fclose(f);
    return n;
}

int kit_whole(const char *name, const char *text, int otherwise, int least, int most) {
    if (!text || !*text) { return otherwise; }
    char *end;
    long value = strtol(text, &end, 10);
    if (end != text && *end == 0 && value >= least && value <= most) { return (int)value; }
    char why[200];
    snprintf(why, sizeof why, "\"%.80s\" is not a whole number of %d to %d", text, least, most);
    kit_refuse(TENSOR_ERR_FORMAT, name, why);
    return otherwise;
}

double kit_real(const char *name, const char *text, double otherwise, double least, double most) {
    if (!text || !*text) { return otherwise; }
    char *end;
    const double value = strtod(text, &end);
    if (end != text && *end == 0 && value >= least && value <= most) { return value; }
    char why[200];
    snprintf(why, sizeof why, "\"%.80s\" is not a number of %g to %g", text, least, most);
    kit_refuse(TENSOR_ERR_FORMAT, name, why);
    return otherwise;
}

int kit_setting(const char *name, int otherwise, int least, int most) {
    if (!name) {
        kit_refuse(TENSOR_ERR_POISONED, "kit_setting", "the name is NULL");
        return otherwise;
    }
    return kit_whole(name, getenv(name), otherwise, least, most);
}

#endif

// brain.h - the functions that a game finds in the library it reloads (brain.c)
#ifndef BRAIN_H
#define BRAIN_H
#include <stddef.h>
#ifndef BRAIN_API
#define BRAIN_API
#endif
BRAIN_API int brain_open(const void *weights, size_t size);
BRAIN_API double brain_learn(int steps);
BRAIN_API size_t brain_save(void *to, size_t room);
BRAIN_API int brain_close(void);
#endif

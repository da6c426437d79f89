#ifndef STUB_STDLIB_H
#define STUB_STDLIB_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *p, size_t bytes);
void free(void *p);
char *getenv(const char *name);
double strtod(const char *text, char **end);
long strtol(const char *text, char **end, int base);
long long strtoll(const char *text, char **end, int base);
unsigned long long strtoull(const char *text, char **end, int base);
int atoi(const char *text);
void *bsearch(const void *key, const void *list, size_t n, size_t bytes,
              int (*order)(const void *, const void *));
void qsort(void *list, size_t n, size_t bytes, int (*order)(const void *, const void *));
#ifdef __cplusplus
}
#endif
#endif

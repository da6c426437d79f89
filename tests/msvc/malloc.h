#ifndef STUB_MALLOC_H
#define STUB_MALLOC_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *_aligned_malloc(size_t bytes, size_t alignment);
void _aligned_free(void *p);
#ifdef __cplusplus
}
#endif
#endif

// memory.c - for a program without libc: compilers make calls of these of loops
#include <stddef.h>
#include <stdint.h>

void *memset(void *to, int value, size_t n) {
    for (volatile uint8_t *p = (uint8_t *)to; n > 0; n--) { *p++ = (uint8_t)value; }
    return to;
}

void *memcpy(void *to, const void *from, size_t n) {
    volatile uint8_t *p = (uint8_t *)to;
    for (const uint8_t *q = (const uint8_t *)from; n > 0; n--) { *p++ = *q++; }
    return to;
}

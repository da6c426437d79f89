#ifndef STUB_IO_H
#define STUB_IO_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
int _isatty(int file);
int _wopen(const wchar_t *path, int flags, ...);
int _close(int file);
int _commit(int file);
#ifdef __cplusplus
}
#endif
#endif

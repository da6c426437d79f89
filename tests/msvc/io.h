#ifndef STUB_IO_H
#define STUB_IO_H
#ifdef __cplusplus
extern "C" {
#endif
int _isatty(int file);
int _open(const char *path, int flags, ...);
int _close(int file);
int _commit(int file);
#ifdef __cplusplus
}
#endif
#endif

#ifndef STUB_STAT_H
#define STUB_STAT_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
struct _stat64 { unsigned short st_mode; __int64 st_size; };
int _wstat64(const wchar_t *path, struct _stat64 *to);
int _chmod(const char *path, int mode);
#ifdef __cplusplus
}
#endif
#define _S_IREAD 0x0100
#define _S_IWRITE 0x0080
#define _S_IFMT 0xF000
#define _S_IFREG 0x8000
#define _S_IFDIR 0x4000
#endif

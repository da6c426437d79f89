#ifndef STUB_STDIO_H
#define STUB_STDIO_H
#include <stdarg.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct _iobuf FILE;
FILE *__acrt_iob_func(unsigned index);
#define stdin (__acrt_iob_func(0))
#define stdout (__acrt_iob_func(1))
#define stderr (__acrt_iob_func(2))
#define EOF (-1)
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2
FILE *fopen(const char *path, const char *mode);
FILE *_wfopen(const wchar_t *path, const wchar_t *mode);
int _wremove(const wchar_t *path);
int fclose(FILE *f);
int ferror(FILE *f);
int feof(FILE *f);
int fflush(FILE *f);
int fputc(int c, FILE *f);
int fputs(const char *text, FILE *f);
int fprintf(FILE *f, const char *format, ...);
int puts(const char *text);
int printf(const char *format, ...);
int snprintf(char *to, size_t room, const char *format, ...);
size_t fread(void *to, size_t size, size_t count, FILE *f);
size_t fwrite(const void *from, size_t size, size_t count, FILE *f);
int fseek(FILE *f, long at, int from);
long ftell(FILE *f);
FILE *_fdopen(int file, const char *mode);
int _fileno(FILE *f);
int _fseeki64(FILE *f, __int64 at, int from);
__int64 _ftelli64(FILE *f);
int remove(const char *path);
int rename(const char *from, const char *to);
#ifdef __cplusplus
}
#endif
#endif

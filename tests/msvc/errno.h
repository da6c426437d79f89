#ifndef STUB_ERRNO_H
#define STUB_ERRNO_H
#ifdef __cplusplus
extern "C" {
#endif
int *_errno(void);
#ifdef __cplusplus
}
#endif
#define errno (*_errno())
#define ENOENT 2
#define EIO 5
#define EACCES 13
#define EEXIST 17
#define ENOMEM 12
#define EINVAL 22
#define ENAMETOOLONG 38
#endif

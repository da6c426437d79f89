#ifndef STUB_PROCESS_H
#define STUB_PROCESS_H
#ifdef __cplusplus
extern "C" {
#endif
int _getpid(void);
#ifdef __cplusplus
}
#endif
#endif

#ifndef STUB_WINDOWS_H
#define STUB_WINDOWS_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
#define WINAPI __stdcall
#define INFINITE 0xFFFFFFFFu
typedef void *HANDLE;
typedef void *LPVOID;
typedef unsigned long DWORD;
typedef int BOOL;
typedef struct SRWLOCK { void *Ptr; } SRWLOCK;
typedef struct CONDITION_VARIABLE { void *Ptr; } CONDITION_VARIABLE;
#define SRWLOCK_INIT {0}
typedef struct SYSTEM_INFO { DWORD dwPageSize, dwNumberOfProcessors; } SYSTEM_INFO;
void WINAPI InitializeSRWLock(SRWLOCK *lock);
void WINAPI AcquireSRWLockExclusive(SRWLOCK *lock);
void WINAPI ReleaseSRWLockExclusive(SRWLOCK *lock);
void WINAPI InitializeConditionVariable(CONDITION_VARIABLE *v);
BOOL WINAPI SleepConditionVariableSRW(CONDITION_VARIABLE *v, SRWLOCK *lock, DWORD ms, unsigned long flags);
void WINAPI WakeAllConditionVariable(CONDITION_VARIABLE *v);
BOOL WINAPI SwitchToThread(void);
typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID arg);
HANDLE WINAPI CreateThread(void *security, size_t stack, LPTHREAD_START_ROUTINE fn, LPVOID arg, DWORD flags,
                           DWORD *id);
DWORD WINAPI WaitForSingleObject(HANDLE h, DWORD ms);
BOOL WINAPI CloseHandle(HANDLE h);
void WINAPI GetSystemInfo(SYSTEM_INFO *info);
BOOL WINAPI MoveFileExW(const wchar_t *from, const wchar_t *to, DWORD flags);
int WINAPI MultiByteToWideChar(unsigned page, DWORD flags, const char *text, int n, wchar_t *to, int room);
#define CP_ACP 0
#define CP_UTF8 65001
#define MB_ERR_INVALID_CHARS 8
DWORD WINAPI GetLastError(void);
#define MOVEFILE_REPLACE_EXISTING 1
#define MOVEFILE_WRITE_THROUGH 8
#define ERROR_ACCESS_DENIED 5
#ifdef __cplusplus
}
#endif
#endif

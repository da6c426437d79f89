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
typedef size_t SIZE_T;
typedef union LARGE_INTEGER { long long QuadPart; } LARGE_INTEGER;
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
HANDLE WINAPI CreateFileW(const wchar_t *path, DWORD access, DWORD share, void *security, DWORD how, DWORD flags,
                          HANDLE like);
BOOL WINAPI GetFileSizeEx(HANDLE file, LARGE_INTEGER *size);
HANDLE WINAPI CreateFileMappingW(HANDLE file, void *security, DWORD protect, DWORD high, DWORD low,
                                 const wchar_t *name);
LPVOID WINAPI MapViewOfFile(HANDLE mapping, DWORD access, DWORD high, DWORD low, SIZE_T bytes);
BOOL WINAPI UnmapViewOfFile(const void *data);
BOOL WINAPI QueryPerformanceCounter(LARGE_INTEGER *ticks);
BOOL WINAPI QueryPerformanceFrequency(LARGE_INTEGER *rate);
BOOL WINAPI MoveFileExW(const wchar_t *from, const wchar_t *to, DWORD flags);
int WINAPI MultiByteToWideChar(unsigned page, DWORD flags, const char *text, int n, wchar_t *to, int room);
#define INVALID_HANDLE_VALUE ((HANDLE)(ptrdiff_t)-1)
#define GENERIC_READ 0x80000000ul
#define FILE_SHARE_READ 1
#define OPEN_EXISTING 3
#define PAGE_WRITECOPY 8
#define FILE_MAP_COPY 1
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

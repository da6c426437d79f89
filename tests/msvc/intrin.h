#ifndef STUB_INTRIN_H
#define STUB_INTRIN_H
#ifdef __cplusplus
extern "C" {
#endif
long _InterlockedExchange(long volatile *target, long value);
long _InterlockedExchangeAdd(long volatile *addend, long value);
__int64 _InterlockedCompareExchange64(__int64 volatile *destination, __int64 exchange, __int64 comparand);
void *_InterlockedExchangePointer(void *volatile *target, void *value);
void *_InterlockedCompareExchangePointer(void *volatile *destination, void *exchange, void *comparand);
void _ReadWriteBarrier(void);
void __cpuid(int info[4], int leaf);
void __cpuidex(int info[4], int leaf, int subleaf);
#ifdef __cplusplus
}
#endif
#endif

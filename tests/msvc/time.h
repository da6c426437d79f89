#ifndef STUB_TIME_H
#define STUB_TIME_H
#ifdef __cplusplus
extern "C" {
#endif
typedef __int64 time_t;
typedef long clock_t;
#define CLOCKS_PER_SEC ((clock_t)1000)
#define TIME_UTC 1
struct timespec { time_t tv_sec; long tv_nsec; };
time_t time(time_t *now);
clock_t clock(void);
int timespec_get(struct timespec *to, int base);
#ifdef __cplusplus
}
#endif
#endif

#ifndef STUB_LOCALE_H
#define STUB_LOCALE_H
#ifdef __cplusplus
extern "C" {
#endif
struct lconv { char *decimal_point, *thousands_sep; };
struct lconv *localeconv(void);
#ifdef __cplusplus
}
#endif
#endif

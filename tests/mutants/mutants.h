// mutants.h - which mutant runs, and which were met; before the headers that mutate.awk made
#ifndef TESTS_MUTANTS_H
#define TESTS_MUTANTS_H
#ifdef __cplusplus
extern "C" {
#endif
enum { MOST_MUTANTS = 4096 };
extern int tensor__mutant;              // from the environment: MUTANT, -1 = none
extern unsigned char tensor__met[MOST_MUTANTS];
#ifdef __cplusplus
}
#endif
#define TENSOR__MUTANT(n) (tensor__met[n] = 1, tensor__mutant == (n))
#endif

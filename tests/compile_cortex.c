// compile_cortex.c - what compile_portable.c needs on a Cortex-M7: what comes before main, and newlib's calls
//
// tests/portable.sh links it for the emulator's board mps2-an500.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

extern uint32_t stack_end[], data_from[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(int argc, char **argv);
void begin(void);
int _write(int file, const char *text, int n);
void *_sbrk(ptrdiff_t n);

// Semihosting: 3 writes a character, 0x18 ends the program.
static void call_debugger(uint32_t what, uint32_t with) {
    register uint32_t r0 __asm__("r0") = what;
    register uint32_t r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

int _write(int file, const char *text, int n) {
    (void)file;
    for (int i = 0; i < n; i++) { call_debugger(3, (uint32_t)(text + i)); }
    return n;
}

// The heap grows towards the stack, for which 64 KB are left.
void *_sbrk(ptrdiff_t n) {
    static char *end = (char *)bss_end;
    char *begin_of_block = end;
    if ((char *)stack_end - 65536 - end < n) { return (void *)-1; }
    end += n;
    return begin_of_block;
}

void begin(void) {
    static char name[] = "portable", one[] = "1", parts[5][5] = {"mlp", "cnn", "lstm", "gpt", "ops"};
    char *arguments[] = {name, one, parts[0], parts[1], parts[2], parts[3], parts[4], NULL};
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;             // the processor's unit for floats
    for (uint32_t *to = data_begin, *from = data_from; to < data_end;) { *to++ = *from++; }
    for (uint32_t *to = bss_begin; to < bss_end;) { *to++ = 0; }
    int status = main(7, arguments);
    fflush(stdout);
    call_debugger(0x18, status == 0 ? 0x20026 : 0x20023);
    for (;;) {}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[2])(void) = {
    (void (*)(void))stack_end, begin};

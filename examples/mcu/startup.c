// startup.c - what a Cortex-M4 needs before main, and two calls of the debugger: a line of text, the end
#include <stddef.h>
#include <stdint.h>

extern uint32_t stack_begin[], stack_end[], data_from[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(void);
void say(const char *text);
unsigned stack_used(void);
void begin(void);

enum { PAINT = 0x5AC5AC5A };

// Semihosting: 4 writes a text that ends in NUL, 0x18 ends the program.
static void call_debugger(uint32_t what, uint32_t with) {
    register uint32_t r0 __asm__("r0") = what;
    register uint32_t r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void say(const char *text) { call_debugger(4, (uint32_t)text); }

// Bytes of stack that were ever written.
unsigned stack_used(void) {
    const volatile uint32_t *p = stack_begin;
    while (p < stack_end && *p == PAINT) { p++; }
    return (unsigned)(stack_end - p) * 4;
}

void begin(void) {
    uint32_t *top;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;             // the processor's unit for floats
    for (uint32_t *to = data_begin, *from = data_from; to < data_end;) { *to++ = *from++; }
    for (uint32_t *to = bss_begin; to < bss_end;) { *to++ = 0; }
    for (volatile uint32_t *to = stack_begin; to < top;) { *to++ = PAINT; }
    call_debugger(0x18, main() == 0 ? 0x20026 : 0x20023);
    for (;;) {}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[2])(void) = {
    (void (*)(void))stack_end, begin};

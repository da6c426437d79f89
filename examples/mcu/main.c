// main.c - a device trains: XOR from the exported step of examples/export_step.c, begun anew
//
// It knows nothing of tensor.h: xor_step.c is all that is there of it. The last line of what it says is the
// sum of the bits of all losses, which is the same on every processor.
#include <stdint.h>

void xor_step_init(void);
int xor_step_step(const float *in_x, const float *in_y, float *out_loss, const double *rates);
void say(const char *text);                     // startup.c; on a computer, stdio

static const float inputs[8] = {0, 0, 0, 1, 1, 0, 1, 1}, labels[4] = {0, 1, 1, 0};

// The text of a number of up to 8 hexadecimal digits.
static const char *digits(uint32_t value) {
    static char text[10];
    for (int i = 0; i < 8; i++) { text[i] = "0123456789abcdef"[value >> (28 - 4 * i) & 15]; }
    text[8] = '\n';
    return text;
}

int main(void) {
    const double rates[1] = {0.5};
    float first = 0, loss = 0;
    uint32_t sum = 0;
    xor_step_init();
    for (int i = 0; i < 200; i++) {
        union {
            float f;
            uint32_t bits;
        } u;
        if (xor_step_step(inputs, labels, &loss, rates) != 0) { return 1; }
        if (i == 0) { first = loss; }
        u.f = loss;
        sum = sum * 31 + u.bits;
    }
    say(loss < 0.5f * first ? "the loss fell\n" : "the loss did not fall\n");
    say(digits(sum));
    return !(loss < 0.5f * first);
}

// web.h - what the demos of the page that trains have in common
//
// The page gives each demo an instance of the module of its own, so that nothing here is ever freed:
// a new start is a new instance. The page calls start, then run in every frame; it draws what paint has
// left in web_pixels and web_numbers.
#ifndef WEB_H
#define WEB_H

#include "tensor_nn.h"

#include <math.h>
#include <string.h>

// The page can call what is marked so.
#define WEB_EXPORT(name) __attribute__((export_name(#name)))

typedef struct web_demo_t {
    void (*start)(void);      // makes data, network and optimizer
    double (*step)(void);     // a little training   -> loss; NaN if there is none to show yet
    int (*done)(void);        // 1: there is nothing more to learn
    void (*paint)(void);      // fills web_pixels and web_numbers
    void (*input)(double x);  // what the user did; or NULL
    void (*play)(void);       // one frame after the training; or NULL
} web_demo_t;

enum { WEB_SIDE = 96, WEB_AREA = WEB_SIDE * WEB_SIDE, WEB_NUMBERS = 4096 };

static unsigned char web_pixels[2][WEB_AREA][4];      // two pictures: red, green, blue, opacity
static float web_numbers[WEB_NUMBERS];                // what they are is said by each demo
static int web_steps;                                 // done since the start

static unsigned char web_byte(double share) {
    return (unsigned char)(255 * fmin(fmax(share, 0), 1) + 0.5);
}

#endif

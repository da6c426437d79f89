// raylib.c - draws nothing and looks at what it is given, so that examples/engine/leaves.c runs where raylib is not
//
// NO_SCREEN=1: no window opens. The exit status is 1 if a dot or a line is far outside of the window, or few are drawn.
#include <raylib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int ready, side, frames, dots, outside, level;

void SetTraceLogLevel(int to) { level = to; }

void InitWindow(int width, int height, const char *title) {
    (void)title;
    side = width > height ? width : height;
    ready = getenv("NO_SCREEN") == NULL;
    if (!ready && level < LOG_NONE) { fprintf(stderr, "WARNING: GLFW: Failed to initialize GLFW\n"); }
}

_Bool IsWindowReady(void) { return ready != 0; }
_Bool WindowShouldClose(void) { return !ready; }

void CloseWindow(void) {
    if (outside || dots < 1000 * frames) {
        fprintf(stderr, "%d dots in %d frames, %d of them outside\n", dots, frames, outside);
        exit(1);
    }
}

void SetTargetFPS(int fps) { (void)fps; }
double GetTime(void) { return (double)clock() / CLOCKS_PER_SEC; }

Vector2 GetMousePosition(void) {
    Vector2 middle = {(float)side / 2, (float)side / 2};
    return middle;
}

void BeginDrawing(void) { }
void EndDrawing(void) { frames++; }
void ClearBackground(Color color) { (void)color; }

void DrawLine(int x, int y, int to_x, int to_y, Color color) {
    (void)color;
    outside += abs(to_x - x) > side || abs(to_y - y) > side;
}

void DrawCircle(int x, int y, float radius, Color color) {
    (void)radius, (void)color;
    dots++;
    outside += x < -side || x > 2 * side || y < -side || y > 2 * side;
}

void DrawText(const char *text, int x, int y, int size, Color color) {
    (void)text, (void)x, (void)y, (void)size, (void)color;
}

const char *TextFormat(const char *text, ...) {
    static char line[200];
    va_list list;
    va_start(list, text);
    (void)vsnprintf(line, sizeof line, text, list);
    va_end(list);
    return line;
}

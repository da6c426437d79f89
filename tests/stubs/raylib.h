// raylib.h - the few declarations of raylib that examples/engine/leaves.c uses; raylib.c beside it runs it without a screen
#ifndef STUB_RAYLIB_H
#define STUB_RAYLIB_H
typedef struct Vector2 { float x, y; } Vector2;
typedef struct Color { unsigned char r, g, b, a; } Color;
#define RAYWHITE (Color){245, 245, 245, 255}
#define DARKGREEN (Color){0, 117, 44, 255}
#define GRAY (Color){130, 130, 130, 255}
enum { LOG_NONE = 7 };
void SetTraceLogLevel(int level);
void InitWindow(int width, int height, const char *title);
_Bool IsWindowReady(void);
_Bool WindowShouldClose(void);
void CloseWindow(void);
void SetTargetFPS(int fps);
double GetTime(void);
Vector2 GetMousePosition(void);
void BeginDrawing(void);
void EndDrawing(void);
void ClearBackground(Color color);
void DrawLine(int x, int y, int to_x, int to_y, Color color);
void DrawCircle(int x, int y, float radius, Color color);
void DrawText(const char *text, int x, int y, int size, Color color);
const char *TextFormat(const char *text, ...);
#endif

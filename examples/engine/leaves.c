// leaves.c - raylib: a thousand leaves in a wind that a network learns while one watches
//
// The mouse is a fan: the wind blows away from it and turns round it. The network sees samples of that wind,
// a batch or more a frame, and the leaves see only the network. Move the fan, and the leaves go astray until
// the network has learnt again.
//
// Build: make lib
//        cc -O2 -I. examples/engine/leaves.c build/libtensor.a `pkg-config --libs raylib` -lm -pthread
// Output: a window; FRAMES=100 closes it after as many frames and prints
//   100 frames, loss 0.0..
// Without a screen it says so and ends with status 1.
#include "tensor_nn.h"
#define KIT_SETTING_IMPLEMENTATION
#include "../kit/setting.h"

#include <raylib.h>
#include <stdio.h>

enum { LEAVES = 1000, SIDE = 800, BATCH = 256 };

// [N, 2] places in -1..1 -> [N, 2]: away from the fan and round it, less with the distance.
static tensor_t *wind_at(tensor_t *place, float x, float y) {
    float at[2] = {x, y};
    float turn[4] = {1, 2, -2, 1};
    tensor_t *away = tensor_sub(place, tensor_from(at, TENSOR_F32, 2));
    tensor_t *wind = tensor_matmul(away, tensor_from(turn, TENSOR_F32, 2, 2));
    tensor_t *square = tensor_sum_dim(tensor_square(away), 1, 1);
    return tensor_div(wind, tensor_add_scalar(tensor_mul_scalar(square, 4), 0.5));
}

static tensor_t *anywhere(int64_t n) {
    return tensor_sub_scalar(tensor_mul_scalar(tensor_rand(n, 2), 2), 1);
}

int main(void) {
    int frames = kit_setting("FRAMES", 0, 0, 1000000), frame = 0;
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    double loss = 0;
    SetTraceLogLevel(LOG_NONE);         // raylib's own lines: many, and several for one trouble
    InitWindow(SIDE, SIDE, "leaves");
    if (!IsWindowReady()) {
        fprintf(stderr, "leaves: there is no screen to open a window on\n");
        return 1;
    }
    nn_module_t *net =
        nn_sequential(nn_linear(2, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 2));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.005);
    tensor_t *leaves = tensor_keep(anywhere(LEAVES));
    SetTargetFPS(60);
    while (!WindowShouldClose() && (frames == 0 || frame < frames) && tensor_ok()) {
        tensor_scope_t scope = tensor_scope_begin();
        Vector2 mouse = GetMousePosition();
        float x = mouse.x / SIDE * 2 - 1, y = mouse.y / SIDE * 2 - 1;
        double until = GetTime() + 0.004;
        do {
            tensor_t *place = anywhere(BATCH);
            tensor_t *error = tensor_mse_loss(nn_forward(net, place), wind_at(place, x, y));
            nn_zero_grad(opt);
            tensor_backward(error);
            nn_step(opt);
            loss = tensor_item(error);
        } while (GetTime() < until);
        tensor_scope_t quiet = tensor_scope_begin_no_grad();
        tensor_t *wind = nn_forward(net, leaves);
        tensor_t *moved = tensor_add(leaves, tensor_mul_scalar(wind, 1.0 / 60));
        // A leaf that left the window, and one in a hundred of the others, falls anew.
        tensor_t *far = tensor_gt_scalar(tensor_amax_dim(tensor_abs(moved), 1, 1), 1);
        tensor_t *old = tensor_lt_scalar(tensor_rand(LEAVES, 1), 0.01);
        tensor_set(&leaves, tensor_where(tensor_logical_or(far, old), anywhere(LEAVES), moved));
        wind = tensor_scope_return(quiet, wind);
        const float *p = (const float *)tensor_data(leaves);
        const float *w = (const float *)tensor_data(wind);
        BeginDrawing();
        ClearBackground(RAYWHITE);
        for (int i = 0; i < 2 * LEAVES && p && w; i += 2) {
            int px = (int)((p[i] + 1) * SIDE / 2), py = (int)((p[i + 1] + 1) * SIDE / 2);
            DrawLine(px, py, px + (int)(w[i] * 20), py + (int)(w[i + 1] * 20), GRAY);
            DrawCircle(px, py, 3, DARKGREEN);
        }
        DrawText(TextFormat("loss %.4f", loss), 10, 10, 20, GRAY);
        EndDrawing();
        tensor_scope_end(scope);
        frame++;
    }
    CloseWindow();
    printf("%d frames, loss %.4f\n", frame, loss);
    tensor_free(leaves);
    if (tensor_shutdown()) { return 1; }        // the library has said why
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "leaves: cannot write to stdout\n");
        return 1;
    }
    return 0;
}

// frame.cpp - a game engine's frame loop in which a network thinks and learns
//
// The library lives in the engine's memory (an allocator with a budget) and runs on the engine's job system
// (the hook parallel_for). Training is cut into slices, a small batch each; a frame takes as many as its
// budget of time allows, and after eight slices the optimizer steps. The network learns the wind of a map,
// and a thousand leaves ask it every frame where it blows.
//
// Build: make lib && c++ -std=c++20 -O2 -I. examples/engine/frame.cpp build/libtensor.a -lm -pthread -o frame
// Output (FRAMES=300 ./frame; it runs at 60 frames a second):
//   300 frames, 5130 slices, 641 steps, loss 0.5109 -> 0.0004
//   longest frame 9.4 ms of 16.7, 1.9 MB of 64 at most, 0 allocations after frame 60, 0 bytes left
#include "engine.hpp"
#include "tensor_nn.h"
#define KIT_SETTING_IMPLEMENTATION
#include "../kit/setting.h"

#include <chrono>
#include <cstdio>

using Clock = std::chrono::steady_clock;

static double milliseconds(Clock::time_point since) {
    return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// ---- the game ----

static tensor_t *wind_at(tensor_t *place) {     // [N, 2] -> [N, 2]
    tensor_t *x = tensor_narrow(place, 1, 0, 1), *y = tensor_narrow(place, 1, 1, 1);
    return tensor_cat(1, tensor_sin(tensor_mul_scalar(y, 3)), tensor_cos(tensor_mul_scalar(x, 3)));
}

// One slice: a batch's gradient on top of those before it.   -> its loss
static double slice(nn_module_t *net) {
    tensor_scope_guard scope;
    tensor_t *place = tensor_sub_scalar(tensor_mul_scalar(tensor_rand(128, 2), 2), 1);
    tensor_t *loss = tensor_mse_loss(nn_forward(net, place), wind_at(place));
    tensor_backward(tensor_div_scalar(loss, 8));
    return tensor_item(loss);
}

int main() {
    const int frames = kit_setting("FRAMES", 300, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    Memory memory;
    tensor_allocator_t allocator = {Memory::alloc, Memory::free, &memory};
    if (tensor_set_allocator(&allocator)) { return 1; }
    Jobs jobs(3);
    tensor_set_parallel_for(Jobs::parallel_for, &jobs, 4);
    tensor_manual_seed(7);
    nn_module_t *net =
        nn_sequential(nn_linear(2, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 2));
    nn_optimizer_t *opt = nn_adam(net, {.lr = 0.005});
    tensor_ref leaves = tensor_sub_scalar(tensor_mul_scalar(tensor_rand(1000, 2), 2), 1);

    int slices = 0, steps = 0;
    double first = 0, last = 0, sum = 0, longest = 0;
    std::size_t calls = 0;
    auto next = Clock::now();
    for (int frame = 0; frame < frames && tensor_ok(); frame++) {
        if (frame == 60) { calls = memory.calls; }
        auto begin = Clock::now();
        {
            // The leaves blow where the network thinks.
            tensor_scope_guard scope(tensor_scope_begin_no_grad());
            tensor_t *moved = tensor_add(leaves, tensor_mul_scalar(nn_forward(net, leaves), 1.0 / 60));
            leaves = tensor_clamp(moved, -1, 1);
        }
        // A slice that began ends: the budget leaves room for it. One a frame at least.
        do {
            sum += slice(net);
            if (++slices % 8 == 0) {
                nn_step(opt);
                nn_zero_grad(opt);
                last = sum / 8;
                first = steps++ ? first : last;
                sum = 0;
            }
        } while (milliseconds(begin) < 4);
        if (frame > 0 && milliseconds(begin) > longest) { longest = milliseconds(begin); }
        next += std::chrono::microseconds(16667);
        std::this_thread::sleep_until(next);
    }
    std::printf("%d frames, %d slices, %d steps, loss %.4f -> %.4f\n", frames, slices, steps, first, last);
    calls = frames > 60 ? memory.calls - calls : 0;
    leaves = tensor_ref();
    tensor_set_parallel_for(nullptr, nullptr, 1);
    int code = tensor_shutdown();
    std::printf("longest frame %.1f ms of 16.7, %.1f MB of 64 at most, ", longest,
                static_cast<double>(memory.peak) / (1 << 20));
    std::printf("%zu allocations after frame 60, %zu bytes left\n", calls, memory.used.load());
    if (std::fflush(stdout) || std::ferror(stdout)) {
        std::fputs("frame: cannot write to stdout\n", stderr);
        return 1;
    }
    return code != 0;
}

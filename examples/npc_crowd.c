// npc_crowd.c - 1,000 agents think and learn inside a 60 Hz loop
//
// Each agent has a place of its own to go to and must not run through the pillar in the middle. One network
// steers all: one batch per frame. In the same frame it learns, through a short simulated future of 64
// agents, which is differentiable; so the crowd is clumsy at first and gets better while one watches. Halfway
// all places jump to another figure.
//
// Build: make build/npc_crowd && build/npc_crowd [picture.png]          (STEPS=900 frames)
// Output, and the crowd at six moments:
//   900 frames, loss 0.0000, frame 0.79 ms, 99 of 100 below 1.21 ms (of 16.7), 0 allocations after frame 100
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { AGENTS = 1000, PUPILS = 64, FUTURE = 16, MAX_FRAMES = 100000 };
static const double tick = 1.0 / 15, pillar = 0.35, strongest = 3;

// place, speed, goal [N, 2] -> acceleration [N, 2]
static tensor_t *steer(nn_module_t *net, tensor_t *place, tensor_t *speed, tensor_t *goal) {
    tensor_t *input = tensor_cat(1, tensor_sub(goal, place), speed, place);
    return tensor_mul_scalar(tensor_tanh(nn_forward(net, input)), strongest);
}

static void move(tensor_t **place, tensor_t **speed, tensor_t *push) {
    *speed = tensor_add(tensor_mul_scalar(*speed, 0.96), tensor_mul_scalar(push, tick));
    *place = tensor_add(*place, tensor_mul_scalar(*speed, tick));
}

// Mean cost of the next FUTURE ticks of some agents: squared distance to the goal, haste, the pillar.
static tensor_t *future_of(nn_module_t *net, tensor_t *place, tensor_t *speed, tensor_t *goal) {
    tensor_t *cost = tensor_scalar(0, TENSOR_F32);
    for (int k = 0; k < FUTURE; k++) {
        move(&place, &speed, steer(net, place, speed, goal));
        tensor_t *far = tensor_sum_dim(tensor_square(tensor_sub(goal, place)), 1, 0);
        tensor_t *middle = tensor_sum_dim(tensor_square(place), 1, 0);
        tensor_t *hit = tensor_relu(tensor_rsub_scalar(middle, pillar * pillar * 1.7));
        tensor_t *haste = tensor_mul_scalar(tensor_sum_dim(tensor_square(speed), 1, 0), 0.02);
        tensor_t *sum = tensor_add(tensor_add(far, tensor_mul_scalar(hit, 12)), haste);
        cost = tensor_add(cost, tensor_mean(sum));
    }
    return tensor_mul_scalar(cost, 1.0 / FUTURE);
}

// Agent i's place in a figure: 0 = two rings, 1 = a star.
static tensor_t *figure(int which) {
    static float xy[AGENTS][2];
    for (int i = 0; i < AGENTS; i++) {
        double angle = 6.28318531 * 7 * i / AGENTS, radius = i % 2 ? 1.5 : 1.0;
        if (which == 1) { radius = 1.15 + 0.45 * cos(5 * angle); }
        xy[i][0] = (float)(radius * cos(angle));
        xy[i][1] = (float)(radius * sin(angle));
    }
    return tensor_from(xy, TENSOR_F32, AGENTS, 2);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double ms[MAX_FRAMES];
    int frames = kit_setting("STEPS", 900, 1, MAX_FRAMES);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    frames = frames < 4 ? 4 : frames;
    tensor_manual_seed(1);
    nn_module_t *net = nn_sequential(nn_linear(6, 64), nn_relu(), nn_linear(64, 64), nn_relu(),
                                     nn_linear(64, 2));
    nn_optimizer_t *opt = nn_adam(net, .lr = 2e-3);
    tensor_t *place = tensor_keep(tensor_mul_scalar(tensor_randn(AGENTS, 2), 0.8));
    tensor_t *speed = tensor_keep(tensor_zeros(AGENTS, 2)), *goal = tensor_keep(figure(0));
    tensor_t *star = figure(1);
    double loss_now = 0;
    uint64_t allocs = 0;
    plot_t *p = plot_new(1320, 290);
    tensor_scope_t scope = tensor_scope_begin();
    for (int frame = 0; frame < frames && tensor_ok(); frame++, tensor_scope_reset(scope)) {
        if (frame == frames / 2) { tensor_copy_(goal, star); }
        if (frame == 100) { allocs = tensor_memory_stats().allocs; }
        clock_t begin = clock();
        tensor_t *who = tensor_randint(0, AGENTS, PUPILS);                // what some of them will meet
        tensor_t *there = tensor_index_select(place, 0, who), *fast = tensor_index_select(speed, 0, who);
        tensor_t *loss = future_of(net, there, fast, tensor_index_select(goal, 0, who));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_clip_grad_norm(opt, 1);
        nn_step(opt);

        tensor_scope_t thinking = tensor_scope_begin_no_grad();           // what all of them do
        tensor_t *next = place, *faster = speed;
        move(&next, &faster, steer(net, place, speed, goal));
        tensor_set(&place, next);
        tensor_set(&speed, faster);
        tensor_scope_end(thinking);
        loss_now = tensor_item(loss);
        ms[frame] = 1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC;
        int late = frame - frames / 2, shown = frame == 0 || frame == frames / 30 || frame == frames / 9;
        if (shown || late == -1 || late == frames / 75 || frame == frames - 1) {
            uint64_t before = tensor_memory_stats().allocs;
            char title[64];
            (void)snprintf(title, sizeof title, "frame %d", frame + 1);
            plot_panel(p, title, NULL, NULL);
            plot_scatter(p, NULL, tensor_select(place, 1, 0), tensor_select(place, 1, 1), NULL);
            if (frame >= 100) { allocs += tensor_memory_stats().allocs - before; }
        }
    }
    tensor_scope_end(scope);
    uint64_t later = frames > 100 ? tensor_memory_stats().allocs - allocs : 0;
    qsort(ms, (size_t)frames, sizeof ms[0], by_size);
    char text[200];
    (void)snprintf(text, sizeof text,
                   "%d frames, loss %.4f, frame %.2f ms, 99 of 100 below %.2f ms (of 16.7), %d allocations "
                   "after frame 100", frames, loss_now, ms[frames / 2], ms[frames * 99 / 100], (int)later);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "npc_crowd: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/npc_crowd.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

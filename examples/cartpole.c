// cartpole.c - a pole learns to stand on a cart, by PPO; at the end it is drawn in the terminal
//
// The cart is Gymnasium's CartPole-v1: an episode ends when the pole leans 12 degrees, the cart leaves the
// track, or after 500 ticks; solved is a mean of 475 ticks over 100 episodes. 32 carts run at once.
//
// Build: make build/cartpole && build/cartpole [picture.svg]   (STEPS=250 at most, SEED=3, SHOW=1 animates)
// Output, and the learning curve:
//   solved after 80 updates, 163840 ticks, 1.07 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_RL_IMPLEMENTATION
#include "kit/rl.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { CARTS = 32, TICKS = 64, SAMPLES = CARTS * TICKS, LIMIT = 500, EPOCHS = 6, BATCH = 512, RECENT = 100 };

typedef struct cart_t { float x, dx, angle, dangle; } cart_t;

static float chance(void) {
    return (float)tensor_item(tensor_rand(1)) * 0.1f - 0.05f;
}

static cart_t new_cart(void) {
    cart_t c = {chance(), chance(), chance(), chance()};
    return c;
}

// One tick of 20 ms.   -> 1 if the pole has fallen or the cart is gone
static int push(cart_t *c, int right) {
    double force = right ? 10 : -10, angle = (double)c->angle, spin = (double)c->dangle;
    double sine = sin(angle), cosine = cos(angle);
    double temp = (force + 0.05 * spin * spin * sine) / 1.1;
    double turn = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / 1.1));
    c->x += 0.02f * c->dx;
    c->dx += (float)(0.02 * (temp - 0.05 * turn * cosine / 1.1));
    c->angle += 0.02f * c->dangle;
    c->dangle += (float)(0.02 * turn);
    return c->x < -2.4f || c->x > 2.4f || c->angle < -0.20944f || c->angle > 0.20944f;
}

static void draw(const cart_t *c, int tick) {
    char text[8][62];
    int at = 30 + (int)(c->x * 9);          // the track is 43 columns, so that the pole stays inside
    for (int row = 0; row < 8; row++) { (void)snprintf(text[row], sizeof text[row], "%60s", ""); }
    for (int row = 0; row < 7; row++) {
        text[row][at + (int)((7 - row) * 2.2 * sin((double)c->angle) + 0.5)] = '|';
    }
    memset(text[7] + at - 3, '#', 7);
    for (int row = 0; row < 8; row++) { printf("%s\n", text[row]); }
    printf("----------------------------- tick %-3d ---------------------\n", tick);
}

static nn_module_t *make_net(int64_t out) {
    return nn_sequential(nn_linear(4, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, out));
}

int main(int argc, char **argv) {
    static float state[TICKS + 1][CARTS][4], ended[TICKS][CARTS];
    static int64_t action[TICKS][CARTS];
    int updates = kit_setting("STEPS", 250, 1, 100000), update = 0, age[CARTS] = {0}, finished = 0;
    double length[RECENT] = {0}, mean = 0;
    cart_t cart[CARTS];
    tensor_manual_seed((uint64_t)kit_setting("SEED", 3, 0, 2147483647));
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    for (int i = 0; i < CARTS; i++) { cart[i] = new_cart(); }
    nn_module_t *policy = make_net(2), *critic = make_net(1), *both = nn_sequential(policy, critic);
    nn_optimizer_t *opt = nn_adam(both, .lr = 2e-3);
    plot_t *p = plot_new(700, 320);
    plot_panel(p, "ticks that the last 100 episodes lasted", "update", NULL);
    clock_t begin = clock();
    tensor_scope_t scope = tensor_scope_begin();
    for (; update < updates && mean < 475 && tensor_ok(); update++, tensor_scope_reset(scope)) {
        for (int t = 0; t <= TICKS; t++) {
            memcpy(state[t], cart, sizeof cart);
            if (t == TICKS) { break; }
            tensor_scope_t acting = tensor_scope_begin_no_grad();
            tensor_t *seen = tensor_from(state[t], TENSOR_F32, CARTS, 4);
            tensor_t *choice = kit_sample(kit_categorical(nn_forward(policy, seen)));
            tensor_copy_out(choice, action[t], sizeof action[t]);
            for (int i = 0; i < CARTS; i++) {
                int fallen = push(&cart[i], (int)action[t][i]), over = fallen || ++age[i] == LIMIT;
                ended[t][i] = over ? 1.0f : 0.0f;
                if (!over) { continue; }
                length[finished++ % RECENT] = age[i];
                age[i] = 0;
                cart[i] = new_cart();
            }
            tensor_scope_end(acting);
        }
        // Values of all states, then generalised advantages; every tick is worth 1.
        tensor_t *x = tensor_from(state, TENSOR_F32, SAMPLES + CARTS, 4);
        tensor_t *values = tensor_reshape(tensor_detach(nn_forward(critic, x)), TICKS + 1, CARTS);
        tensor_t *done = tensor_from(ended, TENSOR_F32, TICKS, CARTS);
        kit_advantages_t gain = kit_gae(tensor_ones(TICKS, CARTS), values, done, 0.99, 0.95);
        x = tensor_narrow(x, 0, 0, SAMPLES);
        tensor_t *did = tensor_from(action, TENSOR_I64, SAMPLES);
        tensor_t *better = tensor_reshape(gain.advantages, SAMPLES);
        tensor_t *wanted = tensor_reshape(gain.returns, SAMPLES, 1);
        better = tensor_div(tensor_sub(better, tensor_mean(better)), tensor_std(better, 1));
        tensor_t *before = tensor_detach(kit_log_prob(kit_categorical(nn_forward(policy, x)), did));
        for (int k = 0; k < EPOCHS * SAMPLES / BATCH; k++) {
            tensor_scope_t learning = tensor_scope_begin();
            tensor_t *pick = tensor_randint(0, SAMPLES, BATCH), *seen = tensor_index_select(x, 0, pick);
            kit_dist_t now = kit_categorical(nn_forward(policy, seen));
            tensor_t *mine = kit_log_prob(now, tensor_index_select(did, 0, pick));
            tensor_t *ratio = tensor_exp(tensor_sub(mine, tensor_index_select(before, 0, pick)));
            tensor_t *worth = tensor_index_select(better, 0, pick);
            tensor_t *clipped = tensor_mul(tensor_clamp(ratio, 0.8, 1.2), worth);
            tensor_t *least = tensor_minimum(tensor_mul(ratio, worth), clipped);
            tensor_t *miss = tensor_mse_loss(nn_forward(critic, seen), tensor_index_select(wanted, 0, pick));
            tensor_t *loss = tensor_sub(tensor_mul_scalar(miss, 0.01), tensor_mean(least));
            nn_zero_grad(opt);
            tensor_backward(tensor_sub(loss, tensor_mul_scalar(tensor_mean(kit_entropy(now)), 0.01)));
            nn_clip_grad_norm(opt, 0.5);
            nn_step(opt);
            tensor_scope_end(learning);
        }
        double sum = 0, counted = finished < RECENT ? finished : RECENT;
        for (int i = 0; i < counted; i++) { sum += length[i]; }
        plot_point(p, "", update + 1, counted > 0 ? sum / counted : 0);
        mean = finished < RECENT ? 0 : sum / RECENT;
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    char text[160];
    (void)snprintf(text, sizeof text, "%s after %d updates, %d ticks, %.2f s of one core",
                   mean >= 475 ? "solved" : "not solved", update, update * SAMPLES, seconds);
    scope = tensor_scope_begin_no_grad();
    cart_t last = new_cart();
    for (int tick = 0, fallen = 0; tick <= 200 && !fallen; tick++) {
        if (getenv("SHOW")) { printf("\033[H\033[J"); }
        if (getenv("SHOW") || tick % 100 == 0) { draw(&last, tick); }
        for (clock_t wait = clock(); getenv("SHOW") && clock() - wait < CLOCKS_PER_SEC / 50;) {}
        tensor_t *choice = nn_forward(policy, tensor_from(&last.x, TENSOR_F32, 4));
        fallen = push(&last, (int)tensor_item_i64(tensor_argmax(choice)));
    }
    tensor_scope_end(scope);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "cartpole: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/cartpole.svg");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// cartpole.c - a pole learns to stand on a cart, by trial and error (PPO)
//
// The cart is Gymnasium's CartPole-v1: an episode ends when the pole leans 12 degrees, the cart
// leaves the track, or after 500 ticks of 20 ms. 32 carts run at once; solved is a mean of 475
// ticks over the last 100 episodes.
#include "web.h"

enum { CARTS = 32, TICKS = 64, SAMPLES = CARTS * TICKS, LIMIT = 500, RECENT = 100 };
enum { LESSONS = 24, LESSON = 512 };           // a round's, and samples in each

typedef struct cart_t { float x, dx, angle, dangle; } cart_t;

static cart_t cart[CARTS];
static int age[CARTS], finished, tick, lesson;
static double length[RECENT];                   // ticks of the last episodes
static float seen[TICKS + 1][CARTS][4], going[TICKS][CARTS];
static float gain[TICKS][CARTS], target[TICKS][CARTS];
static int64_t action[TICKS][CARTS];
static tensor_t *states, *did, *before, *better, *wanted;        // of the TICKS just seen
static nn_module_t *policy, *critic;
static nn_optimizer_t *cart_opt;

static cart_t new_cart(void) {
    cart_t c;
    tensor_copy_out(tensor_uniform_(tensor_zeros(4), -0.05, 0.05), &c, sizeof c);
    return c;
}

// One tick: a push of 10 N to the left or right.   -> 1 if the pole has fallen or the cart is gone
static int push(cart_t *c, int right) {
    double force = right ? 10 : -10, angle = (double)c->angle, spin = (double)c->dangle;
    double sine = sin(angle), cosine = cos(angle);
    double pull = (force + 0.05 * spin * spin * sine) / 1.1;
    double turn = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / 1.1));
    c->x += 0.02f * c->dx;
    c->dx += (float)(0.02 * (pull - 0.05 * turn * cosine / 1.1));
    c->angle += 0.02f * c->dangle;
    c->dangle += (float)(0.02 * turn);
    return fabsf(c->x) > 2.4f || fabsf(c->angle) > 0.20944f;
}

static nn_module_t *cart_net(int64_t out) {
    return nn_sequential(nn_linear(4, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(),
                         nn_linear(64, out));
}

static void cart_start(void) {
    policy = cart_net(2);
    critic = cart_net(1);
    cart_opt = nn_adam(nn_sequential(policy, critic), .lr = 2e-3);
    for (int i = 0; i < CARTS; i++) { cart[i] = new_cart(); }
}

// All carts do one tick, by chance as the policy says.
static void drive(void) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    memcpy(seen[tick], cart, sizeof cart);
    tensor_t *logits = nn_forward(policy, tensor_from(cart, TENSOR_F32, CARTS, 4));
    tensor_t *choice = tensor_multinomial(tensor_softmax(logits, 1), 1);
    tensor_copy_out(choice, action[tick], sizeof action[tick]);
    for (int i = 0; i < CARTS; i++) {
        int over = push(&cart[i], (int)action[tick][i]) || age[i] + 1 == LIMIT;
        going[tick][i] = over ? 0 : 1;
        age[i]++;
        if (over) {
            length[finished++ % RECENT] = age[i];
            age[i] = 0;
            cart[i] = new_cart();
        }
    }
    tick++;
    tensor_scope_end(scope);
}

// What was seen becomes a lesson: how much better each push was than the critic thought
// (generalised advantages).
static void look_back(void) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    memcpy(seen[TICKS], cart, sizeof cart);
    tensor_t *all = tensor_from(seen, TENSOR_F32, SAMPLES + CARTS, 4);
    tensor_t *values = nn_forward(critic, all);
    const float *v = tensor_data(values);
    for (int i = SAMPLES - 1; i >= 0; i--) {
        int t = i / CARTS, k = i % CARTS;
        float later = t + 1 < TICKS ? gain[t + 1][k] : 0;
        gain[t][k] = 1 + 0.99f * going[t][k] * (v[i + CARTS] + 0.95f * later) - v[i];
        target[t][k] = gain[t][k] + v[i];
    }
    tensor_t *gains = tensor_from(gain, TENSOR_F32, SAMPLES, 1);
    tensor_set(&better, tensor_div(tensor_sub(gains, tensor_mean(gains)), tensor_std(gains, 1)));
    tensor_set(&states, tensor_from(seen, TENSOR_F32, SAMPLES, 4));
    tensor_set(&wanted, tensor_from(target, TENSOR_F32, SAMPLES, 1));
    tensor_set(&did, tensor_from(action, TENSOR_I64, SAMPLES, 1));
    tensor_set(&before, tensor_gather(tensor_log_softmax(nn_forward(policy, states), 1), 1, did));
    tensor_scope_end(scope);
}

static void learn(void) {
    tensor_t *pick = tensor_randint(0, SAMPLES, LESSON), *x = tensor_index_select(states, 0, pick);
    tensor_t *log_p = tensor_log_softmax(nn_forward(policy, x), 1);
    tensor_t *mine = tensor_gather(log_p, 1, tensor_index_select(did, 0, pick));
    tensor_t *ratio = tensor_exp(tensor_sub(mine, tensor_index_select(before, 0, pick)));
    tensor_t *worth = tensor_index_select(better, 0, pick);
    tensor_t *clipped = tensor_mul(tensor_clamp(ratio, 0.8, 1.2), worth);
    tensor_t *least = tensor_minimum(tensor_mul(ratio, worth), clipped);
    tensor_t *miss = tensor_mse_loss(nn_forward(critic, x), tensor_index_select(wanted, 0, pick));
    tensor_t *sure = tensor_mean(tensor_sum_dim(tensor_mul(tensor_exp(log_p), log_p), 1, 0));
    tensor_t *loss = tensor_sub(tensor_mul_scalar(miss, 0.01), tensor_mean(least));
    nn_zero_grad(cart_opt);
    tensor_backward(tensor_add(loss, tensor_mul_scalar(sure, 0.01)));
    nn_clip_grad_norm(cart_opt, 0.5);
    nn_step(cart_opt);
}

static double mean_length(void) {
    double sum = 0;
    int n = finished < RECENT ? finished : RECENT;
    for (int i = 0; i < n; i++) { sum += length[i]; }
    return n ? sum / n : 0;
}

// 64 steps drive, 24 learn.
//   -> how many seconds the last episodes took; NaN before the first is over
static double cart_step(void) {
    if (tick < TICKS) {
        drive();
    } else {
        if (lesson == 0) { look_back(); }
        learn();
        lesson++;
    }
    if (lesson == LESSONS) { tick = lesson = 0; }
    return finished ? 0.02 * mean_length() : NAN;
}

static int cart_done(void) {
    return finished >= RECENT && mean_length() >= 475;
}

// web_numbers: how many carts, then place and angle of each.
static void cart_paint(void) {
    int n = cart_done() ? 1 : CARTS;
    web_numbers[0] = (float)n;
    for (int i = 0; i < n; i++) {
        web_numbers[1 + 2 * i] = cart[i].x;
        web_numbers[2 + 2 * i] = cart[i].angle;
    }
}

// After the training one cart goes on, and does what the policy likes best.
static void cart_play(void) {
    tensor_t *likes = nn_forward(policy, tensor_from(&cart[0], TENSOR_F32, 4));
    if (push(&cart[0], (int)tensor_item_i64(tensor_argmax(likes)))) { cart[0] = new_cart(); }
}

// The user blows at the pole: x < 0 from the right.
static void cart_input(double x) {
    for (int i = 0; i < CARTS; i++) { cart[i].dangle += x < 0 ? -0.8f : 0.8f; }
}

static const web_demo_t cartpole = {cart_start, cart_step,  cart_done,
                                    cart_paint, cart_input, cart_play};

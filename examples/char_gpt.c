// char_gpt.c - a small GPT learns to write, one character after the other
// It has the size of nanoGPT's for one CPU, and reads TEXT: without it this library's own headers.
// Build: make run        (TEXT=any.txt STEPS=50 RESUME=1 THREADS=2, given to make or as environment)
// Output: a progress bar, losses and a checkpoint every 250 steps, at the end 500 characters of its own.
#include "tensor_nn.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, HEADS = 4, WIDTH = 128, WIDE = 4 * WIDTH, CONTEXT = 64, BATCH = 12 };
enum { TOKENS = BATCH * CONTEXT, STEPS = 2000, WARM_UP = 100, EVERY = 250, MAX_TEXT = 1 << 25 };

typedef struct block_t { nn_module_t base, *qkv, *out, *mlp; } block_t;
typedef struct gpt_t { nn_module_t base, *token, *place, *norm; block_t block[LAYERS]; } gpt_t;
typedef struct job_t {
    int64_t step, steps, cut, end;     // steps done and in all; tokens 0..cut-1 train, the rest is held out
    tensor_t *symbols, *tokens;        // [vocabulary] characters, [end] indices into them
    gpt_t gpt;
    nn_optimizer_t *opt;
} job_t;

// x [B, T, WIDTH] -> the same: attention, then a small network, each added to what came in.
static tensor_t *block_forward(nn_module_t *m, tensor_t *x) {
    block_t *b = (block_t *)m;
    int64_t B = tensor_size(x, 0), T = tensor_size(x, 1);
    tensor_t *h = tensor_reshape(nn_forward(b->qkv, x), B, T, 3, HEADS, WIDTH / HEADS);
    h = tensor_permute(h, 2, 0, 3, 1, 4);                             // [3, B, HEADS, T, WIDTH / HEADS]
    h = tensor_scaled_dot_product_attention(tensor_select(h, 0, 0), tensor_select(h, 0, 1),
                                            tensor_select(h, 0, 2), .is_causal = 1);
    x = tensor_add(x, nn_forward(b->out, tensor_reshape(tensor_transpose(h, 1, 2), B, T, WIDTH)));
    return tensor_add(x, nn_forward(b->mlp, x));
}

// Tokens [B, T] -> logits [B, T, vocabulary]; the output layer is the token table once more.
static tensor_t *gpt_forward(nn_module_t *m, tensor_t *tokens) {
    gpt_t *g = (gpt_t *)m;
    tensor_t *place = tensor_arange(0, (double)tensor_size(tokens, 1), 1, TENSOR_I64);
    tensor_t *x = tensor_add(nn_forward(g->token, tokens), nn_forward(g->place, place));
    for (int i = 0; i < LAYERS; i++) { x = nn_forward(&g->block[i].base, x); }
    return tensor_linear(nn_forward(g->norm, x), nn_get(g->token, "weight"), NULL);
}

static nn_module_t *norm(void) { return nn_layer_norm(WIDTH, .no_bias = 1); }
static nn_module_t *linear(int64_t in, int64_t out) { return nn_linear(in, out, .no_bias = 1); }
static void gpt_init(gpt_t *g, int64_t vocabulary) {
    char name[] = "block0";
    nn_module_init(&g->base, "Gpt", gpt_forward, NULL);
    g->token = nn_child(&g->base, "token", nn_embedding(vocabulary, WIDTH));
    g->place = nn_child(&g->base, "place", nn_embedding(CONTEXT, WIDTH));
    for (block_t *b = g->block; b < g->block + LAYERS; b++, name[5]++) {
        nn_module_init(&b->base, "Block", block_forward, NULL);
        b->qkv = nn_child(&b->base, "qkv", nn_sequential(norm(), linear(WIDTH, 3 * WIDTH)));
        b->out = nn_child(&b->base, "out", linear(WIDTH, WIDTH));
        b->mlp = nn_sequential(norm(), linear(WIDTH, WIDE), nn_gelu(), linear(WIDE, WIDTH));
        nn_child(&b->base, "mlp", b->mlp);
        nn_child(&g->base, name, &b->base);
    }
    g->norm = nn_child(&g->base, "norm", norm());
}

// path NULL: the two headers. -> code
static int job_open(job_t *j, const char *path) {
    static unsigned char text[MAX_TEXT];
    const char *files[] = {path ? path : "tensor.h", "tensor_nn.h"};
    size_t n = 0;
    for (int i = 0; i < (path ? 1 : 2); i++) { n += kit_bytes_of(files[i], text + n, MAX_TEXT - n); }
    if (tensor_ok() && n < 20 * CONTEXT) { kit_refuse(TENSOR_ERR_FORMAT, files[0], "under 1280 bytes"); }
    if (!tensor_ok()) { return tensor_error_code(); }
    j->cut = (j->end = (int64_t)n) / 10 * 9;
    tensor_t *bytes = tensor_to(tensor_from(text, TENSOR_U8, n), TENSOR_I64);
    tensor_t *present = tensor_gt_scalar(tensor_index_add(tensor_zeros(256), 0, bytes, tensor_ones(n)), 0);
    j->symbols = tensor_masked_select(tensor_arange(0, 256, 1, TENSOR_I64), present);
    j->tokens = tensor_index_select(tensor_sub_scalar(tensor_cumsum(present, 0), 1), 0, bytes);
    tensor_manual_seed(1337);
    gpt_init(&j->gpt, tensor_numel(j->symbols));
    j->opt = nn_adamw(&j->gpt.base, .beta2 = 0.99, .weight_decay = 0.1);
    nn_named_list_t list = nn_named_parameters(&j->gpt.base);
    for (const nn_named_t *p = list.item; p < list.item + list.count; p++) {
        int added_up = strstr(p->name, "out.") || strstr(p->name, "mlp.3.");    // 2 LAYERS outputs, as GPT-2
        double deviation = added_up ? 0.02 * 0.35355339 : 0.02;
        if (tensor_ndim(p->tensor) > 1) { nn_init_normal_(p->tensor, 0, deviation); }
        else { nn_optimizer_group(j->opt, &p->tensor, 1, .weight_decay = TENSOR_ZERO); }
    }
    return tensor_error_code();
}

// Cross entropy over the windows that start at start [N, 1]; each character in them predicts the next.
static tensor_t *loss_of(job_t *j, tensor_t *start) {
    tensor_t *at = tensor_flatten(tensor_add(start, tensor_arange(0, CONTEXT, 1, TENSOR_I64)), 0, 1);
    tensor_t *x = tensor_reshape(tensor_index_select(j->tokens, 0, at), -1, CONTEXT);
    tensor_t *y = tensor_index_select(j->tokens, 0, tensor_add_scalar(at, 1));
    return tensor_cross_entropy(tensor_flatten(nn_forward(&j->gpt.base, x), 0, 1), y);
}

static tensor_t *job_step(job_t *j) {
    tensor_t *loss = loss_of(j, tensor_randint(0, j->cut - CONTEXT, BATCH, 1));
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    nn_clip_grad_norm(j->opt, 1.0);
    nn_set_lr(j->opt, nn_lr_cosine_warmup(j->step++, WARM_UP, j->steps, 1e-3, 1e-4));
    nn_step(j->opt);
    return loss;
}

// Mean loss over some 240 windows spread evenly over tokens from..to-1.
static double evaluate(job_t *j, double from, double to) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *start = tensor_arange(from, to - CONTEXT, (to - from) / 240, TENSOR_I64);
    double mean = tensor_item(loss_of(j, tensor_unsqueeze(start, 1)));
    tensor_scope_end(scope);
    return mean;
}

static void write_text(job_t *j, int characters) {
    tensor_t *seen = tensor_keep(tensor_zeros_of(TENSOR_I64, 1, 1));
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (int i = 0; i < characters && tensor_ok(); i++, tensor_scope_reset(scope)) {
        tensor_t *logits = tensor_at(nn_forward(&j->gpt.base, seen), "0, -1");
        tensor_t *next = tensor_multinomial(tensor_softmax(tensor_div_scalar(logits, 0.8), 0), 1);
        putchar((int)tensor_item_i64(tensor_index_select(j->symbols, 0, next)));
        tensor_set(&seen, tensor_at(tensor_cat(1, seen, tensor_unsqueeze(next, 0)), ":, -64:"));
    }
    tensor_scope_end(scope);
    if (puts("") == EOF || fflush(stdout)) { tensor_raise(TENSOR_ERR_IO, "char_gpt: cannot write its text"); }
}
int main(void) {
    static job_t j;
    const char *save = getenv("SAVE") ? getenv("SAVE") : "char_gpt.safetensors";
    tensor_set_num_threads(kit_setting("THREADS", tensor_num_processors(), 1, 1024));
    job_open(&j, getenv("TEXT"));
    if (kit_setting("RESUME", 0, 0, 1)) { nn_load_checkpoint(save, &j.gpt.base, j.opt, &j.step); }
    j.steps = kit_setting("STEPS", STEPS, 1, 100000000);
    int64_t stop = kit_setting("STOP", (int)j.steps, 1, 100000000);
    nn_progress_t bar = nn_progress_begin("tokens", j.steps * TOKENS, j.step * TOKENS);
    tensor_scope_t scope = tensor_scope_begin();
    for (char note[32]; j.step < stop && tensor_ok(); tensor_scope_reset(scope)) {
        snprintf(note, sizeof note, "loss %.3f", tensor_item(job_step(&j)));
        nn_progress(&bar, j.step * TOKENS, note);
        if (j.step % EVERY && j.step != stop) { continue; }
        double train = evaluate(&j, 0, (double)j.cut), held = evaluate(&j, (double)j.cut, (double)j.end);
        printf("\rstep %5d   train %.4f   held out %.4f %40s\n", (int)j.step, train, held, "");
        nn_save_checkpoint(save, &j.gpt.base, j.opt, j.step);
    }
    if (j.step >= j.steps) { write_text(&j, 500); }
    return tensor_shutdown() != 0;
}

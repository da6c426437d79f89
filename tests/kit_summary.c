// kit_summary.c - kit/summary.h: shapes, parameters and multiply-adds are PyTorch's (its flop counter
// counts two for each): nested nets, recurrent nets, attention and modules of a program; the table as text
#include "test.h"

#define KIT_SUMMARY_IMPLEMENTATION
#include "../examples/kit/summary.h"

static const kit_summary_row_t *row_of(const kit_summary_t *s, const char *name) {
    static const kit_summary_row_t none;
    for (int i = 0; s && i < s->rows; i++) {
        if (!strcmp(s->row[i].name, name)) {
            return &s->row[i];
        }
    }
    CHECK_MSG(0, "no row \"%s\"", name);
    return &none;
}

static void is(const kit_summary_t *s, const char *name, const char *kind, int64_t parameters,
               double products) {
    const kit_summary_row_t *row = row_of(s, name);
    CHECK_TEXT(row->kind, kind);
    CHECK_MSG(row->parameters == parameters, "%s: %lld parameters", name, (long long)row->parameters);
    CHECK_MSG(row->multiply_adds == products, "%s: %.0f multiply-adds", name, row->multiply_adds);
}

// with torch.utils.flop_counter.FlopCounterMode() as f: net(torch.randn(2, 3, 16, 16))
// f.get_flop_counts() -> Sequential.0.0 2 * 55296, Sequential.1 2 * 147456, Sequential.3 2 * 40960
// sum(p.numel() for p in net.parameters()) -> 22160
static void images(void) {
    nn_module_t *conv = nn_conv2d(3, 16, 3, .padding = 1, .stride = 2);
    nn_module_t *body = nn_sequential(conv, nn_batch_norm2d(16), nn_relu());
    nn_module_t *up = nn_conv_transpose2d(16, 8, 3, .padding = 1);
    nn_module_t *net = nn_sequential(body, up, nn_flatten(), nn_linear(512, 40));
    nn_requires_grad_(body, 0);
    nn_eval(nn_get_child(body, "1"));
    tensor_t *mean = tensor_clone(nn_get(net, "0.1.running_mean"));
    kit_summary_t *s = kit_summary(net, tensor_randn(2, 3, 16, 16));
    CHECK_OK();
    CHECK(s && s->rows == 8);
    is(s, "", "Sequential", 0, 0);
    is(s, "0", "Sequential", 0, 0);
    is(s, "0.0", "Conv2d", 448, 2 * 16 * 64 * 27);
    is(s, "0.1", "BatchNorm2d", 32, 0);
    is(s, "0.2", "ReLU", 0, 0);
    is(s, "1", "ConvTranspose2d", 16 * 8 * 9 + 8, 2 * 16 * 64 * 72);
    is(s, "3", "Linear", 512 * 40 + 40, 2 * 512 * 40);
    const kit_summary_row_t *row = row_of(s, "0.0");
    CHECK(row->depth == 2 && row->index == 1 && row->calls == 1 && row->ndim == 4 && row->trainable == 0);
    CHECK(row->output[0] == 2 && row->output[1] == 16 && row->output[2] == 8 && row->output[3] == 8);
    CHECK(row->output_bytes == 2 * 16 * 64 * 4);
    CHECK(s->parameters == 22160 && s->trainable == 22160 - 480);
    CHECK(s->multiply_adds == 55296 + 147456 + 40960);
    CHECK(s->input_bytes == 2 * 3 * 256 * 4 && s->parameter_bytes == 4.0 * 22160);
    CHECK(s->buffer_bytes == 128 + 8);
    CHECK(s->output_bytes == 4.0 * (3 * 2048 + 1024 + 1024 + 80));
    // Nothing of the net has changed.
    CHECK(net->training && nn_get_child(net, "3")->training && !nn_get_child(body, "1")->training);
    CHECK(tensor_equal(nn_get(net, "0.1.running_mean"), mean));
    kit_summary_t *again = kit_summary(net, tensor_randn(2, 3, 16, 16));
    CHECK(again && again->multiply_adds == s->multiply_adds && row_of(again, "0.0")->calls == 1);
    kit_summary_free(again);
    kit_summary_free(s);
    nn_free(net);
}

// f.get_flop_counts() of GRU(6, 8) -> 2 * 5040. PyTorch does not count its LSTM: 15 items times 4 gates of 8
// times the features of input and state, in two directions of two layers.
static void recurrent(void) {
    nn_module_t *net = nn_sequential(nn_gru(6, 8)), *lstm = nn_lstm(6, 8, .layers = 2, .bidirectional = 1);
    kit_summary_t *s = kit_summary(net, tensor_randn(5, 3, 6));
    is(s, "0", "GRU", 384, 5040);
    CHECK(row_of(s, "0")->ndim == 3 && row_of(s, "0")->output[0] == 5 && row_of(s, "0")->output[2] == 8);
    kit_summary_free(s);
    s = kit_summary(lstm, tensor_randn(5, 3, 6));
    is(s, "", "LSTM", 2688, 2 * 15 * 32 * (6 + 8) + 2 * 15 * 32 * (16 + 8));
    CHECK(s && s->rows == 1 && s->output_bytes == 4.0 * 5 * 3 * 16);
    kit_summary_free(s);
    nn_free(net);
    nn_free(lstm);
}

// f.get_flop_counts() of TransformerEncoder(TransformerEncoderLayer(16, 4, 32), 2) in training, [7, 3, 16] ->
// layers.0.self_attn addmm 2 * 21504, bmm 2 * 4704; linear1 and linear2 2 * 10752 each; 4448 parameters
static void attention(void) {
    nn_module_t *layer = nn_transformer_encoder_layer(16, 4, .feedforward = 32);
    nn_module_t *net = nn_transformer_encoder(layer, 2, NULL);
    tensor_t *x = tensor_randn(7, 3, 16), *mask = tensor_zeros(7, 7);
    for (int masked = 0; masked < 2; masked++) { // with a mask to add, another kernel does the attention
        kit_summary_t *s = masked ? kit_summary(net, x, mask) : kit_summary(net, x);
        CHECK_OK();
        is(s, "layers.0.self_attn", "MultiheadAttention", 3 * 16 * 16 + 3 * 16, 7 * 3 * 16 * 48 + 4704);
        is(s, "layers.0.self_attn.out_proj", "NonDynamicallyQuantizableLinear", 16 * 16 + 16,
           7 * 3 * 16 * 16);
        is(s, "layers.1.linear1", "Linear", 16 * 32 + 32, 10752);
        is(s, "layers.1.linear2", "Linear", 32 * 16 + 16, 10752);
        CHECK(s && s->parameters == 4448 && s->multiply_adds == 86016 + 9408);
        kit_summary_free(s);
    }
    nn_free(net);
}

// A module of the program that multiplies by itself, calls a child twice, and has one that it never calls.
typedef struct mine_t {
    nn_module_t base;
    nn_module_t *twice;
} mine_t;

static tensor_t *mine_forward(nn_module_t *m, tensor_t *x) {
    mine_t *mine = (mine_t *)(void *)m;
    x = nn_forward(mine->twice, nn_forward(mine->twice, x));
    return tensor_matmul(x, nn_get(m, "weight"));
}

static void of_the_program(void) {
    mine_t mine;
    nn_module_init(&mine.base, "Mine", mine_forward, NULL);
    nn_parameter(&mine.base, "weight", tensor_randn(4, 5));
    mine.twice = nn_child(&mine.base, "twice", nn_linear(4, 4));
    nn_child(&mine.base, "never", nn_linear(2, 3));
    nn_child(&mine.base, "same", mine.twice);
    kit_summary_t *s = kit_summary(&mine.base, tensor_randn(2, 4));
    CHECK_OK();
    is(s, "", "Mine", 20, 2 * 4 * 5);
    is(s, "twice", "Linear", 20, 2 * 2 * 16);
    is(s, "never", "Linear", 9, 0);
    is(s, "same", "Linear", 0, 0);
    CHECK(row_of(s, "twice")->calls == 2 && row_of(s, "never")->calls == 0 && row_of(s, "same")->again);
    CHECK(s && s->parameters == 49 && s->multiply_adds == 40 + 64);
    kit_summary_free(s);
    nn_free(&mine.base);
}

static void text(void) {
    char got[4000], cut[40];
    nn_module_t *net = nn_sequential(nn_linear(1000, 1200), nn_relu());
    kit_summary_t *s = kit_summary(net, tensor_zeros(3, 1000));
    size_t n = kit_summary_text(s, got, sizeof got);
    CHECK(n == strlen(got) && n == kit_summary_text(s, NULL, 0) && n == kit_summary_text(s, cut, sizeof cut));
    CHECK(strlen(cut) == sizeof cut - 1 && strncmp(got, cut, sizeof cut - 1) == 0);
    // clang-format off
    static const char *const lines[] = {
        "\nLayer (type:depth-idx)                Output Shape                  Param #     Mult-Adds         Bytes\n",
        "\nSequential                            [3, 1200]                          --            --        14,400\n",
        "\n  Linear: 1-1                         [3, 1200]                   1,201,200     3,600,000        14,400\n",
        "\n  ReLU: 1-2                           [3, 1200]                          --            --        14,400\n",
        "\nTotal params:                 1,201,200\n", "\nTotal mult-adds:              3,600,000\n",
        "\nForward/backward pass size (MB):       0.06\n", "\nEstimated Total Size (MB):             4.87\n"};
    // clang-format on
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        CHECK_MSG(strstr(got, lines[i]) != NULL, "no line %s in\n%s", lines[i], got);
    }
    CHECK(kit_summary_text(NULL, got, sizeof got) == 0 && got[0] == 0);
    kit_summary_free(s);
    nn_free(net);
}

static void misuse(void) {
    nn_module_t *net = nn_sequential(nn_linear(4, 2));
    CHECK(kit_summary(net, tensor_zeros(3, 5)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "linear");
    CHECK(net->training && nn_get_child(net, "0")->training);
    kit_summary_t *s = kit_summary(net, tensor_zeros(3, 4)); // hooks and profiler of the failure are gone
    CHECK(s && s->multiply_adds == 24 && row_of(s, "0")->calls == 1);
    kit_summary_free(s);
    CHECK(kit_summary(NULL, tensor_zeros(3, 4)) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(kit_summary_n(net, NULL, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "no input");
    kit_summary_free(NULL);
    nn_free(net);
}

int main(void) {
    RUN(images);
    RUN(recurrent);
    RUN(attention);
    RUN(of_the_program);
    RUN(text);
    RUN(misuse);
    return test_report();
}

// gpt2.c - GPT-2 with its published files goes on with a text
//
// Build: make build/models/gpt2 && build/models/gpt2 folder "The meaning of life is" [words [temperature]]
//        folder: model.safetensors, vocab.json and merges.txt of openai-community/gpt2, -medium, -large, -xl
// Output: the text and 40 words more; the same ones always, unless a temperature is given.
#define KIT_GPT2_IMPLEMENTATION
#include "../kit/gpt2.h"
#define KIT_TEXT_IMPLEMENTATION
#include "../kit/text.h"
#define KIT_SETTING_IMPLEMENTATION
#include "../kit/setting.h"

#include "gpt2_text.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "use: gpt2 FOLDER TEXT [WORDS [TEMPERATURE]]\n");
        return 1;
    }
    static char path[3][4200];      // longer than names that a system opens
    static const char *const names[3] = {"model.safetensors", "vocab.json", "merges.txt"};
    for (int i = 0; i < 3; i++) { snprintf(path[i], sizeof path[i], "%s/%s", argv[1], names[i]); }
    const int64_t more = kit_whole("WORDS", argc > 3 ? argv[3] : NULL, 40, 1, 1000);
    const double temperature = kit_real("TEMPERATURE", argc > 4 ? argv[4] : NULL, 0, 0, 1000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    kit_tokenizer_t *tokenizer = kit_gpt2_read(path[1], path[2]);
    const gpt2_config_t config = tokenizer ? gpt2_config_of(path[0]) : gpt2_small();
    nn_module_t *net = tensor_ok() ? gpt2_new(config) : NULL;
    if (!net || gpt2_load(net, path[0])) { return tensor_shutdown() != 0; }
    tensor_t *text = kit_encode(tokenizer, argv[2], strlen(argv[2]));
    int64_t words[1024], count = tensor_numel(text);
    const int64_t most = config.context < 1024 ? config.context : 1024;
    if (count <= most && more <= most - count &&
        tensor_copy_out(text, words, (size_t)count * sizeof *words) == 0) {
        count = gpt2_generate(net, words, count, count + more, temperature);
        tensor_t *all = tensor_from_n(words, TENSOR_I64, &count, 1);
        size_t size;
        char *said = kit_decode(tokenizer, all, &size);
        printf("%s\n", said ? said : "");
        free(said);
    } else {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "gpt2: text and words are more than the context");
    }
    kit_tokenizer_free(tokenizer);
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "gpt2: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

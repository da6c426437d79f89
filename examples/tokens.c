// tokens.c - text as tokens: byte pairs are learnt from a text, or read from GPT-2's files
//
// Build: make build/tokens && build/tokens
//        build/tokens vocab.json merges.txt "a text of yours"
// Output:
//   293 tokens, the longest is " tokens"
//   "the tokens of the text" becomes 6 tokens:
//   [t][he][ tokens][ of][ the][ text]
//   and comes back as "the tokens of the text"
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_TEXT_IMPLEMENTATION
#include "kit/text.h"
#define KIT_GPT2_IMPLEMENTATION
#include "kit/gpt2.h"

static const char lesson[] = "the text is cut into words and the words into tokens. the tokens of the text "
                             "are the pairs of tokens that are "
                             "often in the text, and the pairs of the pairs. the more text there is, the "
                             "more tokens of the text there are, "
                             "and the longer the tokens of the words of the text are.";

int main(int argc, char **argv) {
    if (argc != 1 && argc != 4) {
        fprintf(stderr, "use: tokens [VOCAB.json MERGES.txt TEXT]\n");
        return 1;
    }
    const char *text = argc > 3 ? argv[3] : "the tokens of the text";
    kit_tokenizer_t *t =
        argc > 3 ? kit_gpt2_read(argv[1], argv[2]) : kit_tokenizer_train(lesson, sizeof lesson - 1, 300);
    if (!t) { return tensor_shutdown() != 0; }

    const char *longest = "";
    for (int64_t i = 0; i < kit_tokenizer_size(t); i++) {
        const char *token = kit_token(t, i, NULL);
        if (strlen(token) > strlen(longest)) { longest = token; }
    }
    printf("%d tokens, the longest is \"%s\"\n", (int)kit_tokenizer_size(t), longest);

    tensor_t *ids = kit_encode(t, text, strlen(text));
    printf("\"%s\" becomes %d tokens:\n", text, (int)tensor_numel(ids));
    for (int64_t i = 0; i < tensor_numel(ids); i++) {
        printf("[%s]", kit_token(t, tensor_item_i64(tensor_select(ids, 0, i)), NULL));
    }
    char *back = kit_decode(t, ids, NULL);
    printf("\nand comes back as \"%s\"\n", back ? back : "");
    free(back);
    kit_tokenizer_free(t);
    if (fflush(stdout)) { (void)tensor_raise(TENSOR_ERR_IO, "tokens: cannot write what it found"); }
    return tensor_shutdown() != 0;
}

// tokens.c - examples/kit/text.h, gpt2.h and unicode.h: vocabularies and merges are refused by the name of
// the file, or are a tokenizer; what a tokenizer makes of a text is that text again
#include "fuzz.h"

#define KIT_GPT2_IMPLEMENTATION
#define KIT_TEXT_IMPLEMENTATION
#define KIT_UNICODE_IMPLEMENTATION
#include "../../examples/kit/gpt2.h"
#include "../../examples/kit/unicode.h"

static void tokens_setup(void) {}

static void tokens_known(int may_be_format) {
    int code = tensor_error_code();
    PROMISE(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY || (may_be_format && code == TENSOR_ERR_FORMAT),
            "%s", tensor_error_text());
}

// Words of GPT-2's rule, one behind the other, are the whole text.
static void tokens_words(const uint8_t *text, size_t n) {
    for (size_t at = 0; at < n;) {
        int32_t code;
        size_t one = kit_unicode_decode(text + at, n - at, &code), word = kit_unicode_word(text + at, n - at);
        PROMISE(one >= 1 && one <= 4 && one <= n - at, "a code point of %d bytes", (int)one);
        PROMISE(code >= 0 && code < 0x110100 && strchr("lnso", kit_unicode_class(code)), "code %d",
                (int)code);
        PROMISE(word >= one && word <= n - at, "a word of %d bytes", (int)word);
        at += word;
    }
}

// complete: every text has tokens.
static void tokens_round(const kit_tokenizer_t *t, const uint8_t *text, size_t n, int complete) {
    tensor_t *ids = kit_encode(t, (const char *)text, n);
    tokens_known(!complete);
    if (tensor_ok()) {
        size_t size = 0;
        char *same = kit_decode(t, ids, &size);
        PROMISE(same != NULL, "%s", tensor_error_text());
        PROMISE(size == n && (n == 0 || memcmp(same, text, n) == 0), "another text");
        free(same);
    }
    tensor_clear_error();
}

// The first byte of an input: even, a text that is learnt and read; odd, a vocabulary, a NUL, merges, a NUL
// and a text.
static void tokens(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    if (next_byte(&b) % 2 == 0) {
        const size_t n = (size_t)(b.end - b.p);
        tokens_words(b.p, n);
        kit_tokenizer_t *t = kit_tokenizer_chars((const char *)b.p, n);
        PROMISE(t != NULL, "%s", tensor_error_text());
        tokens_round(t, b.p, n, 1);
        kit_tokenizer_free(t);
        t = kit_tokenizer_train((const char *)b.p, n, 280);
        PROMISE(t != NULL && kit_tokenizer_size(t) >= 256 && kit_tokenizer_size(t) <= 280, "%s",
                tensor_error_text());
        tokens_round(t, b.p, n, 1);
        kit_tokenizer_free(t);
        return;
    }
    const uint8_t *part[3] = {b.p, b.end, b.end};
    for (int k = 1; k < 3; k++) {
        size_t left = (size_t)(b.end - part[k - 1]);
        const uint8_t *nul = left ? (const uint8_t *)memchr(part[k - 1], 0, left) : NULL;
        part[k] = nul ? nul + 1 : b.end;
    }
    const size_t vocab = (size_t)(part[1] - part[0]), merges = (size_t)(part[2] - part[1]);
    kit_tokenizer_t *t = kit_gpt2_parse(part[0], vocab - (vocab && part[1][-1] == 0), "vocab", part[1],
                                        merges - (merges && part[2][-1] == 0), "merges");
    if (!t) {
        tokens_known(1);
        const char *text = tensor_error_text();
        PROMISE(tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY || strncmp(text, "vocab", 5) == 0 ||
                    strncmp(text, "merges", 6) == 0,
                "%s", text);
        return;
    }
    PROMISE(tensor_ok(), "%s", tensor_error_text());
    tokens_round(t, part[2], (size_t)(b.end - part[2]), 0);
    kit_tokenizer_free(t);
}
FUZZ_TARGET(tokens, tokens_setup)

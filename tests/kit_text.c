// kit_text.c - examples/kit/text.h, unicode.h and gpt2.h: the words, tokens and files that Hugging Face's
// tokenizers make (fixtures by tests/fixtures/text.py), text that is not UTF-8, and vocabularies that lie
#include "kit.h"

#define KIT_TEXT_IMPLEMENTATION
#include "../examples/kit/text.h"
#define KIT_GPT2_IMPLEMENTATION
#include "../examples/kit/gpt2.h"

static unsigned char *vocab, *merges;
static size_t vocab_size, merges_size;

static int try_vocab(const void *data, size_t size, const char *name) {
    kit_tokenizer_t *t = kit_gpt2_parse(data, size, name, "", 0, "m.txt");
    kit_tokenizer_free(t);
    return t != NULL;
}

static int try_merges(const void *data, size_t size, const char *name) {
    kit_tokenizer_t *t = kit_gpt2_parse(vocab, vocab_size, "v.json", data, size, name);
    kit_tokenizer_free(t);
    return t != NULL;
}

// Text that was not in the training comes back as it was, whatever it is.
static void check_round_trip(const kit_tokenizer_t *t, const char *text, size_t size) {
    size_t n;
    tensor_t *ids = kit_encode(t, text, size);
    char *back = kit_decode(t, ids, &n);
    CHECK_MSG(back && n == size && memcmp(back, text, n) == 0, "\"%.30s\" comes back as \"%.30s\"", text,
              back);
    free(back);
}

static const unsigned char *numbers(const unsigned char *p, int32_t *count) {
    *count = (int32_t)kit_file__u32(p);
    return p + 4;
}

static void words_and_tokens_are_those_of_gpt2(void) {
    kit_tokenizer_t *t = kit_gpt2_parse(vocab, vocab_size, "vocab.json", merges, merges_size, "merges.txt");
    size_t size, n;
    unsigned char *data = kit_fixture("text.bin", &size);
    const unsigned char *p = data;
    int32_t cases, bytes, words, ids;
    CHECK(kit_tokenizer_size(t) == 700);
    p = numbers(p, &cases);
    CHECK(cases == 58);
    for (int32_t i = 0; i < cases && t; i++) {
        p = numbers(p, &bytes);
        const char *text = (const char *)p;
        p = numbers(p + bytes, &words);
        size_t at = 0;
        for (int32_t k = 0; k < words; k++, p += 4) {
            n = kit_unicode_word((const unsigned char *)text + at, (size_t)bytes - at);
            CHECK_MSG(n == kit_file__u32(p), "case %d \"%.30s\", word %d: %d bytes, not %d", (int)i, text,
                      (int)k, (int)n, (int)kit_file__u32(p));
            at += kit_file__u32(p);
        }
        p = numbers(p, &ids);
        tensor_t *got = kit_encode(t, text, (size_t)bytes);
        CHECK_MSG(tensor_numel(got) == ids, "case %d \"%.30s\": %d tokens, not %d", (int)i, text,
                  (int)tensor_numel(got), (int)ids);
        const int64_t *token = (const int64_t *)tensor_data(got);
        int same = 0;
        for (int32_t k = 0; k < ids; k++, p += 4) {
            same += k < tensor_numel(got) && token[k] == kit_file__u32(p);
        }
        CHECK_MSG(same == ids, "case %d \"%.30s\": %d of %d tokens agree", (int)i, text, same, (int)ids);
        check_round_trip(t, text, (size_t)bytes);
    }
    CHECK(p == data + size);
    free(data);
    kit_tokenizer_free(t);
}

static void training_learns_the_same_pairs(void) {
    size_t size, n = 0, m = 0;
    unsigned char *text = kit_fixture("train.txt", &size);
    kit_tokenizer_t *t = kit_tokenizer_train((const char *)text, size, 700);
    kit_tokenizer_t *u = kit_gpt2_parse(vocab, vocab_size, "vocab.json", merges, merges_size, "merges.txt");
    CHECK(kit_tokenizer_size(t) == 700);
    for (int64_t i = 0; i < 700; i++) {
        const char *a = kit_token(t, i, &n), *b = kit_token(u, i, &m);
        CHECK_MSG(a && b && n == m && memcmp(a, b, n) == 0, "token %d: \"%s\", not \"%s\"", (int)i, a, b);
    }
    int64_t l1, r1, l2, r2, rank = 0;
    for (; kit_tokenizer_pair(u, rank, &l2, &r2); rank++) {
        CHECK(kit_tokenizer_pair(t, rank, &l1, &r1) && l1 == l2 && r1 == r2);
    }
    CHECK(rank >= 444 && !kit_tokenizer_pair(t, rank, &l1, &r1));

    // The files come back byte for byte as far as the library's writer and ours agree: read, written, read.
    char v[300], w[300];
    snprintf(v, sizeof v, "%s", kit_temporary("v.json", "", 0));
    snprintf(w, sizeof w, "%s", kit_temporary("m.txt", "", 0));
    CHECK(kit_gpt2_write(t, v, w) == 0);
    kit_tokenizer_t *back = kit_gpt2_read(v, w);
    CHECK(kit_tokenizer_size(back) == 700);
    CHECK(tensor_equal(kit_encode(back, (char *)text, size), kit_encode(u, (char *)text, size)));
    FILE *f = fopen(w, "rb");
    char *written = (char *)calloc(1, merges_size + 1);
    CHECK(f && fread(written, 1, merges_size + 1, f) == merges_size &&
          memcmp(written, merges, merges_size) == 0);
    if (f) { fclose(f); }
    free(written);
    // Merges that cannot be written leave the old vocabulary, which belongs to the old merges.
    kit_tokenizer_t *small = kit_tokenizer_train("aaaa aaaa", 9, 300);
    CHECK(kit_gpt2_write(small, v, "/nonexistent/m") == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "/nonexistent/m: cannot be written: No such file");
    kit_tokenizer_free(small);
    small = kit_gpt2_read(v, w);
    CHECK(kit_tokenizer_size(small) == 700);
    kit_tokenizer_free(small);
    remove(v);
    remove(w);
    CHECK(!kit_gpt2_read(v, w));
    CHECK_ERROR(TENSOR_ERR_IO, v);
    CHECK(kit_gpt2_write(t, "/nonexistent/v", w) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "cannot be written");
    CHECK(kit_gpt2_write(NULL, v, w) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
    kit_tokenizer_free(back);
    kit_tokenizer_free(u);
    kit_tokenizer_free(t);
    free(text);

    CHECK(!kit_tokenizer_train("a", 1, 255));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "at least 256");
    t = kit_tokenizer_train("", 0, 1000);
    CHECK(kit_tokenizer_size(t) == 256);
    check_round_trip(t, "\xFF\xFE\x80 \xC3", 5);
    kit_tokenizer_free(t);
    t = kit_tokenizer_train("aaaa aaaa", 9, 300);
    CHECK(kit_token_id(t, "aaaa", 4) > 0 && kit_token_id(t, " aaaa", 5) == -1);
    kit_tokenizer_free(t);
}

static void characters(void) {
    kit_tokenizer_t *t = kit_tokenizer_chars("h\xC3\xA9llo\0\xFFh", 9);
    const int64_t want[] = {3, 4, 2, 1}, wrong[] = {0, 6}, four = 4, two = 2;
    CHECK(kit_tokenizer_size(t) == 6);
    // In the order of bytes: NUL, h, l, o, e acute and the byte 0xFF.
    CHECK(tensor_equal(kit_encode(t, "o\xC3\xA9lh", 5), tensor_from_n(want, TENSOR_I64, &four, 1)));
    CHECK(tensor_item_i64(tensor_at(kit_encode(t, "\0", 1), "0")) == 0);
    CHECK(tensor_item_i64(tensor_at(kit_encode(t, "h", 1), "0")) == 1);
    check_round_trip(t, "oll\xC3\xA9\0\xFF", 7);
    CHECK(tensor_numel(kit_encode(t, "", 0)) == 0);
    check_round_trip(t, "", 0);
    CHECK_POISON(kit_encode(t, "hex", 3), TENSOR_ERR_FORMAT, "byte 1: no token has this character");
    CHECK_POISON(kit_encode(NULL, "a", 1), TENSOR_ERR_OWNER, "kit_encode: the tokenizer is NULL");
    CHECK_POISON(kit_encode(t, NULL, 4), TENSOR_ERR_OWNER, "kit_encode: the text is NULL");
    CHECK(!kit_tokenizer_train(NULL, 5, 300));
    CHECK_ERROR(TENSOR_ERR_OWNER, "kit_tokenizer_train: the text is NULL");
    CHECK(!kit_tokenizer_chars(NULL, 5));
    CHECK_ERROR(TENSOR_ERR_OWNER, "kit_tokenizer_chars: the text is NULL");
    CHECK(!kit_decode(NULL, tensor_zeros_of(TENSOR_I64, 1), NULL));
    CHECK_ERROR(TENSOR_ERR_OWNER, "kit_decode: the tokenizer is NULL");
    CHECK(!kit_decode(t, NULL, NULL));
    CHECK_ERROR(TENSOR_ERR_OWNER, "kit_decode: the tensor of ids is NULL");
    CHECK(!kit_decode(t, tensor_full(72.7, 2), NULL));
    CHECK_ERROR(TENSOR_ERR_DTYPE, "kit_decode: ids must be integers, not floats");
    CHECK(!kit_gpt2_parse(NULL, 5, "v.json", "", 0, "m.txt"));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "v.json");
    CHECK(!kit_gpt2_parse("{", 1, "v.json", NULL, 5, "m.txt"));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "v.json");
    CHECK(!kit_decode(t, tensor_from_n(wrong, TENSOR_I64, &two, 1), NULL));
    CHECK_ERROR(TENSOR_ERR_INDEX, "place 1: there is no token 6");
    CHECK(!kit_decode(t, tensor_from_n(wrong, TENSOR_I64, &two, 1), NULL));
    CHECK_ERROR(TENSOR_ERR_INDEX, "place 1");
    CHECK(!kit_token(t, -1, NULL) && !kit_token(t, 6, NULL) && kit_token_id(t, "x", 1) == -1);
    kit_tokenizer_free(t);
    kit_tokenizer_free(NULL);
}

static void code_points(void) {
    static const struct {
        const char *text;
        size_t size, want;
        int32_t code;
    } cases[] = {
        {"A", 1, 1, 'A'},
        {"\xC3\xA9", 2, 2, 0xE9},
        {"\xE2\x82\xAC", 3, 3, 0x20AC},
        {"\xF0\x9F\x98\x80", 4, 4, 0x1F600},
        {"\xC3", 1, 1, 0x1100C3},
        {"\xC0\x80", 2, 1, 0x1100C0},
        {"\xE0\x80\x80", 3, 1, 0x1100E0},
        {"\xED\xA0\x80", 3, 1, 0x1100ED},
        {"\xF4\x90\x80\x80", 4, 1, 0x1100F4},
        {"\xFF", 1, 1, 0x1100FF},
        {"\x80", 1, 1, 0x110080},
        {"\xF0\x9F\x98", 3, 1, 0x1100F0},
        {"\xE2\x41\x80", 3, 1, 0x1100E2},
        {"\xF8\x88\x80\x80\x80", 5, 1, 0x1100F8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *copy = (unsigned char *)malloc(cases[i].size);
        int32_t code;
        memcpy(copy, cases[i].text, cases[i].size);
        size_t n = kit_unicode_decode(copy, cases[i].size, &code);
        CHECK_MSG(n == cases[i].want && code == cases[i].code, "case %d: %d bytes, code %x", (int)i, (int)n,
                  (unsigned)code);
        free(copy);
    }
}

static void hostile_vocabularies(void) {
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"", "does not begin with {"},
        {"[]", "does not begin with {"},
        {"{}", "a token in quotes is missing"},
        {"{\"a\": 0", "entry 0: a comma or } is missing"},
        {"{\"a\": 0,}", "entry 1: a token in quotes"},
        {"{\"a\": 0} x", "text behind the last }"},
        {"{\"a\" 0}", "\": is missing"},
        {"{\"a\": }", "the number is missing"},
        {"{\"a\": -1}", "the number is missing"},
        {"{\"a\": \"0\"}", "the number is missing"},
        {"{\"a\": 1}", "the numbers are not 0, 1, 2"},
        {"{\"a\": 0, \"b\": 0}", "entry 1: the numbers are not 0, 1, 2"},
        {"{\"a\": 0, \"b\": 2}", "the numbers are not"},
        {"{\"a\": 0, \"a\": 1}", "entry 1: the token is there twice"},
        {"{\"a\": 0, \"\\u0061\": 1}", "the token is there twice"},
        {"{\"a\": 2147483647}", "too large"},
        {"{\"a\": 18446744073709551616}", "too large"},
        {"{\"a\": 0.5}", "a comma or }"},
        {"{\"\": 0}", "an empty token"},
        {"{\"a b\": 0}", "not in GPT-2's alphabet"},
        {"{\"\\n\": 0}", "not in GPT-2's alphabet"},
        {"{\"\\u00\": 0}", "not in GPT-2's alphabet"},
        {"{\"\\x\": 0}", "not in GPT-2's alphabet"},
        {"{\"\\ud83d\\ude00\": 0}", "not in GPT-2's alphabet"},
        {"{\"\xE4\xBD\xA0\": 0}", "not in GPT-2's alphabet"},
        {"{\"\xFF\": 0}", "not in GPT-2's alphabet"},
        {"{\"a", "\": is missing"},
        {"{\"a\\", "not in GPT-2's alphabet"},
    };
    static const struct {
        const char *text;
        const char *part;
    } lines[] = {
        {"o\n", "line 1: it is not two tokens"},
        {"o r\no r\n", "line 2: the pair is there twice"},
        {"#version: 0.2\nqq r\n", "line 2: a token is not in the vocabulary"},
        {"q q\n", "line 1: the two joined are not in the vocabulary"},
        {"o r x\n", "line 1: text behind"},
        {"o  r\n", "an empty token"},
        {" o r\n", "an empty token"},
        {"o \n", "an empty token"},
        {"o\tr\n", "not in GPT-2's alphabet"},
        {"o\xE4\xBD\xA0 r\n", "not in GPT-2's alphabet"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KIT_REFUSED(try_vocab, cases[i].text, strlen(cases[i].text), cases[i].part);
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        KIT_REFUSED(try_merges, lines[i].text, strlen(lines[i].text), lines[i].part);
    }
    CHECK(kit_try(try_merges, "\n\r\no r\r\n\nt e", 12, "blank lines"));
    KIT_REFUSED(try_vocab, "{\"\0\": 0}", 8, "not in GPT-2's alphabet");
    KIT_REFUSED(try_merges, "o\0 r\n", 5, "not in GPT-2's alphabet");
    const char *whole = "{\"a\": 0, \"b\": 1, \"\\u0120\\\"\": 2}";
    kit_try_truncations(try_vocab, whole, strlen(whole), 1);
    kit_try_damage(try_vocab, whole, strlen(whole), 0, strlen(whole));
    const char *pairs = "#version: 0.2\no r\r\nt e\nn s\n";
    kit_try_truncations(try_merges, pairs, strlen(pairs), 0);
    kit_try_damage(try_merges, pairs, strlen(pairs), 0, strlen(pairs));
}

// A word of a million letters takes no square of its length.
static void long_words(void) {
    kit_tokenizer_t *t = kit_gpt2_parse(vocab, vocab_size, "vocab.json", merges, merges_size, "merges.txt");
    const size_t size = 1000000;
    char *text = (char *)malloc(size);
    for (size_t i = 0; i < size; i++) { text[i] = "torethe"[i % 7]; }
    check_round_trip(t, text, size);
    CHECK(tensor_numel(kit_encode(t, text, size)) < 600000);
    free(text);
    kit_tokenizer_free(t);
}

int main(void) {
    vocab = kit_fixture("vocab.json", &vocab_size);
    merges = kit_fixture("merges.txt", &merges_size);
    RUN(words_and_tokens_are_those_of_gpt2);
    RUN(training_learns_the_same_pairs);
    RUN(characters);
    RUN(code_points);
    RUN(hostile_vocabularies);
    RUN(long_words);
    free(vocab);
    free(merges);
    return test_report();
}

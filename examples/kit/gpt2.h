// gpt2.h - the tokenizer files of GPT-2: vocab.json {"token": number, ..}, merges.txt with a pair on a line
//
// A file to copy and to change, with file.h, text.h and unicode.h beside it. In one C file of the program:
//
//   #define KIT_GPT2_IMPLEMENTATION
//   #include "kit/gpt2.h"
//
// (and text.h's implementation in one). Files are refused as a whole; the error names the file, the entry of
// the vocabulary or the line of the merges, and the reason.
#ifndef KIT_GPT2_H
#define KIT_GPT2_H

#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

//   -> tokenizer, NULL on failure;  errors FORMAT, OUT_OF_MEMORY
kit_tokenizer_t *kit_gpt2_parse(const void *vocab, size_t vocab_size, const char *vocab_name,
                                const void *merges, size_t merges_size, const char *merges_name);
//   -> as above;  errors as above, IO
kit_tokenizer_t *kit_gpt2_read(const char *vocab_path, const char *merges_path);
// Writes them, for Python too: both or none.   -> code;  errors IO, OWNER (NULL)
int kit_gpt2_write(const kit_tokenizer_t *t, const char *vocab_path, const char *merges_path);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_GPT2_IMPLEMENTATION) && !defined(KIT_GPT2_DONE)
#define KIT_GPT2_DONE

#include "file.h"
#include "unicode.h"

// UTF-8 of a code below 0x10000.   -> bytes
static size_t kit_gpt2__put(char *to, int32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xC0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    to[0] = (char)(0xE0 | c >> 12);
    to[1] = (char)(0x80 | (c >> 6 & 0x3F));
    to[2] = (char)(0x80 | (c & 0x3F));
    return 3;
}

// The byte that a character of GPT-2's alphabet says, -1 = it is not in it.
static int kit_gpt2__code_byte(int32_t c) {
    for (int b = 0; b < 256; b++) {
        if (kit_byte_code(b) == c) { return b; }
    }
    return -1;
}

typedef struct kit_gpt2__cursor_t {
    const unsigned char *p, *end;
} kit_gpt2__cursor_t;

static void kit_gpt2__blanks(kit_gpt2__cursor_t *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t')) { c->p++; }
}

static int kit_gpt2__take(kit_gpt2__cursor_t *c, char what) {
    kit_gpt2__blanks(c);
    if (c->p >= c->end || *c->p != (unsigned char)what) { return 0; }
    c->p++;
    return 1;
}

// An escape of JSON behind its backslash.   -> code, -1 = wrong
static int32_t kit_gpt2__escape(kit_gpt2__cursor_t *c) {
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    int32_t value = 0;
    if (c->p >= c->end || *c->p == 0) { return -1; }
    const char *name = strchr(names, *c->p);
    if (name) {
        c->p++;
        return means[name - names];
    }
    if (*c->p++ != 'u' || c->end - c->p < 4) { return -1; }
    for (int k = 0; k < 4; k++) {
        static const char digits[] = "0123456789abcdef";
        int digit = *c->p >= 'A' && *c->p <= 'F' ? *c->p + 32 : *c->p;
        const char *at = digit ? strchr(digits, digit) : NULL;
        if (!at) { return -1; }
        value = value << 4 | (int32_t)(at - digits);
        c->p++;
    }
    return value;
}

// The bytes of a token written in GPT-2's alphabet, up to a byte of `stop`; json: with escapes.
//   -> NULL, or what is wrong
static const char *kit_gpt2__spelt(kit_gpt2__cursor_t *c, const char *stop, int json, char *out, size_t *n) {
    for (*n = 0; c->p < c->end && (*c->p == 0 || !strchr(stop, *c->p));) {
        int32_t code;
        if (json && *c->p == '\\') {
            c->p++;
            code = kit_gpt2__escape(c);
        } else {
            c->p += kit_unicode_decode(c->p, (size_t)(c->end - c->p), &code);
        }
        int byte = kit_gpt2__code_byte(code);
        if (byte < 0) { return "a character that is not in GPT-2's alphabet of bytes"; }
        out[(*n)++] = (char)byte;
    }
    return *n ? NULL : "an empty token";
}

// One entry of the vocabulary behind its bytes: where they are in the text of all tokens.
typedef struct kit_gpt2__entry_t {
    size_t start, size;
    int64_t id;
} kit_gpt2__entry_t;

static int kit_gpt2__order(const void *a, const void *b) {
    const int64_t x = ((const kit_gpt2__entry_t *)a)->id, y = ((const kit_gpt2__entry_t *)b)->id;
    return (x > y) - (x < y);
}

// "token": number.   -> NULL, or what is wrong
static const char *kit_gpt2__entry(kit_gpt2__cursor_t *c, char *out, kit_gpt2__entry_t *e) {
    if (!kit_gpt2__take(c, '"')) { return "a token in quotes is missing"; }
    const char *wrong = kit_gpt2__spelt(c, "\"", 1, out, &e->size);
    if (wrong) { return wrong; }
    if (!kit_gpt2__take(c, '"') || !kit_gpt2__take(c, ':')) { return "\": is missing"; }
    kit_gpt2__blanks(c);
    if (c->p >= c->end || *c->p < '0' || *c->p > '9') { return "the number is missing"; }
    for (e->id = 0; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        e->id = 10 * e->id + (*c->p - '0');
        if (e->id >= INT32_MAX) { return "the number is too large"; }
    }
    return NULL;
}

// {"token": number, ..} into t.   -> NULL, or what is wrong with entry *n
static const char *kit_gpt2__vocab(kit_tokenizer_t *t, kit_gpt2__cursor_t c, char *out, int64_t *n) {
    kit_gpt2__entry_t *list = NULL;
    int64_t count = 0, room = 0;
    size_t used = 0;
    const char *wrong = kit_gpt2__take(&c, '{') ? NULL : "it does not begin with {";
    *n = 0;
    for (int more = 1; more && !wrong; *n = ++count) {
        if (count == room) {
            kit_gpt2__entry_t *grown;
            room = 2 * room + 256;
            grown = (kit_gpt2__entry_t *)realloc(list, (size_t)room * sizeof *grown);
            if (!grown) {
                wrong = "out of memory";
                break;
            }
            list = grown;
        }
        wrong = kit_gpt2__entry(&c, out + used, &list[count]);
        if (wrong) { break; }
        list[count].start = used;
        used += list[count].size;
        more = kit_gpt2__take(&c, ',');
        if (!more && !kit_gpt2__take(&c, '}')) {
            wrong = "a comma or } is missing";
            break;
        }
    }
    kit_gpt2__blanks(&c);
    if (!wrong && c.p < c.end) { wrong = "text behind the last }"; }
    if (!wrong) { qsort(list, (size_t)count, sizeof *list, kit_gpt2__order); }
    for (int64_t i = 0; i < count && !wrong; i++) {
        *n = i;
        if (list[i].id != i) {
            wrong = "the numbers are not 0, 1, 2, .. each once";
        } else {
            int64_t token = kit_tokenizer_add(t, out + list[i].start, list[i].size);
            if (token < 0) { wrong = "out of memory"; }
            if (token >= 0 && token < i) { wrong = "the token is there twice"; }
        }
    }
    free(list);
    return wrong;
}

// "left right" on each line.   -> NULL, or what is wrong with line *line
static const char *kit_gpt2__merges(kit_tokenizer_t *t, kit_gpt2__cursor_t c, char *out, int64_t *line) {
    size_t n, m;
    for (*line = 1; c.p < c.end; ++*line) {
        if (*line == 1 && c.end - c.p >= 8 && memcmp(c.p, "#version", 8) == 0) {
            while (c.p < c.end && *c.p != '\n') { c.p++; }
        } else if (*c.p != '\n' && *c.p != '\r') {
            const char *wrong = kit_gpt2__spelt(&c, " \r\n", 0, out, &n);
            if (!wrong && (c.p >= c.end || *c.p++ != ' ')) {
                wrong = "it is not two tokens with a space between";
            }
            if (!wrong) { wrong = kit_gpt2__spelt(&c, " \r\n", 0, out + n, &m); }
            if (wrong) { return wrong; }
            wrong = kit_tokenizer_add_pair(t, kit_token_id(t, out, n), kit_token_id(t, out + n, m));
            if (wrong) { return wrong; }
        }
        if (c.p < c.end && *c.p == '\r') { c.p++; }
        if (c.p < c.end && *c.p++ != '\n') { return "text behind the second token"; }
    }
    return NULL;
}

kit_tokenizer_t *kit_gpt2_parse(const void *vocab, size_t vocab_size, const char *vocab_name,
                                const void *merges, size_t merges_size, const char *merges_name) {
    if (!vocab) { vocab = "", vocab_size = 0; }
    if (!merges) { merges = "", merges_size = 0; }
    const kit_gpt2__cursor_t v = {(const unsigned char *)vocab, (const unsigned char *)vocab + vocab_size};
    const kit_gpt2__cursor_t m = {(const unsigned char *)merges, (const unsigned char *)merges + merges_size};
    kit_tokenizer_t *t = kit_tokenizer_new();
    // What is spelt is never longer than its spelling.
    char *out = (char *)malloc((vocab_size > merges_size ? vocab_size : merges_size) + 1);
    const char *wrong = "out of memory", *file = vocab_name, *record = "entry";
    int64_t n = -1;
    if (t && out) { wrong = kit_gpt2__vocab(t, v, out, &n); }
    if (!wrong) {
        file = merges_name;
        record = "line";
        wrong = kit_gpt2__merges(t, m, out, &n);
    }
    free(out);
    if (!wrong) { return t; }
    int code = strcmp(wrong, "out of memory") ? TENSOR_ERR_FORMAT : TENSOR_ERR_OUT_OF_MEMORY;
    kit_file__fail(code, file, record, n, wrong);
    kit_tokenizer_free(t);
    return NULL;
}

kit_tokenizer_t *kit_gpt2_read(const char *vocab_path, const char *merges_path) {
    size_t n, m = 0;
    unsigned char *vocab = kit_file__load(vocab_path, &n),
                  *merges = vocab ? kit_file__load(merges_path, &m) : NULL;
    kit_tokenizer_t *t = merges ? kit_gpt2_parse(vocab, n, vocab_path, merges, m, merges_path) : NULL;
    free(vocab);
    free(merges);
    return t;
}

static void kit_gpt2__spell(FILE *f, const kit_tokenizer_t *t, int64_t id, int json) {
    size_t n = 0;
    const char *bytes = kit_token(t, id, &n);
    for (size_t i = 0; i < n; i++) {
        char text[4];
        size_t size = kit_gpt2__put(text, kit_byte_code((unsigned char)bytes[i]));
        if (json && (text[0] == '"' || text[0] == '\\')) { putc('\\', f); }
        fwrite(text, 1, size, f);
    }
}

int kit_gpt2_write(const kit_tokenizer_t *t, const char *vocab_path, const char *merges_path) {
    int64_t left, right;
    if (!t) { return (tensor_raise)(TENSOR_ERR_OWNER, "kit_gpt2_write: the tokenizer is NULL"); }
    kit_file__new_t file[2] = {kit_file__begin(vocab_path), kit_file__begin(merges_path)};
    FILE *f = file[0].f;
    for (int64_t i = 0; i < kit_tokenizer_size(t) && f; i++) {
        fputs(i ? ", \"" : "{\"", f);
        kit_gpt2__spell(f, t, i, 1);
        fprintf(f, "\": %lld", (long long)i);
    }
    if (f) { fputs("}\n", f); }
    f = file[1].f;
    if (f) { fputs("#version: 0.2\n", f); }
    for (int64_t rank = 0; f && kit_tokenizer_pair(t, rank, &left, &right); rank++) {
        kit_gpt2__spell(f, t, left, 0);
        putc(' ', f);
        kit_gpt2__spell(f, t, right, 0);
        putc('\n', f);
    }
    return kit_file__finish(file, 2);
}

#endif

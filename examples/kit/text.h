// text.h - text as numbers: characters, and byte pairs as GPT-2 has them
//
// A file to copy and to change, with file.h, tables.h and unicode.h beside it. In one C file of the program:
//
//   #define KIT_TEXT_IMPLEMENTATION
//   #include "kit/text.h"
//
//   kit_tokenizer_t *t = kit_tokenizer_train(text, strlen(text), 1000);
//   tensor_t *ids = kit_encode(t, "Hello world", 11);           // i64
//   char *same = kit_decode(t, ids, NULL);                      // to be freed
//   kit_tokenizer_free(t);
//
// Byte pairs: text is cut into words by GPT-2's rule (letters, numbers, other signs, each with one space
// before it), and inside a word the pair that was learnt first is joined first. Every byte has a token, so
// any text can be written and comes back as it was, also where it is not UTF-8. gpt2.h reads and writes the
// files of GPT-2.
#ifndef KIT_TEXT_H
#define KIT_TEXT_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_tokenizer_t kit_tokenizer_t;

// One token for each character (code point) of the text, in the order of their bytes.
//   -> tokenizer, NULL on failure;  errors OUT_OF_MEMORY
kit_tokenizer_t *kit_tokenizer_chars(const char *text, size_t size);

// Learns byte pairs: the 256 bytes in GPT-2's order, then again and again the pair that is most frequent
// inside the words of the text (of equal ones that with the lower numbers), until there are `tokens` of them
// or no pair is there twice.
//   tokens  256 or more
//   -> tokenizer, NULL on failure;  errors SHAPE (tokens), OUT_OF_MEMORY
kit_tokenizer_t *kit_tokenizer_train(const char *text, size_t size, int tokens);
void kit_tokenizer_free(kit_tokenizer_t *t);

int64_t kit_tokenizer_size(const kit_tokenizer_t *t); // tokens
// The bytes of a token (a NUL is behind them).   -> borrowed, NULL = no such number
const char *kit_token(const kit_tokenizer_t *t, int64_t id, size_t *size);
// The number of a token, e.g. of "<|endoftext|>", which kit_encode never makes of text; -1 = there is none.
int64_t kit_token_id(const kit_tokenizer_t *t, const char *bytes, size_t size);

//   -> new i64 [tokens];  errors FORMAT (a character or byte without a token, by its place), OUT_OF_MEMORY
tensor_t *kit_encode(const kit_tokenizer_t *t, const char *text, size_t size);
//   ids     integers of any shape
//   size    receives the length; may be NULL
//   -> text with a NUL behind it, to be freed; NULL on failure;  errors INDEX, DTYPE, OUT_OF_MEMORY
char *kit_decode(const kit_tokenizer_t *t, tensor_t *ids, size_t *size);

// To make one of byte pairs by hand (this is what gpt2.h does): tokens first, then the pairs by rank.
kit_tokenizer_t *kit_tokenizer_new(void); // NULL = out of memory; raises nothing
// -> number of the token, the old one if it is there; -1 = out of memory; raises nothing
int64_t kit_tokenizer_add(kit_tokenizer_t *t, const char *bytes, size_t size);
// -> NULL, or what is wrong; raises nothing
const char *kit_tokenizer_add_pair(kit_tokenizer_t *t, int64_t left, int64_t right);
// The tokens of the pair of a rank, counted from 0.   -> 1, or 0: there is no such rank
int kit_tokenizer_pair(const kit_tokenizer_t *t, int64_t rank, int64_t *left, int64_t *right);
// The character that a byte is in GPT-2's files: those that print first, then the others from 256 on.
int32_t kit_byte_code(int byte);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_TEXT_IMPLEMENTATION) && !defined(KIT_TEXT_DONE)
#define KIT_TEXT_DONE

#define KIT_UNICODE_IMPLEMENTATION
#include "file.h"
#include "tables.h"
#include "unicode.h"

// ---- tokenizer ----

struct kit_tokenizer_t {
    kit_tables__set_t tokens;
    kit_tables__pairs_t merges; // value: rank << 32 | number of the joined token
    int32_t (*order)[2];        // left, right by rank
    size_t order_room;
    int32_t byte[256]; // token of a byte, -1 = none
    int chars;         // characters, not byte pairs
};

kit_tokenizer_t *kit_tokenizer_new(void) {
    kit_tokenizer_t *t = (kit_tokenizer_t *)calloc(1, sizeof *t);
    for (int b = 0; b < 256 && t; b++) { t->byte[b] = -1; }
    return t;
}

void kit_tokenizer_free(kit_tokenizer_t *t) {
    if (!t) { return; }
    kit_tables__set_free(&t->tokens);
    free(t->merges.at);
    free(t->order);
    free(t);
}

int64_t kit_tokenizer_size(const kit_tokenizer_t *t) {
    return t ? t->tokens.count : 0;
}

const char *kit_token(const kit_tokenizer_t *t, int64_t id, size_t *size) {
    size_t n;
    if (id < 0 || id >= kit_tokenizer_size(t)) { return NULL; }
    return kit_tables__get(&t->tokens, id, size ? size : &n);
}

int64_t kit_token_id(const kit_tokenizer_t *t, const char *bytes, size_t size) {
    return t ? kit_tables__find(&t->tokens, bytes, size) : -1;
}

int64_t kit_tokenizer_add(kit_tokenizer_t *t, const char *bytes, size_t size) {
    int32_t token = kit_tables__add(&t->tokens, bytes, size);
    if (size == 1 && token >= 0) { t->byte[(unsigned char)bytes[0]] = token; }
    return token;
}

const char *kit_tokenizer_add_pair(kit_tokenizer_t *t, int64_t left, int64_t right) {
    size_t n = 0, m = 0, rank = t->merges.count;
    const char *a = kit_token(t, left, &n), *b = kit_token(t, right, &m);
    char *both = a && b ? (char *)malloc(n + m) : NULL;
    if (!both) { return a && b ? "out of memory" : "a token is not in the vocabulary"; }
    memcpy(both, a, n);
    memcpy(both + n, b, m);
    int64_t token = kit_tables__find(&t->tokens, both, n + m);
    free(both);
    if (token < 0) { return "the two joined are not in the vocabulary"; }
    if (rank == t->order_room) {
        size_t room = 2 * rank + 64;
        int32_t(*grown)[2] = (int32_t(*)[2])realloc(t->order, room * sizeof *grown);
        if (!grown) { return "out of memory"; }
        t->order = grown;
        t->order_room = room;
    }
    kit_tables__pair_t *p = kit_tables__pair_add(&t->merges, (int32_t)left, (int32_t)right);
    if (!p) { return "out of memory"; }
    if (t->merges.count == rank) { return "the pair is there twice"; }
    p->value = (int64_t)rank << 32 | token;
    t->order[rank][0] = (int32_t)left;
    t->order[rank][1] = (int32_t)right;
    return NULL;
}

int kit_tokenizer_pair(const kit_tokenizer_t *t, int64_t rank, int64_t *left, int64_t *right) {
    if (!t || rank < 0 || rank >= (int64_t)t->merges.count) { return 0; }
    *left = t->order[rank][0];
    *right = t->order[rank][1];
    return 1;
}

static kit_tokenizer_t *kit_text__no_memory(kit_tokenizer_t *t) {
    (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "tokenizer: out of memory");
    kit_tokenizer_free(t);
    return NULL;
}

static int kit_text__order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

kit_tokenizer_t *kit_tokenizer_chars(const char *text, size_t size) {
    kit_tokenizer_t *t = kit_tokenizer_new();
    const unsigned char *p = (const unsigned char *)text;
    kit_tables__set_t found;
    int good = t != NULL;
    size_t n;
    memset(&found, 0, sizeof found);
    for (size_t at = 0; at < size && good; at += n) {
        int32_t c;
        n = kit_unicode_decode(p + at, size - at, &c);
        good = kit_tables__add(&found, text + at, n) >= 0;
    }
    const char **order = (const char **)malloc(((size_t)found.count + 1) * sizeof *order);
    good = good && order;
    for (int32_t i = 0; i < found.count && good; i++) { order[i] = kit_tables__get(&found, i, &n); }
    if (good) { qsort(order, (size_t)found.count, sizeof *order, kit_text__order); }
    // Only the character NUL has no length for strlen.
    for (int32_t i = 0; i < found.count && good; i++) {
        n = order[i][0] ? strlen(order[i]) : 1;
        good = kit_tables__add(&t->tokens, order[i], n) >= 0;
    }
    free(order);
    kit_tables__set_free(&found);
    if (!good) { return kit_text__no_memory(t); }
    t->chars = 1;
    return t;
}

// ---- training ----

// The words of a text, each as the tokens it is made of so far.
typedef struct kit_text__words_t {
    kit_tables__set_t set;
    int64_t *times;           // of each word in the text
    int32_t *tokens, *length; // those of word i begin at set.start[i]
} kit_text__words_t;

static int kit_text__words_make(kit_text__words_t *w, const kit_tokenizer_t *t, const unsigned char *p,
                                size_t size) {
    size_t n, room = 0;
    for (size_t at = 0; at < size; at += n) {
        const int32_t before = w->set.count;
        n = kit_unicode_word(p + at, size - at);
        int32_t i = kit_tables__add(&w->set, (const char *)p + at, n);
        if (i < 0) { return 0; }
        if ((size_t)i >= room) {
            room = 2 * room + 256;
            int64_t *grown = (int64_t *)realloc(w->times, room * sizeof *grown);
            if (!grown) { return 0; }
            w->times = grown;
        }
        if (w->set.count > before) { w->times[i] = 0; }
        w->times[i]++;
    }
    w->tokens = (int32_t *)malloc((w->set.used + 1) * sizeof *w->tokens);
    w->length = (int32_t *)malloc(((size_t)w->set.count + 1) * sizeof *w->length);
    if (!w->tokens || !w->length) { return 0; }
    for (int32_t i = 0; i < w->set.count; i++) {
        const char *bytes = kit_tables__get(&w->set, i, &n);
        for (size_t k = 0; k < n; k++) { w->tokens[w->set.start[i] + k] = t->byte[(unsigned char)bytes[k]]; }
        w->length[i] = (int32_t)n;
    }
    return 1;
}

// Adds sign times the word's count to each of its pairs.
static int kit_text__count_pairs(kit_tables__pairs_t *counts, const kit_text__words_t *w, int32_t word,
                                 int sign) {
    const int32_t *tokens = w->tokens + w->set.start[word];
    for (int32_t k = 0; k + 1 < w->length[word]; k++) {
        kit_tables__pair_t *p = kit_tables__pair_add(counts, tokens[k], tokens[k + 1]);
        if (!p) { return 0; }
        p->value += sign * w->times[word];
    }
    return 1;
}

// The most frequent pair, of equal ones the lowest.   -> NULL = there is none
static const kit_tables__pair_t *kit_text__best(const kit_tables__pairs_t *counts) {
    const kit_tables__pair_t *best = NULL;
    for (size_t i = 0; i < counts->room; i++) {
        const kit_tables__pair_t *p = &counts->at[i];
        if (p->left < 0 || p->value < 2 || (best && p->value < best->value)) { continue; }
        int lower = best && (p->left < best->left || (p->left == best->left && p->right < best->right));
        if (!best || p->value > best->value || lower) { best = p; }
    }
    return best;
}

// The token of left and right joined, with the next rank.   -> -1 = out of memory
static int32_t kit_text__learn(kit_tokenizer_t *t, int32_t left, int32_t right) {
    size_t n, m;
    const char *a = kit_tables__get(&t->tokens, left, &n), *b = kit_tables__get(&t->tokens, right, &m);
    char *both = (char *)malloc(n + m);
    int64_t token = -1;
    if (both) {
        memcpy(both, a, n);
        memcpy(both + n, b, m);
        token = kit_tokenizer_add(t, both, n + m);
    }
    free(both);
    return token < 0 || kit_tokenizer_add_pair(t, left, right) ? -1 : (int32_t)token;
}

// Joins left and right in all words, keeping the counts.   -> 0 = out of memory
static int kit_text__join(kit_text__words_t *w, kit_tables__pairs_t *counts, int32_t left, int32_t right,
                          int32_t token) {
    for (int32_t i = 0; i < w->set.count; i++) {
        int32_t *tokens = w->tokens + w->set.start[i], n = w->length[i], k = 0, to = 0;
        while (k + 1 < n && !(tokens[k] == left && tokens[k + 1] == right)) { k++; }
        if (k + 1 >= n) { continue; }
        if (!kit_text__count_pairs(counts, w, i, -1)) { return 0; }
        for (k = 0; k < n; k++) {
            int here = k + 1 < n && tokens[k] == left && tokens[k + 1] == right;
            tokens[to++] = here ? token : tokens[k];
            k += here;
        }
        w->length[i] = to;
        if (!kit_text__count_pairs(counts, w, i, 1)) { return 0; }
    }
    return 1;
}

// The bytes in the order of GPT-2: those that print, then the others.
int32_t kit_byte_code(int byte) {
    const int b = byte;
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) { return b; }
    if (b <= 32) { return 256 + b; }
    return b == 173 ? 323 : 289 + b - 127;
}

kit_tokenizer_t *kit_tokenizer_train(const char *text, size_t size, int tokens) {
    kit_tokenizer_t *t = kit_tokenizer_new();
    kit_tables__pairs_t counts = {NULL, 0, 0};
    kit_text__words_t w;
    int good = t != NULL;
    memset(&w, 0, sizeof w);
    if (tokens < 256) {
        (tensor_raise)(TENSOR_ERR_SHAPE, "kit_tokenizer_train: at least 256 tokens, one for each byte");
        kit_tokenizer_free(t);
        return NULL;
    }
    for (int32_t code = 33; code <= 323 && good; code++) {
        for (int b = 0; b < 256; b++) {
            if (kit_byte_code(b) != code) { continue; }
            const char byte = (char)b;
            good = kit_tokenizer_add(t, &byte, 1) >= 0;
        }
    }
    good = good && kit_text__words_make(&w, t, (const unsigned char *)text, size);
    for (int32_t i = 0; i < w.set.count && good; i++) { good = kit_text__count_pairs(&counts, &w, i, 1); }
    while (good && t->tokens.count < tokens) {
        const kit_tables__pair_t *best = kit_text__best(&counts);
        if (!best) { break; }
        const int32_t left = best->left, right = best->right, token = kit_text__learn(t, left, right);
        good = token >= 0 && kit_text__join(&w, &counts, left, right, token);
    }
    kit_tables__set_free(&w.set);
    free(w.times);
    free(w.tokens);
    free(w.length);
    free(counts.at);
    return good ? t : kit_text__no_memory(t);
}

// ---- encode, decode ----

typedef struct kit_text__join_t {
    int64_t rank;
    int32_t at, left, right, token;
} kit_text__join_t;

// A word as a list of tokens, and what could be joined in it, the lowest rank first (a heap).
typedef struct kit_text__work_t {
    int32_t *id, *next, *before;
    kit_text__join_t *heap;
    size_t joins, room;
} kit_text__work_t;

static int kit_text__first(const kit_text__join_t *a, const kit_text__join_t *b) {
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void kit_text__push(const kit_tokenizer_t *t, kit_text__work_t *w, int32_t at) {
    const int32_t right = at < 0 ? -1 : w->next[at];
    const kit_tables__pair_t *p = right < 0 ? NULL : kit_tables__pair(&t->merges, w->id[at], w->id[right]);
    if (!p) { return; }
    kit_text__join_t j = {p->value >> 32, at, p->left, p->right, (int32_t)(p->value & INT32_MAX)};
    size_t i = w->joins++;
    for (; i > 0 && kit_text__first(&j, &w->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        w->heap[i] = w->heap[(i - 1) / 2];
    }
    w->heap[i] = j;
}

static kit_text__join_t kit_text__pop(kit_text__work_t *w) {
    kit_text__join_t top = w->heap[0], last = w->heap[--w->joins];
    size_t i = 0, k;
    while ((k = 2 * i + 1) < w->joins) {
        if (k + 1 < w->joins && kit_text__first(&w->heap[k + 1], &w->heap[k])) { k++; }
        if (!kit_text__first(&w->heap[k], &last)) { break; }
        w->heap[i] = w->heap[k];
        i = k;
    }
    w->heap[i] = last;
    return top;
}

static int kit_text__work_grow(kit_text__work_t *w, size_t n) {
    if (n <= w->room) { return 1; }
    free(w->id);
    free(w->heap);
    w->room = 2 * n;
    w->id = (int32_t *)malloc(3 * w->room * sizeof *w->id);
    w->heap = (kit_text__join_t *)malloc(3 * w->room * sizeof *w->heap); // n pairs, two more for each join
    w->next = w->id ? w->id + w->room : NULL;
    w->before = w->id ? w->id + 2 * w->room : NULL;
    return w->id && w->heap;
}

// A word of n bytes.   -> tokens written to ids
static size_t kit_text__joined(const kit_tokenizer_t *t, kit_text__work_t *w, const unsigned char *p,
                               size_t n, int64_t *ids) {
    size_t count = 0;
    w->joins = 0;
    for (size_t i = 0; i < n; i++) {
        w->id[i] = t->byte[p[i]];
        w->before[i] = (int32_t)i - 1;
        w->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++) { kit_text__push(t, w, (int32_t)i); }
    while (w->joins > 0) {
        const kit_text__join_t j = kit_text__pop(w);
        const int32_t right = w->next[j.at];
        // One of the two was joined to another one since.
        if (w->id[j.at] != j.left || right < 0 || w->id[right] != j.right) { continue; }
        w->id[j.at] = j.token;
        w->id[right] = -1;
        w->next[j.at] = w->next[right];
        if (w->next[right] >= 0) { w->before[w->next[right]] = j.at; }
        kit_text__push(t, w, w->before[j.at]);
        kit_text__push(t, w, j.at);
    }
    for (int32_t at = 0; at >= 0; at = w->next[at]) { ids[count++] = w->id[at]; }
    return count;
}

tensor_t *kit_encode(const kit_tokenizer_t *t, const char *text, size_t size) {
    const unsigned char *p = (const unsigned char *)text;
    int64_t *ids = size < SIZE_MAX / 16 ? (int64_t *)malloc((size + 1) * sizeof *ids) : NULL;
    kit_text__work_t w;
    int64_t count = 0;
    size_t n;
    tensor_t *failed = NULL;
    memset(&w, 0, sizeof w);
    if (!t) { failed = tensor_detach(NULL); }
    for (size_t at = 0; at < size && ids && !failed; at += n) {
        int32_t c;
        n = t->chars ? kit_unicode_decode(p + at, size - at, &c) : kit_unicode_word(p + at, size - at);
        int64_t whole = t->chars ? kit_tables__find(&t->tokens, text + at, n) : 0;
        for (size_t i = 0; i < n && !t->chars && whole >= 0; i++) { whole = t->byte[p[at + i]]; }
        if (whole < 0) {
            failed = kit_file__fail(TENSOR_ERR_FORMAT, "kit_encode", "byte", (int64_t)at,
                                    "no token has this character");
        } else if (t->chars) {
            ids[count++] = whole;
        } else if (n > INT32_MAX / 8 || !kit_text__work_grow(&w, n)) {
            failed = kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, "kit_encode", "byte", (int64_t)at,
                                    "the word is too long");
        } else {
            count += (int64_t)kit_text__joined(t, &w, p + at, n, ids + count);
        }
    }
    if (!ids && !failed) {
        failed = kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, "kit_encode", NULL, -1, "out of memory");
    }
    if (!failed) { failed = tensor_from_n(ids, TENSOR_I64, &count, 1); }
    free(w.id);
    free(w.heap);
    free(ids);
    return failed;
}

char *kit_decode(const kit_tokenizer_t *t, tensor_t *ids, size_t *size) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x = tensor_contiguous(tensor_to(tensor_to(ids, TENSOR_CPU), TENSOR_I64));
    const int64_t *id = (const int64_t *)tensor_data(x);
    int64_t count = tensor_numel(x);
    size_t length = 0, n;
    char *text = NULL, reason[80];
    for (int64_t i = 0; i < count && id; i++) {
        const char *bytes = kit_token(t, id[i], &n);
        if (bytes && n < SIZE_MAX / 2 - length) {
            length += n;
        } else {
            snprintf(reason, sizeof reason, "there is no token %lld", (long long)id[i]);
            kit_file__fail(TENSOR_ERR_INDEX, "kit_decode", "place", i, reason);
            id = NULL;
        }
    }
    if (id || (count == 0 && !tensor_is_poison(x))) { text = (char *)malloc(length + 1); }
    char *to = text;
    for (int64_t i = 0; i < count && text; i++, to += n) {
        const char *bytes = kit_token(t, id[i], &n);
        memcpy(to, bytes, n);
    }
    if (text) { text[length] = 0; }
    if (size) { *size = length; }
    tensor_scope_end(scope);
    return text;
}

#endif

// fields.c - fields of layers: which values are their defaults, for each type and rank, also those that no
// layer of the library has with a default. It reads a private function, so it brings the implementation.
#undef TENSOR_ALL_ROWS
#undef TENSOR_ALL_PASSES
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "test.h"

static int usual(int type, double normal, const void *at, int rank) {
    nn__field_t f = NN__LAST;
    f.name = "field";
    f.type = type;
    f.usual = normal;
    return nn__is_usual(&f, at, rank);
}

static void numbers(void) {
    const int64_t three = 3, none = -1;
    CHECK(usual(NN__INT, 3, &three, 0) && !usual(NN__INT, 4, &three, 0));
    CHECK(usual(NN__SIZE, -1, &none, 0) && !usual(NN__SIZE, -1, &three, 0));

    const double half = 0.5, tiny = 1e-5, nan = NAN;
    CHECK(usual(NN__FLOAT, 0.5, &half, 0) && !usual(NN__FLOAT, 0.5, &tiny, 0));
    CHECK(usual(NN__FLOAT_OR_NONE, 0.5, &half, 0) && !usual(NN__FLOAT_OR_NONE, 0.5, &tiny, 0));
    CHECK(!usual(NN__FLOAT_OR_NONE, 0, &tiny, 0) && !usual(NN__FLOAT_OR_NONE, 0.5, &nan, 0));
    CHECK(usual(NN__FLOAT_OR_NONE, NAN, &nan, 0) && !usual(NN__FLOAT_OR_NONE, NAN, &half, 0));

    const int yes = 1, word = 2;
    CHECK(usual(NN__BOOL, 1, &yes, 0) && !usual(NN__BOOL, 0, &yes, 0));
    CHECK(usual(NN__WORD, 2, &word, 0) && !usual(NN__WORD, 0, &word, 0));
}

// Of three sizes the last `rank` count.
static void sizes(void) {
    static const int64_t v[3] = {7, 1, 2}, ones[3] = {7, 1, 1};
    static const int types[2] = {NN__TUPLE, NN__SIZES};
    int k;
    for (k = 0; k < 2; k++) {
        CHECK(usual(types[k], 2, v, 1) && !usual(types[k], 1, v, 1));
        CHECK(!usual(types[k], 1, v, 2) && !usual(types[k], 2, v, 2));
        CHECK(usual(types[k], 1, ones, 2) && !usual(types[k], 1, ones, 3) && !usual(types[k], 7, ones, 3));
    }
}

static void always_printed(void) {
    const nn__list_t list = {1, {0, 0, 0, 0, 0, 0}};
    const double hidden = NN__SHOWN;
    CHECK(!usual(NN__LIST, 1, &list, 0) && !usual(NN__NOTE, 0, &list, 0));
    CHECK(!usual(NN__FLOAT, NN__SHOWN, &hidden, 0));
}

int main(void) {
    RUN(numbers);
    RUN(sizes);
    RUN(always_printed);
    return test_report();
}

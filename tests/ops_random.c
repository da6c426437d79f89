// ops_random.c - random numbers and ranges: known answers of the generator, moments, the same draws for any
// length, number of threads and instruction set, errors
#include "ops.h"

static long n_values, n_errors, n_threads;

static void arange(void) {
    tensor_t *t = tensor_arange(1, 1.3, 0.1, TENSOR_F64);
    int dtype;
    CHECK(tensor_numel(t) == 4); // rounding, as PyTorch
    CHECK_NEAR(((const double *)tensor_data(t))[3], 1.3, 1e-15);
    t = tensor_arange(5, -1, -2, TENSOR_I64);
    CHECK(tensor_numel(t) == 3 && ((const int64_t *)tensor_data(t))[2] == 1);
    CHECK(tensor_numel(tensor_arange(0, 0, 1, TENSOR_F32)) == 0);
    for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
        nd_t a;
        t = tensor_arange(0, 2, 1, (tensor_dtype_t)dtype);
        nd_read(&a, t);
        CHECK_MSG(a.n == 2 && a.v[0] == 0 && a.v[1] == 1 && a.dtype == dtype, "arange %s", dname(dtype));
        nd_free(&a);
        n_values++;
    }
    CHECK_POISON(tensor_arange(0, 1, 0, TENSOR_F32), TENSOR_ERR_SHAPE, "arange: step 0");
    CHECK_POISON(tensor_arange(0, 1, -1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange: step");
    CHECK_POISON(tensor_arange(0, NAN, 1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange");
    CHECK_POISON(tensor_arange(0, INFINITY, 1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange");
    CHECK_POISON(tensor_arange(0, 1, 1, (tensor_dtype_t)77), TENSOR_ERR_DTYPE, "77");
    t = tensor_linspace(-1, 2, 4);
    CHECK(((const float *)tensor_data(t))[0] == -1 && ((const float *)tensor_data(t))[1] == 0 &&
          ((const float *)tensor_data(t))[3] == 2);
    CHECK(tensor_numel(tensor_linspace(0, 1, 0)) == 0 && tensor_item(tensor_linspace(3, 9, 1)) == 3);
    CHECK_POISON(tensor_linspace(0, 1, -1), TENSOR_ERR_SHAPE, "linspace");
    t = tensor_eye(2, 3);
    CHECK(tensor_size(t, 1) == 3 && tensor_item(tensor_sum(t)) == 2 &&
          ((const float *)tensor_data(t))[4] == 1);
    CHECK_POISON(tensor_eye(-1, 2), TENSOR_ERR_SHAPE, "eye");
    n_values += 6, n_errors += 7;
}
// The first numbers of each distribution after tensor_manual_seed(42), prefix property, threads.
typedef tensor_t *(*draw_t)(int64_t n);
static tensor_t *draw_rand(int64_t n) { return tensor_rand(n); }
static tensor_t *draw_randn(int64_t n) { return tensor_randn(n); }
static tensor_t *draw_randint(int64_t n) { return tensor_randint(-5, 100, n); }
static tensor_t *draw_bernoulli(int64_t n) { return tensor_bernoulli(tensor_full(0.25, n)); }
static tensor_t *draw_uniform(int64_t n) { return tensor_uniform_(tensor_empty_of(TENSOR_F64, n), -1, 3); }
static tensor_t *draw_normal(int64_t n) { return tensor_normal_(tensor_empty(n), 2, 0.5); }
static tensor_t *draw_multinomial(int64_t n) {
    return tensor_multinomial(tensor_from(((float[]){1, 0, 3, 4}), TENSOR_F32, 4), n, 1);
}
static void draws(const char *name, draw_t draw, double mean, double deviation) {
    tensor_t *a, *b, *c;
    double m, s;
    nd_t v;
    int64_t k;
    tensor_manual_seed(42);
    a = draw(100003);
    b = draw(7);
    tensor_manual_seed(42);
    c = draw(1001);
    CHECK_MSG(same_bits(tensor_narrow(a, 0, 0, 1001), c), "%s: not a prefix of the longer draw", name);
    CHECK_MSG(same_bits(draw(7), b), "%s: the length of a draw shifts the next", name);
    tensor_set_num_threads(4);
    tensor_manual_seed(42);
    c = draw(100003);
    tensor_set_num_threads(1);
    CHECK_MSG(same_bits(a, c), "%s: 1 and 4 threads differ", name);
    n_threads++;
    for (k = 0; k < COUNT(isas); k++) {
        if (!isa_there[k]) { continue; }
        tensor_set_isa(isas[k]);
        tensor_manual_seed(42);
        CHECK_MSG(same_bits(a, draw(100003)), "%s: differs on %s", name, isas[k]);
        n_values++;
    }
    tensor_set_isa(NULL);
    nd_read(&v, a);
    for (m = s = 0, k = 0; k < v.n; k++) { m += v.v[k] / (double)v.n; }
    for (k = 0; k < v.n; k++) { s += (v.v[k] - m) * (v.v[k] - m) / (double)v.n; }
    CHECK_MSG(fabs(m - mean) < 4 * deviation / sqrt((double)v.n), "%s: mean %g, expected %g", name, m, mean);
    CHECK_MSG(fabs(sqrt(s) - deviation) < 0.02 * deviation, "%s: deviation %g, expected %g", name, sqrt(s),
              deviation);
    nd_free(&v);
}
static void uniform(void) {
    static const struct {
        uint64_t seed, stream, block;
        uint32_t out[4];
    } kat[] = {{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0, low words first
               {0x299f31d0a4093822u,
                0x0370734413198a2eu,
                0x85a308d3243f6a88u,
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    uint32_t w[4];
    tensor_t *t;
    int k;
    for (k = 0; k < COUNT(kat); k++) {
        TENSOR__(philox)(kat[k].seed, kat[k].stream, kat[k].block, w);
        CHECK_MSG(memcmp(w, kat[k].out, sizeof w) == 0, "philox known answer %d", k);
        n_values++;
    }
    // seed 0, stream 0: the first known answer is the first block of rand
    tensor_manual_seed(0);
    t = tensor_rand(4);
    for (k = 0; k < 4; k++) {
        CHECK(((const float *)tensor_data(t))[k] == (float)(kat[0].out[k] >> 8) * 5.9604644775390625e-8f);
    }
    draws("rand", draw_rand, 0.5, sqrt(1 / 12.0));
    draws("uniform_", draw_uniform, 1, 4 * sqrt(1 / 12.0));
    {
        tensor_generator_t g;
        tensor_manual_seed(7);
        tensor_rand(3);
        g = tensor_get_generator();
        CHECK(g.seed == 7 && g.offset == 1);
        t = tensor_rand(5);
        tensor_set_generator(g);
        CHECK(same_bits(t, tensor_rand(5)));
        CHECK(tensor_item(tensor_max(tensor_rand(100000))) < 1 &&
              tensor_item(tensor_min(tensor_rand(100000))) >= 0);
        CHECK(tensor_numel(tensor_rand(0)) == 0);
        CHECK_POISON(tensor_rand(-1), TENSOR_ERR_SHAPE, "rand");
        CHECK_POISON(tensor_uniform_(tensor_zeros_of(TENSOR_I64, 2), 0, 1), TENSOR_ERR_DTYPE, "i64");
        CHECK_POISON(tensor_uniform_(tensor_requires_grad_(tensor_zeros(2), 1), 0, 1), TENSOR_ERR_AUTOGRAD,
                     "leaf");
        n_values += 4, n_errors += 3;
    }
}
static void gaussian(void) {
    draws("randn", draw_randn, 0, 1);
    draws("normal_", draw_normal, 2, 0.5);
    CHECK_POISON(tensor_randn(-1), TENSOR_ERR_SHAPE, "randn");
    n_errors++;
}
static void randint(void) {
    tensor_t *t;
    draws("randint", draw_randint, 47, sqrt((105.0 * 105 - 1) / 12));
    t = tensor_randint(-5, 100, 100000);
    CHECK(tensor_item_i64(tensor_min(t)) == -5 && tensor_item_i64(tensor_max(t)) == 99);
    CHECK_POISON(tensor_randint(3, 3, 2), TENSOR_ERR_SHAPE, "randint: high 3 must be above low 3");
    t = tensor_randint(INT64_MIN, INT64_MAX, 1000);
    CHECK(tensor_item_i64(tensor_min(t)) < -((int64_t)1 << 60) && tensor_item_i64(tensor_max(t)) > (int64_t)1
                                                                                                       << 60);
    n_errors++, n_values += 2;
}
static void randperm(void) {
    tensor_t *a, *b, *c;
    int64_t k, sorted = 0;
    char seen[1000] = {0};
    tensor_manual_seed(5);
    a = tensor_randperm(1000);
    tensor_manual_seed(5);
    b = tensor_randperm(1000);
    c = tensor_randperm(1000);
    CHECK(same_bits(a, b) && !same_bits(a, c));
    for (k = 0; k < 1000; k++) {
        int64_t v = ((const int64_t *)tensor_data(a))[k];
        if (v >= 0 && v < 1000) { seen[v]++; }
        sorted += v == k;
    }
    CHECK(memchr(seen, 0, 1000) == NULL && sorted < 20);
    CHECK(tensor_numel(tensor_randperm(0)) == 0 && tensor_item_i64(tensor_randperm(1)) == 0);
    CHECK_POISON(tensor_randperm(-1), TENSOR_ERR_SHAPE, "randperm");
    n_values += 3, n_errors++;
}
static void bernoulli(void) {
    float p[2] = {0, 1};
    tensor_t *t;
    draws("bernoulli", draw_bernoulli, 0.25, sqrt(0.1875));
    t = tensor_bernoulli(tensor_expand(tensor_from(p, TENSOR_F32, 2), 1000, 2));
    CHECK(tensor_item(tensor_sum(tensor_select(t, 1, 0))) == 0 &&
          tensor_item(tensor_sum(tensor_select(t, 1, 1))) == 1000);
    CHECK_POISON(tensor_bernoulli(tensor_zeros_of(TENSOR_I64, 2)), TENSOR_ERR_DTYPE, "bernoulli");
    CHECK_POISON((tensor_bernoulli)(NULL), TENSOR_ERR_OWNER, "NULL");
    n_values++, n_errors += 2;
}
static tensor_t *draw_poisson(int64_t n) { return tensor_poisson(tensor_full(3.5, n)); }
static tensor_t *draw_poisson_much(int64_t n) { return tensor_poisson(tensor_full(200, n)); }
static void poisson(void) {
    draws("poisson", draw_poisson, 3.5, sqrt(3.5));
    draws("poisson 200", draw_poisson_much, 200, sqrt(200));
    CHECK(tensor_item(tensor_sum(tensor_poisson(tensor_zeros(100)))) == 0);
    CHECK_POISON(tensor_poisson(tensor_full(-1, 2)), TENSOR_ERR_INDEX, "poisson: rates [2] must lie in 0..");
    CHECK_POISON(tensor_poisson(tensor_full(NAN, 2)), TENSOR_ERR_INDEX, "poisson");
    CHECK_POISON(tensor_poisson(tensor_zeros_of(TENSOR_I64, 2)), TENSOR_ERR_DTYPE, "poisson");
    n_values++, n_errors += 3;
}
// Of weights 1, 0, 3, 4 the first draw is 2 with 3/8; 4, then 3 comes with 4/8 * 3/4, and so on: all six
// orders
// of two draws, and the third position is what is left. The weights of the caller stay.
static void multinomial_without_replacement(void) {
    enum { ROWS = 40000 };
    static int64_t pick[ROWS][3];
    double w[4] = {1, 0, 3, 4};
    int seen[4][4] = {{0}};
    tensor_t *row = tensor_from(w, TENSOR_F64, 4), *x = tensor_clone(tensor_expand(row, ROWS, 4));
    tensor_t *y = tensor_multinomial(x, 3), *one = tensor_multinomial(row, 2);
    CHECK(tensor_equal(x, tensor_expand(row, ROWS, 4)) && tensor_numel(one) == 2);
    tensor_copy_out(y, pick, sizeof pick);
    for (int i = 0; i < ROWS; i++) {
        int all = 0;
        for (int k = 0; k < 3; k++) { all |= 1 << pick[i][k]; }
        CHECK_MSG(all == 13, "row %d", i);
        seen[pick[i][0]][pick[i][1]]++;
    }
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            double p = a == b ? 0 : w[a] / 8 * w[b] / (8 - w[a]), off = fabs((double)seen[a][b] / ROWS - p);
            CHECK_MSG(off <= 5 * sqrt(p * (1 - p) / ROWS), "%d then %d: off by %g", a, b, off);
        }
    }
    n_values++;
}
static void multinomial(void) {
    float bad[] = {1, -1, 2}, none[] = {0, 0}, nan[] = {1, NAN};
    tensor_t *t;
    draws("multinomial", draw_multinomial, (0 + 3 * 2 + 4 * 3) / 8.0,
          sqrt((6 * 6 * 0 + 3 * 4 + 4 * 9) / 8.0 - 2.25 * 2.25));
    t = tensor_multinomial(tensor_rand(3, 5), 7, 1);
    CHECK(tensor_size(t, 0) == 3 && tensor_size(t, 1) == 7 && tensor_dtype(t) == TENSOR_I64);
    CHECK_POISON(tensor_multinomial(tensor_from(bad, TENSOR_F32, 3), 2), TENSOR_ERR_INDEX, "weight -1");
    CHECK_POISON(tensor_multinomial(tensor_from(none, TENSOR_F32, 2), 2), TENSOR_ERR_INDEX,
                 "no weight above 0");
    CHECK_POISON(tensor_multinomial(tensor_from(nan, TENSOR_F32, 2), 2), TENSOR_ERR_INDEX, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_zeros(2, 0), 2), TENSOR_ERR_INDEX, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_ones_of(TENSOR_I64, 2), 2), TENSOR_ERR_DTYPE, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_scalar(1, TENSOR_F32), 2), TENSOR_ERR_SHAPE, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_ones(2), -1), TENSOR_ERR_SHAPE, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_ones(2), 3), TENSOR_ERR_SHAPE,
                 "multinomial: 3 cannot be drawn from rows of weights [2] without replacement");
    CHECK_POISON(tensor_multinomial(tensor_to(tensor_eye(3, 3), TENSOR_F64), 2), TENSOR_ERR_INDEX,
                 "multinomial: row 0 has 1 weights above 0, 2 are to be drawn without replacement");
    n_values++, n_errors += 9;
}

int main(void) {
    RUN(prepare);
    RUN(arange);
    RUN(uniform);
    RUN(gaussian);
    RUN(randint);
    RUN(randperm);
    RUN(bernoulli);
    RUN(poisson);
    RUN(multinomial);
    RUN(multinomial_without_replacement);
    printf("%ld value cases, %ld with threads, %ld error cases\n", n_values, n_threads, n_errors);
    return test_report();
}

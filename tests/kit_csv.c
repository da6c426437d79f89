// kit_csv.c - examples/kit/csv.h: what pandas reads the same, what must be refused, locales
#include "kit.h"

#define KIT_CSV_IMPLEMENTATION
#include "../examples/kit/csv.h"

static int try_csv(const void *data, size_t size, const char *name) {
    kit_csv_t *csv = kit_parse_csv(data, size, name, ',');
    kit_csv_free(csv);
    return csv != NULL;
}

static int try_numbers(const void *data, size_t size, const char *name) {
    kit_csv_t *csv = kit_parse_csv(data, size, name, ',');
    tensor_t *x = csv ? kit_csv_numbers(csv, TENSOR_F32, NULL, 0) : tensor_detach(NULL);
    kit_csv_free(csv);
    return !tensor_is_poison(x);
}

static kit_csv_t *parse(const char *text) {
    return kit_parse_csv(text, strlen(text), "x.csv", ',');
}

static void fields_are_read(void) {
    static const struct {
        const char *text;
        int rows, columns;
        const char *last;
    } cases[] = {
        {"a,b\n1,2\n", 1, 2, "2"},
        {"a,b\r\n1,2\r\n3,4", 2, 2, "4"},
        {"a,b\r1,2\r", 1, 2, "2"},
        {"\xEF\xBB\xBF"
         "a,b\n1,2",
         1, 2, "2"},
        {"a,b\n\n1,2\n\n\n", 1, 2, "2"},
        {"a,b\n,\n", 1, 2, ""},
        {"a\n\"\"\n", 1, 1, ""},
        {"a,b\n1,\"x, y\"\n", 1, 2, "x, y"},
        {"a,b\n1,\"say \"\"hello\"\"\"\n", 1, 2, "say \"hello\""},
        {"a,b\n1,\"two\nlines\"\n", 1, 2, "two\nlines"},
        {"a,b\n1,in\"side\n", 1, 2, "in\"side"},
        {"a,b\n1, 2 \n", 1, 2, " 2 "},
        {"a", 0, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kit_csv_t *csv = parse(cases[i].text);
        const char *last = kit_csv_field(csv, kit_csv_rows(csv) - 1, kit_csv_columns(csv) - 1);
        CHECK_MSG(csv && kit_csv_rows(csv) == cases[i].rows && kit_csv_columns(csv) == cases[i].columns,
                  "case %d: %d rows, %d columns", (int)i, (int)kit_csv_rows(csv), (int)kit_csv_columns(csv));
        if (cases[i].last) { CHECK_TEXT(last, cases[i].last); }
        CHECK_TEXT(kit_csv_name(csv, 0), "a");
        CHECK(!kit_csv_field(csv, cases[i].rows, 0) && !kit_csv_field(csv, 0, cases[i].columns));
        CHECK(!kit_csv_field(csv, -1, 0) && !kit_csv_field(csv, 0, -1) && !kit_csv_name(csv, -1));
        kit_csv_free(csv);
    }
}

static void columns_are_numbers(void) {
    const char *names[] = {"c", "a"}, *classes[3];
    kit_csv_t *csv = parse("a,b,c\n1,red,-2.5e1\n+.5,green, 7 \n,red,iNf\n");
    tensor_t *x = kit_csv_numbers(csv, TENSOR_F64, names, 2), *y;
    const double *at = (const double *)tensor_data(x);
    int count;
    CHECK(tensor_size(x, 0) == 3 && tensor_size(x, 1) == 2 && tensor_dtype(x) == TENSOR_F64);
    CHECK(at[0] == -25 && at[1] == 1 && at[2] == 7 && at[3] == 0.5 && at[4] == INFINITY && at[5] != at[5]);
    CHECK(tensor_dtype(kit_csv_numbers(csv, TENSOR_F32, names, 2)) == TENSOR_F32);
    y = kit_csv_classes(csv, "b", classes, 3, &count);
    CHECK(count == 2 && tensor_item_i64(tensor_at(y, "0")) == 0 && tensor_item_i64(tensor_at(y, "1")) == 1);
    CHECK(tensor_item_i64(tensor_at(y, "2")) == 0);
    CHECK_TEXT(classes[1], "green");
    CHECK_POISON(kit_csv_classes(csv, "b", classes, 1, &count), TENSOR_ERR_FORMAT,
                 "x.csv: row 2: more classes");
    CHECK_POISON(kit_csv_classes(csv, "d", classes, 3, &count), TENSOR_ERR_INDEX, "there is no column \"d\"");
    CHECK_POISON(kit_csv_numbers(csv, TENSOR_F32, NULL, 0), TENSOR_ERR_FORMAT,
                 "x.csv: row 1: column \"b\": \"red\" is not a number");
    kit_csv_free(csv);
}

// In a dtype of integers a field must be one of its numbers.
static void whole_numbers(void) {
    static const struct {
        tensor_dtype_t dtype;
        const char *least, *most, *below, *above;
    } cases[] = {
        {TENSOR_BOOL, "0", "1", "-1", "2"},
        {TENSOR_U8, "0", "255", "-1", "256"},
        {TENSOR_I8, "-128", "127", "-129", "128"},
        {TENSOR_I16, "-32768", "32767", "-32769", "32768"},
        {TENSOR_I32, "-2147483648", "2147483647", "-2147483649", "2147483648"},
        {TENSOR_I64, "-9007199254740992", "9007199254740992", "-1e16", "1e16"},
    };
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "a\n%s\n%s\n", cases[i].least, cases[i].most);
        kit_csv_t *csv = parse(text);
        tensor_t *x = tensor_to(kit_csv_numbers(csv, cases[i].dtype, NULL, 0), TENSOR_F64);
        CHECK(tensor_item(tensor_at(x, "0, 0")) == strtod(cases[i].least, NULL));
        CHECK(tensor_item(tensor_at(x, "1, 0")) == strtod(cases[i].most, NULL));
        kit_csv_free(csv);
        const char *const wrong[] = {cases[i].below, cases[i].above, "0.5", "nan", "inf", "\"\""};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            snprintf(text, sizeof text, "a\n1\n%s\n", wrong[k]);
            csv = parse(text);
            CHECK_POISON(kit_csv_numbers(csv, cases[i].dtype, NULL, 0), TENSOR_ERR_FORMAT,
                         "x.csv: row 2: column \"a\": ");
            kit_csv_free(csv);
        }
    }
}

static void numbers_are_exact(void) {
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"0.1", 0.1},
        {"1e308", 1e308},
        {"4.9e-324", 4.9e-324},
        {"123456789012345678", 123456789012345678.0},
        {"1e999", INFINITY},
        {"-0", -0.0},
        {"9007199254740993", 9007199254740992.0},
        {"1.", 1},
        {"-Infinity", -INFINITY},
    };
    static const char *const wrong[] = {"0x10",  "1,5",    "1 2",  "1e", "e5",  ".",   "-",    "--1",
                                        "1.2.3", "nan(1)", "infx", "1f", "1d3", "0b1", "1_000"};
    const char *locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
    for (size_t l = 0; l < 3; l++) {
        if (!setlocale(LC_NUMERIC, locales[l])) { continue; }
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char text[100];
            snprintf(text, sizeof text, "a\n%s\n", cases[i].text);
            kit_csv_t *csv = parse(text);
            CHECK_NEAR(tensor_item(kit_csv_numbers(csv, TENSOR_F64, NULL, 0)), cases[i].value, 0);
            kit_csv_free(csv);
        }
    }
    setlocale(LC_NUMERIC, "C");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[100];
        snprintf(text, sizeof text, "a\n\"%s\"\n", wrong[i]);
        KIT_REFUSED(try_numbers, text, strlen(text), "row 1: column \"a\"");
    }
}

static void hostile_tables(void) {
    static const struct {
        const char *text;
        size_t size;
        const char *part;
    } cases[] = {
        {"", 0, "there is no header line"},
        {"\n\r\n\r", 4, "there is no header line"},
        {"a,b\n1\n", 6, "line 2: fewer fields"},
        {"a,b\n1,2\n\n1,2,3\n", 15, "line 4: more fields"},
        {"a\n\"1\n", 5, "line 2: a quoted field has no end"},
        {"a\n1,\"2\n3\n", 9, "line 2: a quoted field has no end"},
        {"a\n\"1\"x\n", 7, "line 2: text behind the closing quote"},
        {"a\n1\0\n", 5, "a NUL byte"},
        {"\"", 1, "a quoted field has no end"},
        {"a,\"b\"\"", 6, "a quoted field has no end"},
    };
    char *large = (char *)malloc(300000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KIT_REFUSED(try_csv, cases[i].text, cases[i].size, cases[i].part);
    }
    memset(large, '7', 300000);
    large[0] = 'a';
    large[1] = '\n';
    CHECK(kit_try(try_csv, large, 300000, "a field of 300,000 characters"));
    KIT_REFUSED(try_numbers, large, 300000, "is not a number");
    memset(large, ',', 300000);
    CHECK(kit_try(try_csv, large, 300000, "300,001 columns"));
    free(large);
    const char *whole = "\xEF\xBB\xBF"
                        "a,\"b \"\"c\"\"\",d\r\n1,\"2\",3\r4,5,6\n";
    kit_try_truncations(try_csv, whole, strlen(whole), 0);
    kit_try_damage(try_csv, whole, strlen(whole), 0, strlen(whole));
    kit_try_damage(try_numbers, whole, strlen(whole), 0, strlen(whole));
}

// What a new user brings: another separator, no header, marks for what is missing, rows without a label.
static void tables_of_users(void) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"a;\"b\"\n1;\"2\"\n",
         "row 1: column \"a;\"b\"\": \"1;\"2\"\" is not a number; is the separator ';'?"},
        {"a;b\n1,5;2\n", "x.csv: line 2: more fields than the header has; is the separator ';'?"},
        {"\"a\";b\n1;2\n", "x.csv: line 1: text behind the closing quote; is the separator ';'?"},
        {"a\tb\n1\t2\n", "is not a number; is the separator a tab?"},
        {"5.1,3.5,setosa\n4.9,3,setosa\n", "x.csv: line 1: there are numbers where the names of the columns"},
        {"-1,1\n2,3\n", "x.csv: line 1: there are numbers where the names of the columns must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kit_csv_t *csv = parse(cases[i].text);
        if (csv) { kit_csv_numbers(csv, TENSOR_F32, NULL, 0); }
        CHECK_MSG(!strstr(tensor_error_text(), ".h:"), "the kit's own line: %s", tensor_error_text());
        CHECK_ERROR(TENSOR_ERR_FORMAT, cases[i].part);
        kit_csv_free(csv);
    }
    kit_csv_t *csv = kit_parse_csv("a,b\n1,2\n", 8, "x.csv", ';');
    kit_csv_classes(csv, "b", NULL, 0, &(int){0});
    CHECK_ERROR(TENSOR_ERR_INDEX, "x.csv: there is no column \"b\"; is the separator ','?");
    kit_csv_free(csv);

    const char *const years = "2001,2002,x-1\n1,2,3\n";            // these are names
    csv = parse(years);
    CHECK(csv && kit_csv_rows(csv) == 1);
    kit_csv_free(csv);

    csv = parse("a,kind\n1,cat\nNA,dog\n3,\n4,?\n5,cow\n6, \n");
    CHECK(kit_csv_missing(csv, "NA") == 1 && kit_csv_missing(csv, "?") == 1);
    CHECK(kit_csv_missing(csv, NULL) == 0);
    CHECK(kit_csv_drop_empty(csv, "kind") == 3 && kit_csv_rows(csv) == 3);
    CHECK_TEXT(kit_csv_field(csv, 2, 0), "5");
    CHECK_TEXT(kit_csv_field(csv, 2, 1), "cow");
    const char *a = "a";
    const double *at = (const double *)tensor_data(kit_csv_numbers(csv, TENSOR_F64, &a, 1));
    CHECK(at[0] == 1 && at[1] != at[1] && at[2] == 5);
    CHECK(kit_csv_drop_empty(csv, "none") == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "there is no column \"none\"");
    CHECK(kit_csv_missing(NULL, "NA") == 0 && kit_csv_drop_empty(NULL, "a") == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "csv: the table is NULL");
    kit_csv_free(csv);
}

static void files_are_read(void) {
    const char *path = kit_temporary("a.csv", "a;b\n1,5;2\n", 10);
    kit_csv_t *csv = kit_read_csv(path, ';');
    CHECK_TEXT(kit_csv_field(csv, 0, 0), "1,5");
    kit_csv_free(csv);
    remove(path);
    CHECK(!kit_read_csv(path, ','));
    CHECK_ERROR(TENSOR_ERR_IO, path);
    CHECK(!kit_read_csv(NULL, ','));
    CHECK_ERROR(TENSOR_ERR_IO, "no path");
    kit_csv_free(NULL);
    CHECK(kit_csv_rows(NULL) == 0 && kit_csv_columns(NULL) == 0 && kit_csv_find(NULL, "a") == -1);
    CHECK_POISON(kit_csv_numbers(NULL, TENSOR_F32, NULL, 0), TENSOR_ERR_OWNER, "kit_csv_numbers: the table");
    CHECK(!kit_parse_csv(NULL, 4, "x.csv", ','));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "x.csv");
}

int main(void) {
    RUN(fields_are_read);
    RUN(columns_are_numbers);
    RUN(whole_numbers);
    RUN(numbers_are_exact);
    RUN(hostile_tables);
    RUN(tables_of_users);
    RUN(files_are_read);
    return test_report();
}

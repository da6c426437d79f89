// csv.c - examples/kit/csv.h: an error that names the file, or a table whose fields, written in quotes, are
// read again as they are
#include "fuzz.h"

#define KIT_CSV_IMPLEMENTATION
#include "../../examples/kit/csv.h"

static void csv_setup(void) {}

// The error of a reader of the kit: one of a file, by its name. Clears it.
static void csv_refused(const char *file) {
    int code = tensor_error_code();
    PROMISE(code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_OUT_OF_MEMORY, "%s", tensor_error_text());
    PROMISE(strstr(tensor_error_text(), file) != NULL, "%s", tensor_error_text());
    tensor_clear_error();
}

static size_t csv_put(char *to, const char *field) {
    size_t n = 0;
    to[n++] = '"';
    for (; *field; field++) {
        if (*field == '"') { to[n++] = '"'; }
        to[n++] = *field;
    }
    to[n++] = '"';
    return n;
}

static void csv_again(const kit_csv_t *csv, char separator) {
    int64_t columns = kit_csv_columns(csv), rows = kit_csv_rows(csv);
    size_t room = 1, n = 0;
    for (int64_t row = -1; row < rows; row++) {
        for (int64_t k = 0; k < columns; k++) {
            room += 2 * strlen(row < 0 ? kit_csv_name(csv, k) : kit_csv_field(csv, row, k)) + 3;
        }
    }
    char *text = (char *)malloc(room);
    if (!text) { abort(); }
    for (int64_t row = -1; row < rows; row++) {
        for (int64_t k = 0; k < columns; k++) {
            n += csv_put(text + n, row < 0 ? kit_csv_name(csv, k) : kit_csv_field(csv, row, k));
            text[n++] = k + 1 < columns ? separator : '\n';
        }
    }
    kit_csv_t *same = kit_parse_csv(text, n, "again.csv", separator);
    PROMISE(same != NULL, "what was written is refused: %s", tensor_error_text());
    PROMISE(kit_csv_columns(same) == columns && kit_csv_rows(same) == rows, "it has other rows or columns");
    for (int64_t row = 0; same && row < rows; row++) {
        for (int64_t k = 0; k < columns; k++) {
            PROMISE(strcmp(kit_csv_field(same, row, k), kit_csv_field(csv, row, k)) == 0,
                    "field %lld of row %lld is another", (long long)k, (long long)row);
        }
    }
    kit_csv_free(same);
    free(text);
}

// The first byte of an input chooses the separator.
static void csv(const uint8_t *data, size_t size) {
    const char separator = size ? ",;\t"[*data % 3] : ',';
    if (size) { data++, size--; }
    kit_csv_t *c = kit_parse_csv(data, size, "fuzz.csv", separator);
    if (!c) {
        csv_refused("fuzz.csv");
        return;
    }
    int64_t columns = kit_csv_columns(c), rows = kit_csv_rows(c);
    PROMISE(columns > 0 && (uint64_t)(rows + 1) * (uint64_t)columns <= 2 * (uint64_t)size + 1,
            "%lld rows of %lld", (long long)rows, (long long)columns);
    PROMISE(!kit_csv_field(c, rows, 0) && !kit_csv_field(c, 0, columns) && !kit_csv_field(c, -1, 0) &&
                !kit_csv_name(c, columns) && !kit_csv_name(c, -1),
            "a field that is not there");
    csv_again(c, separator);
    tensor_t *x = kit_csv_numbers(c, TENSOR_F64, NULL, 0);
    if (tensor_is_poison(x)) {
        csv_refused("fuzz.csv");
    } else {
        PROMISE(tensor_numel(x) == rows * columns, "%lld numbers", (long long)tensor_numel(x));
    }
    const char *classes[4];
    int count = 0;
    x = kit_csv_classes(c, kit_csv_name(c, columns - 1), classes, 4, &count);
    if (tensor_is_poison(x)) {
        csv_refused("fuzz.csv");
    } else {
        PROMISE(tensor_numel(x) == rows && count <= 4, "%d classes", count);
    }
    kit_csv_free(c);
}
FUZZ_TARGET(csv, csv_setup)

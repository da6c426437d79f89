// csv.h - tables of comma-separated values, as numbers and as classes
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_CSV_IMPLEMENTATION
//   #include "kit/csv.h"
//
// kit_read_csv takes a path, kit_parse_csv the same bytes in memory and a name for error texts. A table is
// read as a whole or refused as a whole: the error names the file, the line and the reason. Rows have indices
// from 0; error texts count them from 1, below the header.
#ifndef KIT_CSV_H
#define KIT_CSV_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// A table of texts: one header line, then rows of as many fields. Lines end in LF, CR LF or CR; empty lines
// and a UTF-8 byte order mark are skipped; a field may be in double quotes. A header with 5.1 or -2 among its
// names is refused, because such a file has no header.
typedef struct kit_csv_t kit_csv_t;

//   separator  ',', ';' or '\t'
//   -> table, NULL on failure;  errors FORMAT, OUT_OF_MEMORY
kit_csv_t *kit_parse_csv(const void *data, size_t size, const char *name, char separator);
//   -> as above;  errors as above, IO
kit_csv_t *kit_read_csv(const char *path, char separator);
void kit_csv_free(kit_csv_t *csv);

int64_t kit_csv_rows(const kit_csv_t *csv); // without the header
int64_t kit_csv_columns(const kit_csv_t *csv);
const char *kit_csv_name(const kit_csv_t *csv, int64_t column);               // NULL = out of range
const char *kit_csv_field(const kit_csv_t *csv, int64_t row, int64_t column); // NULL = out of range
int64_t kit_csv_find(const kit_csv_t *csv, const char *name);                 // first of that name, or -1

// Makes the fields empty whose text is this mark, as "NA" or "?".
//   -> how many;  errors none
int64_t kit_csv_missing(kit_csv_t *csv, const char *mark);
// Takes the rows out of the table whose field in that column is empty: they have no label to learn.
//   -> how many;  errors INDEX (no such column)
int64_t kit_csv_drop_empty(kit_csv_t *csv, const char *name);

// Columns as numbers. An empty field is NaN; nan and inf are read; hexadecimal numbers and decimal commas are
// errors.
//   dtype   TENSOR_F32 or another one; in one of integers, a field that is not a whole number of its range
//           (of i64: of -2^53..2^53) is an error, also an empty one
//   names   n names, or NULL for all columns
//   -> new [rows, n];  errors FORMAT (names the row, from 1, column and text), INDEX (no such column),
//      OUT_OF_MEMORY
tensor_t *kit_csv_numbers(const kit_csv_t *csv, tensor_dtype_t dtype, const char *const *names, int n);

// A column of words as class numbers, counted up in the order in which the words appear.
//   classes receives the words (they live as long as the table), count of them; at most max are allowed
//   -> new i64 [rows];  errors FORMAT (more than max), INDEX (no such column), OUT_OF_MEMORY
tensor_t *kit_csv_classes(const kit_csv_t *csv, const char *name, const char **classes, int max, int *count);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_CSV_IMPLEMENTATION) && !defined(KIT_CSV_DONE)
#define KIT_CSV_DONE

#include "file.h"

#include <locale.h>
#include <math.h>

struct kit_csv_t {
    char *text, *file; // the fields, each with a NUL behind it; the name for error texts
    char **fields;     // (rows + 1) * columns, the header first
    char other;        // a separator that the header has in place of the given one, or 0
    size_t have, room; // fields
    int64_t rows, columns;
};

void kit_csv_free(kit_csv_t *csv) {
    if (!csv) { return; }
    free(csv->text);
    free(csv->file);
    free(csv->fields);
    free(csv);
}

static int kit_csv__add_field(kit_csv_t *csv, char *field) {
    if (csv->have == csv->room) {
        size_t room = csv->room ? 2 * csv->room : 64;
        char **grown = NULL;
        if (room <= SIZE_MAX / sizeof *grown) { grown = (char **)realloc(csv->fields, room * sizeof *grown); }
        if (!grown) { return 0; }
        csv->fields = grown;
        csv->room = room;
    }
    csv->fields[csv->have++] = field;
    return 1;
}

// Takes the field at *from, writes it and its NUL at *to (which is never ahead of *from), stops behind the
// separator or at the end of the line.   -> NULL, or what is wrong
static const char *kit_csv__field(char **from, char **to, const char *end, char separator, int64_t *line) {
    char *r = *from, *w = *to;
    int quoted = r < end && *r == '"';
    if (quoted) {
        const int64_t opened = *line;
        for (r++;; r++) {
            if (r >= end) {
                *line = opened;
                return "a quoted field has no end";
            }
            if (*r == '"' && (r + 1 >= end || r[1] != '"')) { break; }
            if (*r == '"') { r++; }
            if (*r == '\n') { ++*line; }
            *w++ = *r;
        }
        r++;
        if (r < end && *r != separator && *r != '\n' && *r != '\r') {
            return "text behind the closing quote";
        }
    }
    while (r < end && *r != separator && *r != '\n' && *r != '\r') { *w++ = *r++; }
    *from = r;
    *to = w;
    return NULL;
}

// A decimal number, whatever the locale; empty = NaN.   -> 1, or 0: it is none
static int kit_csv__number(const char *s, double *value) {
    char text[128];
    size_t n = 0;
    int digits = 0, word;
    while (*s == ' ' || *s == '\t') { s++; }
    for (const char *p = s; *p; p++) { digits |= *p >= '0' && *p <= '9'; }
    while (s[n]) { n++; }
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t')) { n--; }
    if (n >= sizeof text) { return 0; }
    memcpy(text, s, n);
    text[n] = 0;
    *value = strtod("nan", NULL);
    if (n == 0) { return 1; }
    for (size_t i = 0; i < n; i++) {
        if (text[i] >= 'A' && text[i] <= 'Z') { text[i] = (char)(text[i] + 32); }
    }
    const char *unsigned_part = text + (text[0] == '+' || text[0] == '-');
    word =
        !strcmp(unsigned_part, "nan") || !strcmp(unsigned_part, "inf") || !strcmp(unsigned_part, "infinity");
    if (!word && (!digits || strspn(text, "0123456789+-.e") != n)) { return 0; }
    for (size_t i = 0; i < n && !word; i++) {
        if (text[i] == '.') { text[i] = localeconv()->decimal_point[0]; }
    }
    char *end;
    *value = strtod(text, &end);
    return end == text + n;
}

// Whether the names of the columns are data: 5.1 or -2; a whole number may be a name.
static int kit_csv__header_is_data(const kit_csv_t *csv) {
    double value;
    for (int64_t k = 0; k < csv->columns; k++) {
        const char *name = csv->fields[k];
        if (strpbrk(name, "0123456789") && strpbrk(name, ".-") && kit_csv__number(name, &value)) { return 1; }
    }
    return 0;
}

// Another separator, if the first line has that one and not the given one.   -> the separator, 0 = none
static char kit_csv__other_separator(const char *text, char separator) {
    static const char all[] = {',', ';', '\t'};
    size_t line = strcspn(text, "\r\n");
    for (int k = 0; k < 3 && !memchr(text, separator, line); k++) {
        if (memchr(text, all[k], line)) { return all[k]; }
    }
    return 0;
}

// Raises an error of the table, and says so if it looks as if it had another separator.   -> poison
static tensor_t *kit_csv__fail(const kit_csv_t *csv, int code, const char *record, int64_t n,
                               const char *why) {
    char text[240];
    const char *hint = "";
    if (csv->other == '\t') { hint = "; is the separator a tab?"; }
    if (csv->other == ';') { hint = "; is the separator ';'?"; }
    if (csv->other == ',') { hint = "; is the separator ','?"; }
    snprintf(text, sizeof text, "%.200s%s", why, hint);
    return kit_file__fail(code, csv->file, record, n, text);
}

// All lines.   -> NULL, or what is wrong with *line
static const char *kit_csv__lines(kit_csv_t *csv, size_t size, char separator, int64_t *line) {
    char *r = csv->text, *w = csv->text, *end = csv->text + size;
    if (size >= 3 && memcmp(r, "\xEF\xBB\xBF", 3) == 0) { r += 3; }
    *line = 0;
    if (memchr(csv->text, 0, size)) { return "a NUL byte: this is not text"; }
    for (*line = 1; r < end; ++*line) {
        int64_t count = 0;
        if (*r != '\n' && *r != '\r') {
            int more = 1;
            while (more) {
                char *field = w;
                const char *wrong = kit_csv__field(&r, &w, end, separator, line);
                if (wrong) { return wrong; }
                more = r < end && *r == separator;
                if (!kit_csv__add_field(csv, field)) { return "out of memory"; }
                count++;
                if (!more) { break; }
                r++;
                *w++ = 0;
            }
            if (csv->columns == 0) {
                csv->columns = count;
            } else if (count == csv->columns) {
                csv->rows++;
            } else {
                return count < csv->columns ? "fewer fields than the header has"
                                            : "more fields than the header has";
            }
        }
        int crlf = r + 1 < end && r[0] == '\r' && r[1] == '\n';
        r += crlf ? 2 : 1;
        if (count) { *w++ = 0; }
    }
    return csv->columns ? NULL : "there is no header line";
}

kit_csv_t *kit_parse_csv(const void *data, size_t size, const char *name, char separator) {
    kit_csv_t *csv = (kit_csv_t *)calloc(1, sizeof *csv);
    const char *wrong = "out of memory";
    int64_t line = -1;
    if (!name) { name = "(memory)"; }
    if (!data) { size = 0; }
    if (csv && size < SIZE_MAX) {
        csv->text = (char *)malloc(size + 1);
        csv->file = (char *)malloc(strlen(name) + 1);
    }
    if (csv && csv->text && csv->file) {
        if (size) { memcpy(csv->text, data, size); }
        csv->text[size] = 0;
        memcpy(csv->file, name, strlen(name) + 1);
        csv->other = kit_csv__other_separator(csv->text, separator);
        wrong = kit_csv__lines(csv, size, separator, &line);
        if (!wrong && kit_csv__header_is_data(csv)) {
            line = 1;
            wrong = "there are numbers where the names of the columns must be";
        }
        if (!wrong) { return csv; }
    }
    if (strcmp(wrong, "out of memory") == 0) {
        kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, name, "line", line, wrong);
    } else {
        kit_csv__fail(csv, TENSOR_ERR_FORMAT, "line", line, wrong);
    }
    kit_csv_free(csv);
    return NULL;
}

kit_csv_t *kit_read_csv(const char *path, char separator) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    kit_csv_t *csv = data ? kit_parse_csv(data, size, path, separator) : NULL;
    free(data);
    return csv;
}

int64_t kit_csv_rows(const kit_csv_t *csv) {
    return csv ? csv->rows : 0;
}
int64_t kit_csv_columns(const kit_csv_t *csv) {
    return csv ? csv->columns : 0;
}

const char *kit_csv_name(const kit_csv_t *csv, int64_t column) {
    return column >= 0 && column < kit_csv_columns(csv) ? csv->fields[column] : NULL;
}

const char *kit_csv_field(const kit_csv_t *csv, int64_t row, int64_t column) {
    if (row < 0 || row >= kit_csv_rows(csv) || column < 0 || column >= csv->columns) { return NULL; }
    return csv->fields[(row + 1) * csv->columns + column];
}

int64_t kit_csv_find(const kit_csv_t *csv, const char *name) {
    for (int64_t k = 0; name && k < kit_csv_columns(csv); k++) {
        if (strcmp(csv->fields[k], name) == 0) { return k; }
    }
    return -1;
}

static int64_t kit_csv__find(const kit_csv_t *csv, const char *name) {
    int64_t k = name ? kit_csv_find(csv, name) : -1;
    char text[128];
    if (k >= 0) { return k; }
    if (!csv) {
        kit_file__fail(TENSOR_ERR_OWNER, "csv", NULL, -1, "the table is NULL");
        return -1;
    }
    snprintf(text, sizeof text, "there is no column \"%.60s\"", name ? name : "(NULL)");
    kit_csv__fail(csv, TENSOR_ERR_INDEX, NULL, -1, text);
    return -1;
}

int64_t kit_csv_missing(kit_csv_t *csv, const char *mark) {
    int64_t found = 0;
    for (int64_t i = kit_csv_columns(csv); mark && csv && i < (csv->rows + 1) * csv->columns; i++) {
        if (strcmp(csv->fields[i], mark) != 0) { continue; }
        csv->fields[i] += strlen(mark);
        found++;
    }
    return found;
}

int64_t kit_csv_drop_empty(kit_csv_t *csv, const char *name) {
    int64_t column = kit_csv__find(csv, name), rows = kit_csv_rows(csv), kept = 0;
    if (column < 0) { return 0; }
    for (int64_t row = 0; row < rows; row++) {
        char **from = csv->fields + (row + 1) * csv->columns;
        if (from[column][strspn(from[column], " \t")] == 0) { continue; }
        memmove(csv->fields + (++kept) * csv->columns, from, (size_t)csv->columns * sizeof *from);
    }
    csv->rows = kept;
    return rows - kept;
}

// Whether dtype has this number; floats have all.
static int kit_csv__fits(tensor_dtype_t dtype, double value) {
    const double two_to_53 = 9007199254740992.0;
    double least = 0, most = 0;
    switch (dtype) {
    case TENSOR_BOOL: most = 1; break;
    case TENSOR_U8: most = UINT8_MAX; break;
    case TENSOR_I8: most = INT8_MAX; break;
    case TENSOR_I16: most = INT16_MAX; break;
    case TENSOR_I32: most = INT32_MAX; break;
    case TENSOR_I64: most = two_to_53; break;
    default: return 1;
    }
    if (dtype != TENSOR_BOOL && dtype != TENSOR_U8) { least = dtype == TENSOR_I64 ? -most : -most - 1; }
    return value >= least && value <= most && value == floor(value);
}

tensor_t *kit_csv_numbers(const kit_csv_t *csv, tensor_dtype_t dtype, const char *const *names, int n) {
    int64_t count = names ? n : kit_csv_columns(csv), rows = kit_csv_rows(csv);
    int64_t dims[2] = {rows, count};
    if (!csv) {
        return kit_file__fail(TENSOR_ERR_OWNER, "kit_csv_numbers", NULL, -1, "the table is NULL");
    }
    if (count < 0) { return (tensor_detach)(NULL); }
    tensor_t *x = kit_file__tensor(dims, 2, TENSOR_F64);
    double *to = (double *)tensor_data_mut(x);
    for (int64_t k = 0; k < count && to; k++) {
        int64_t column = names ? kit_csv__find(csv, names[k]) : k;
        if (column < 0) { return (tensor_detach)(NULL); }
        for (int64_t row = 0; row < rows; row++) {
            const char *field = kit_csv_field(csv, row, column);
            double *value = &to[row * count + k];
            const int number = kit_csv__number(field, value);
            if (number && kit_csv__fits(dtype, *value)) { continue; }
            char text[160];
            snprintf(text, sizeof text, "column \"%.50s\": \"%.50s\" is not %s", csv->fields[column], field,
                     number ? "a whole number of the dtype's range" : "a number");
            return kit_csv__fail(csv, TENSOR_ERR_FORMAT, "row", row + 1, text);
        }
    }
    return dtype == TENSOR_F64 ? x : tensor_to(x, dtype);
}

tensor_t *kit_csv_classes(const kit_csv_t *csv, const char *name, const char **classes, int max, int *count) {
    int64_t column = kit_csv__find(csv, name), rows = kit_csv_rows(csv);
    int found = 0;
    *count = 0;
    if (column < 0) { return (tensor_detach)(NULL); }
    tensor_t *y = kit_file__tensor(&rows, 1, TENSOR_I64);
    int64_t *to = (int64_t *)tensor_data_mut(y);
    for (int64_t row = 0; row < rows && to; row++) {
        const char *field = kit_csv_field(csv, row, column);
        int k = 0;
        while (k < found && strcmp(classes[k], field) != 0) { k++; }
        if (k == found && found == max) {
            return kit_file__fail(TENSOR_ERR_FORMAT, csv->file, "row", row + 1, "more classes than allowed");
        }
        if (k == found) { classes[found++] = field; }
        to[row] = k;
    }
    *count = found;
    return y;
}

#endif

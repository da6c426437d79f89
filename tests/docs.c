// docs.c - docs/ops.md from the op tables, the headers' prototypes and the fixtures
//
//   build/tests/docs print     writes it to stdout (make docs)
//   build/tests/docs           fails when docs/ops.md is another text
//
// An op is a public function of an op chapter that gives tensors. Its row in the tables is found by its name,
// by `rows` below, or it has none: made of other ops. Dtypes are those PyTorch accepts for the first input
// and the fixtures replay, or else what the prototype's comment says.
#define TENSOR_BACKEND
#include "test.h"

// ---- the tables ----

typedef struct row_t {
    const char *name, *kind, *family, *grad;
} row_t;
#define POINTWISE(ID, name, kind, ...) {#name, #kind, "POINTWISE", "yes"},
#define COMPARE(ID, name, nin, kind, ...) {#name, #kind, "POINTWISE", "NOGRAD"},
#define BITWISE(ID, name, ...) {#name, "BIT", "POINTWISE", "NOGRAD"},
#define OTHER(ID, name, family, nin, nout, cpu, scratch, grad, ...) {#name, "", #family, #grad},
#define NN(ID, name, family, nin, required, nout, cpu, scratch, grad, ...) {#name, "", #family, #grad},
static const row_t table[] = {TENSOR_OPS_UNARY(POINTWISE) TENSOR_OPS_COPY(POINTWISE)
                                  TENSOR_OPS_BINARY(POINTWISE) TENSOR_OPS_TERNARY(POINTWISE)
                                      TENSOR_OPS_COMPARE(COMPARE) TENSOR_OPS_BITWISE(BITWISE)
                                          TENSOR_OPS_OTHER(OTHER) NN_OPS(NN)};
enum { ROWS = (int)(sizeof table / sizeof table[0]) };

// Functions whose row has another name.
static const char *const rows[][2] = {
    {"empty", "fill"},        {"from", "fill"},       {"wrap", "fill"},
    {"scalar", "fill"},       {"detach", "reshape"},  {"addmm", "matmul"},
    {"amax_dim", "amax"},     {"amin_dim", "amin"},   {"at", "slice"},
    {"bmm", "matmul"},        {"copy_", "clone"},     {"dot", "matmul"},
    {"eye", "fill"},          {"flatten", "reshape"}, {"full", "fill"},
    {"linspace", "arange"},   {"max", "amax"},        {"min", "amin"},
    {"mT", "permute"},        {"mm", "matmul"},       {"movedim", "permute"},
    {"mv", "matmul"},         {"narrow", "slice"},    {"nll_loss", "cross_entropy"},
    {"normal_", "randn"},     {"ones", "fill"},       {"select", "slice"},
    {"split", "slice"},       {"chunk", "slice"},     {"squeeze", "reshape"},
    {"std", "var"},           {"to", "clone"},        {"contiguous", "clone"},
    {"transpose", "permute"}, {"uniform_", "rand"},   {"unsqueeze", "reshape"},
    {"view", "reshape"},      {"zeros", "fill"},      {"adaptive_avg_pool2d", "avg_pool2d"},
};

// Names in PyTorch that are not torch.<name>, or torch.nn.functional.<name> in tensor_nn.h.
static const char *const torch_names[][2] = {
    {"at", "Tensor[...]"},
    {"clamp_tensor", "torch.clamp"},
    {"div_mode", "torch.div"},
    {"elu_", "F.elu_"},
    {"hardsigmoid", "F.hardsigmoid"},
    {"hardswish", "F.hardswish"},
    {"hardtanh", "F.hardtanh"},
    {"hardtanh_", "F.hardtanh_"},
    {"leaky_relu_", "F.leaky_relu_"},
    {"mish", "F.mish"},
    {"tensordot_dims", "torch.tensordot"},
    {"norm_p", "torch.norm"},
    {"norm_p_dims", "torch.norm"},
    {"round_decimals", "torch.round"},
    {"rpow_scalar", "torch.pow"},
    {"contiguous", "Tensor.contiguous"},
    {"elu", "F.elu"},
    {"embedding", "F.embedding"},
    {"expand", "Tensor.expand"},
    {"from", "torch.tensor"},
    {"gelu", "F.gelu"},
    {"gelu_tanh", "F.gelu(approximate=\"tanh\")"},
    {"leaky_relu", "F.leaky_relu"},
    {"logsigmoid", "F.logsigmoid"},
    {"mT", "Tensor.mT"},
    {"one_hot", "F.one_hot"},
    {"repeat", "Tensor.repeat"},
    {"rsub_scalar", "torch.rsub"},
    {"scalar", "torch.tensor"},
    {"silu", "F.silu"},
    {"slice", "Tensor[start:end:step]"},
    {"softplus", "F.softplus"},
    {"to", "Tensor.to"},
    {"view", "Tensor.view"},
    {"wrap", "torch.from_numpy"},
};

// Dtypes of ops without fixtures whose comment has no list.
static const char *const dtype_names[][2] = {
    {"bernoulli", "floats"}, {"multinomial", "floats"}, {"normal_", "floats"},
    {"rand", "f32"},         {"randint", "i64"},        {"randn", "f32"},
    {"randperm", "i64"},     {"uniform_", "floats"},    {"embedding", "i32 i64, weight floats"},
    {"one_hot", "i32 i64"},
};

// Chapters without ops, and functions of op chapters that are none.
static const char *const chapters_without[] = {
    "manual",   "config",   "types", "errors",    "context",  "scopes", "inspect",
    "autograd", "sites",    "cpp",   "nn-manual", "modules",  "layers", "init",
    "optim",    "schedule", "data",  "files",     "progress", "nn-cpp",
};
static const char *const no_ops[] = {"manual_seed", "get_generator", "set_generator"};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
static int listed(const char *const *list, int n, const char *name) {
    while (n-- > 0)
        if (strcmp(list[n], name) == 0) return 1;
    return 0;
}
static const char *other(const char *const (*list)[2], int n, const char *name) {
    while (n-- > 0)
        if (strcmp(list[n][0], name) == 0) return list[n][1];
    return NULL;
}

// ---- text ----

typedef struct text_t {
    char *at;
    size_t length, room;
} text_t;
static text_t page;

static void put(text_t *t, const char *what, size_t n) {
    if (t->length + n + 1 > t->room) {
        t->room = (t->length + n + 1) * 2;
        t->at = (char *)realloc(t->at, t->room);
    }
    memcpy(t->at + t->length, what, n);
    t->at[t->length += n] = 0;
}
static void say(text_t *t, const char *what) {
    put(t, what, strlen(what));
}
static void clear(text_t *t) {
    t->length = 0;
    put(t, "", 0);
}
static int ends(const char *s, const char *tail) {
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}
static char *slurp(const char *path) {
    FILE *f = fopen(path, "rb");
    char *s;
    long n;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    s = (char *)malloc((size_t)n + 1);
    s[fread(s, 1, (size_t)n, f)] = 0;
    fclose(f);
    return s;
}

// ---- fixtures ----

static nn_safetensors_t *readers[16];
static int nreaders;

static const char *cases_of(const char *op) {
    int k;
    for (k = 0; k < nreaders; k++) {
        const char *lines = nn_safetensors_metadata(readers[k], op);
        if (lines) return lines;
    }
    return NULL;
}

// ---- prototypes ----

static text_t structs; // the text of all args structs seen so far in a header
static int nops, ncomposed, ngrad;

// "x, weight, .stride, .padding": members of an args struct; options have a dot.
static void members(const char *name, text_t *out) {
    char head[128];
    const char *p, *end;
    int options = 0, first = 1;
    snprintf(head, sizeof head, "typedef struct %.90s {", name);
    p = structs.at ? strstr(structs.at, head) : NULL;
    CHECK_MSG(p != NULL, "docs: no struct %s", name);
    if (!p) return;
    for (end = strstr(p, "\n}"); (p = strstr(p, " TENSOR_INIT")) != NULL && p < end; p++) {
        const char *a = p;
        while (a[-1] == '_' || (a[-1] >= '0' && a[-1] <= '9') || (a[-1] >= 'A' && a[-1] <= 'Z') ||
               (a[-1] >= 'a' && a[-1] <= 'z'))
            a--;
        if (strncmp(a, "site_ ", 6) == 0) continue;
        if (strncmp(a, "surplus_ ", 9) == 0) {
            options = 1;
            continue;
        }
        say(out, first ? "" : ", ");
        say(out, options ? "." : "");
        put(out, a, (size_t)(p - a));
        first = 0;
    }
}

// The dtypes of the first input (or the result) in the fixtures; without cases what the comment says.
static void dtypes(const char *op, const row_t *row, const char *comment, const char *text, text_t *out) {
    static const char *const floats = "f32 f64 f16 bf16 ", *const boolean = "bool ";
    char list[128] = "", integers[64] = "", every[128], numbers[128], whole[128];
    const char *lines = cases_of(op), *p;
    int seen[TENSOR_DTYPE_COUNT] = {0}, k, pass;
    for (p = lines; p && *p; p += strcspn(p, "\n"), p += *p == '\n') {
        static const char *const marks[] = {"in=", " s=", "out="};
        const char *at = NULL, *end = p + strcspn(p, "\n");
        for (k = 0; k < 3 && !at; k++) {
            at = strstr(p, marks[k]);
            if (at > end) at = NULL;
        }
        if (!at) continue;
        at = strchr(at, '=') + 1;
        for (k = 0; k < TENSOR_DTYPE_COUNT; k++) {
            const char *name = tensor_dtype_name((tensor_dtype_t)k);
            seen[k] |= strcspn(at, ". \n") == strlen(name) && strncmp(at, name, strlen(name)) == 0;
        }
    }
    // Floats, integers, bool; each in the order of the enumeration.
    for (pass = 0; pass < 3; pass++)
        for (k = 0; k < TENSOR_DTYPE_COUNT; k++) {
            const char *name = tensor_dtype_name((tensor_dtype_t)k);
            int kind = strchr("fb", *name) && strcmp(name, "bool") != 0 ? 0
                       : strcmp(name, "bool") == 0                      ? 2
                                                                        : 1;
            if (kind != pass) continue;
            if (kind == 1) strcat(strcat(integers, name), " ");
            if (seen[k]) strcat(strcat(list, name), " ");
        }
    snprintf(every, sizeof every, "%s%s%s", floats, integers, boolean);
    snprintf(numbers, sizeof numbers, "%s%s", floats, integers);
    snprintf(whole, sizeof whole, "%s%s", integers, boolean);
    if (other(dtype_names, COUNT(dtype_names), op))
        say(out, other(dtype_names, COUNT(dtype_names), op));
    else if (*list) {
        if (strcmp(list, every) == 0)
            say(out, "all");
        else if (strcmp(list, numbers) == 0)
            say(out, "numbers");
        else if (strcmp(list, whole) == 0)
            say(out, "integers bool");
        else if (strcmp(list, floats) == 0)
            say(out, "floats");
        else
            put(out, list, strlen(list) - 1);
    } else if (strstr(comment, "f32/f64/f16/bf16") || (row && strcmp(row->kind, "FLT") == 0))
        say(out, "floats");
    else if (row && strcmp(row->kind, "BIT") == 0)
        say(out, "integers bool");
    else
        say(out,
            (row && *row->kind) || strstr(text, "dtype") || ends(op, "_like") ? "all" : "see its comment");
}

// One declaration: "TENSOR_API tensor_t *tensor_abs(tensor_t *x);"
static void declaration(const char *text, const char *chapter, const char *own, const char *comment,
                        const char *all, int nn) {
    char name[128], base[128], stem[128];
    const char *open = strchr(text, '('), *a = open, *torch, *says;
    const row_t *row = NULL;
    text_t t = {0}, arguments = {0};
    size_t n;
    int k, gradient, function = nn && (strcmp(chapter, "functional") == 0 || strcmp(chapter, "losses") == 0);
    if (!open) return;
    while (a > text && a[-1] != ' ' && a[-1] != '*' && a[-1] != '\n')
        a--;
    snprintf(name, sizeof name, "%.*s", (int)(open - a), a);
    if (strncmp(name, "tensor_", 7) != 0 || strstr(name, "__") || ends(name, "_defaults")) return;
    if (strncmp(text + 11, "void ", 5) == 0) return;
    if (strncmp(text + 11, "int", 3) == 0 && !strstr(text, "tensor_t **out")) return;
    snprintf(base, sizeof base, "%s", name + 7);
    if (ends(base, "_with"))
        base[strlen(base) - 5] = 0;
    else if (ends(base, "_n") && strstr(text, "int "))
        base[strlen(base) - 2] = 0;
    if (listed(no_ops, COUNT(no_ops), base)) return;
    // The row: of the name, or of the name without what makes it a twin.
    snprintf(stem, sizeof stem, "%s", base);
    for (k = 0; k < 5 && !row; k++) {
        static const char *const tails[] = {"", "_", "_scalar", "_dim", "_dims"};
        const char *there;
        int r;
        if (*tails[k] && ends(stem, tails[k])) stem[strlen(stem) - strlen(tails[k])] = 0;
        there = other(rows, COUNT(rows), stem);
        if (ends(stem, "_like")) there = "fill";
        for (r = 0; r < ROWS && !row; r++)
            if (strcmp(table[r].name, there ? there : stem) == 0) row = &table[r];
    }
    says = strstr(own, "grad") ? own : strstr(comment, "grad") ? comment : all;
    gradient = strstr(says, "grad") && !strstr(says, "grad none") && !strstr(says, "no grad");
    if (strcmp(chapter, "create") == 0) gradient = strstr(own, "grad dx") != NULL;
    if (row && strcmp(row->grad, "NOGRAD") == 0) gradient = 0;
    if (cases_of(base)) {
        int seen = strstr(cases_of(base), " grad=") != NULL;
        CHECK_MSG(!seen || (!strstr(own, "grad none") && !strstr(own, "no grad")),
                  "docs: %s has gradients in the fixtures; its comment says none", name);
        gradient = seen;
    }
    // Arguments: the struct's members, or the text between the parentheses on one line.
    clear(&arguments);
    if (ends(name, "_with")) {
        const char *type = open + 1;
        if (strncmp(type, "tensor_t *x, ", 13) == 0) { // what comes before the options
            say(&arguments, "x, ");
            type += 13;
        }
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(type, " "), type);
        members(stem, &arguments);
    } else
        for (a = open + 1; *a && strncmp(a, ");", 2) != 0; a++)
            if (*a != '\n' && !(*a == ' ' && a[-1] == ' '))
                put(&arguments, *a == '\n' ? " " : a, 1);
            else if (*a == '\n')
                say(&arguments, " ");
    clear(&t);
    say(&t, "| `tensor_");
    say(&t, base);
    if (ends(name, "_n") && strcmp(name + 7, base) != 0) say(&t, "`, `_n");
    say(&t, "` | `");
    for (a = arguments.at, n = 0; *a; a++)
        if (!(*a == ' ' && (n == 0 || t.at[t.length - 1] == ' '))) put(&t, a, 1), n = 1;
    say(&t, "` | ");
    dtypes(base, row, own, text, &t);
    say(&t, gradient ? " | yes | " : " | - | ");
    say(&t, row ? "yes" : "composed");
    say(&t, " | - | ");
    torch = other(torch_names, COUNT(torch_names), base);
    if (torch)
        say(&t, torch);
    else {
        snprintf(stem, sizeof stem, "%s", base);
        say(&t, ends(base, "_") ? "Tensor." : function ? "F." : "torch.");
        if (ends(stem, "_scalar_"))
            strcpy(stem + strlen(stem) - 8, "_");
        else if (ends(stem, "_scalar"))
            stem[strlen(stem) - 7] = 0;
        else if (ends(stem, "_dim"))
            stem[strlen(stem) - 4] = 0;
        else if (ends(stem, "_dims"))
            stem[strlen(stem) - 5] = 0;
        if (strncmp(stem, "linalg_", 7) == 0) stem[6] = '.';
        say(&t, stem);
    }
    say(&t, " |\n");
    put(&page, t.at, t.length);
    nops++;
    ncomposed += !row;
    ngrad += gradient;
    free(t.at);
    free(arguments.at);
}

static void header(const char *path, const char *stop, int nn) {
    char *text = slurp(path), *line, *next;
    text_t comment = {0}, own = {0}, all = {0}, now = {0}; // the group's; the last one; the chapter's
    char chapter[64] = "", title[128] = "";
    int head = 0, commenting = 0, in_struct = 0, printed = 0, first = 1, behind = 0;
    CHECK_MSG(text != NULL, "docs: %s cannot be read", path);
    clear(&comment);
    clear(&own);
    clear(&all);
    clear(&now);
    clear(&structs);
    for (line = text; line && *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = 0;
        if (strncmp(line, stop, strlen(stop)) == 0) break;
        if (strncmp(line, "// >>", 5) == 0 && strstr(line, "MARK: ")) {
            snprintf(chapter, sizeof chapter, "%.*s", (int)strcspn(line + 5, " "), line + 5);
            snprintf(title, sizeof title, "%.120s", strstr(line, "MARK: ") + 6);
            clear(&all);
            head = 1;
            printed = 0;
        } else if (head && strncmp(line, "//", 2) != 0)
            head = 0;
        if (head) {
            say(&all, line);
            continue;
        }
        if (in_struct || strncmp(line, "typedef struct ", 15) == 0) {
            say(&structs, line);
            say(&structs, "\n");
            in_struct = strchr(line, ';') == NULL || (in_struct && line[0] != '}');
            if (strchr(line, '{') && !strchr(line, '}')) in_struct = 1;
            if (line[0] == '}') in_struct = 0;
            continue;
        }
        if (!now.length && line[0] == 0) {
            clear(&comment);
            clear(&own);
            commenting = 0;
            first = 1;
        } else if (!now.length && strncmp(line, "//", 2) == 0) {
            if (!commenting) clear(&own);
            commenting = 1;
            if (first) say(&comment, line);
            say(&own, line);
        } else if (now.length || strncmp(line, "TENSOR_API ", 11) == 0) {
            commenting = first = 0;
            if (behind) clear(&own);
            behind = 0;
            if (strstr(line, "; //") || strstr(line, ";  ")) { // a comment behind it is its own
                clear(&own);
                say(&own, strchr(line, ';'));
                behind = 1;
            }
            say(&now, line);
            say(&now, "\n");
            if (strchr(line, ';')) {
                if (!listed(chapters_without, COUNT(chapters_without), chapter)) {
                    if (!printed) {
                        char text_head[256];
                        snprintf(text_head, sizeof text_head,
                                 "\n## %s\n\n| Op | Arguments | Dtypes | Gradient | CPU | CUDA | PyTorch |\n"
                                 "| --- | --- | --- | --- | --- | --- | --- |\n",
                                 title);
                        say(&page, text_head);
                        printed = 1;
                    }
                    declaration(now.at, chapter, own.at, comment.at, all.at, nn);
                }
                clear(&now);
            }
        }
    }
    free(text), free(comment.at), free(own.at), free(all.at), free(now.at);
}

static void make(void) {
    static const char *const files[] = {"pointwise", "reduce", "linalg", "index", "nn", "pointwise2",
                                        "sort", "linalg2", "index2", "norm", "conv"};
    char path[128], count[256];
    text_t body;
    int k;
    for (k = 0; k < COUNT(files); k++) {
        snprintf(path, sizeof path, "tests/fixtures/%s.safetensors", files[k]);
        readers[nreaders] = nn_safetensors_open(path);
        CHECK_MSG(readers[nreaders] != NULL, "docs: %s", tensor_error_text());
        nreaders += readers[nreaders] != NULL;
    }
    clear(&page);
    header("tensor.h", "// >>shared ", 0);
    header("tensor_nn.h", "// >>nn-shared ", 1);
    body = page;
    memset(&page, 0, sizeof page);
    snprintf(count, sizeof count, "%d ops, %d with a gradient, %d of them made of other ops. ", nops, ngrad,
             ncomposed);
    say(&page, "# Ops\n\nWritten by `make docs` from the op tables, the headers and the fixtures; `make "
               "test` fails when "
               "it is stale.\n\n");
    say(&page, count);
    say(&page,
        "An argument\nwith a dot is an option, `.name = value`; what it means stands at the function in the "
        "header. Dtypes are those of\nthe first input that PyTorch accepts and the fixtures replay: floats "
        "(f32 f64 f16 "
        "bf16), integers, numbers (both), bool, all.\nF is `torch.nn.functional`. There is no CUDA backend "
        "yet.\n");
    put(&page, body.at, body.length);
    free(body.at);
    for (k = 0; k < nreaders; k++)
        nn_safetensors_close(readers[k]);
}

static void fresh(void) {
    char *there = slurp("docs/ops.md");
    make();
    CHECK(nops > 200);
    CHECK_MSG(there && strcmp(there, page.at) == 0, "docs/ops.md is stale: make docs");
    free(there);
}

int main(int argc, char **argv) {
    int code;
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        make();
        fputs(page.at, stdout);
        return test_failed != 0;
    }
    RUN(fresh);
    code = test_report();
    free(page.at), free(structs.at);
    return code;
}

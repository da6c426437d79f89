// docs.c - docs/ops.md from the op tables, the headers' prototypes and the fixtures
//
//   build/tests/docs print     writes it to stdout (make docs)
//   build/tests/docs program   writes its examples as a C program that prints them (tests/readme.sh)
//   build/tests/docs           fails when docs/ops.md is another text, or an op has no example
//
// An op is a public function of an op chapter that gives tensors. Its row in the tables is found by its name,
// by `rows` below, or it has none: made of other ops. Dtypes and gradients are tried: the op's first fixture
// case is called with its data in each dtype. Every op has a fixture or is in `without`.
#define TENSOR_BACKEND
#include "op_examples.h"

// ---- the tables ----

typedef struct row_t {
    const char *name, *kind, *family, *grad;
} row_t;
#define POINTWISE(ID, name, kind, ...) {#name, #kind, "POINTWISE", "yes"},
#define COMPARE(ID, name, nin, kind, ...) {#name, #kind, "POINTWISE", "NOGRAD"},
#define BITWISE(ID, name, ...) {#name, "BIT", "POINTWISE", "NOGRAD"},
#define DOUBLE(ID, name, ...) {#name, "DBL", "POINTWISE", "yes"},
#define OTHER(ID, name, family, nin, nout, kernel, grad, ...) {#name, "", #family, #grad},
#define NN(ID, name, family, inputs, nout, kernel, grad, ...) {#name, "", #family, #grad},
static const row_t table[] = {TENSOR_OPS_UNARY(POINTWISE) TENSOR_OPS_COPY(POINTWISE)
                                  TENSOR_OPS_BINARY(POINTWISE) TENSOR_OPS_TERNARY(POINTWISE)
                                      TENSOR_OPS_COMPARE(COMPARE) TENSOR_OPS_BITWISE(BITWISE)
                                          TENSOR_OPS_DOUBLE1(DOUBLE) TENSOR_OPS_DOUBLE2(DOUBLE)
                                              TENSOR_OPS_OTHER(OTHER) NN_OPS(NN)};
enum { ROWS = (int)(sizeof table / sizeof table[0]) };

// Functions whose row has another name.
static const char *const rows[][2] = {
    {"empty", "fill"},        {"from", "fill"},       {"wrap", "fill"},
    {"scalar", "fill"},       {"detach", "reshape"},  {"addmm", "matmul"},
    {"amax_dim", "amax"},     {"amin_dim", "amin"},   {"at", "slice"},
    {"bmm", "matmul"},        {"copy_", "clone"},     {"dot", "matmul"},
    {"eye", "fill"},          {"flatten", "reshape"}, {"full", "fill"},
    {"max", "amax"},          {"min", "amin"},
    {"mT", "permute"},        {"mm", "matmul"},       {"movedim", "permute"},
    {"mv", "matmul"},         {"narrow", "slice"},    {"nll_loss", "cross_entropy"},
    {"normal_", "randn"},     {"ones", "fill"},       {"select", "slice"},
    {"split", "slice"},       {"chunk", "slice"},     {"squeeze", "reshape"},
    {"std", "var"},           {"to", "clone"},        {"contiguous", "clone"},
    {"to_non_blocking", "clone"},                     {"pin_memory", "clone"},
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
    {"to_non_blocking", "Tensor.to"},
    {"pin_memory", "Tensor.pin_memory"},
    {"elu", "F.elu"},
    {"embedding", "F.embedding"},
    {"expand", "Tensor.expand"},
    {"from", "torch.tensor"},
    {"gelu", "F.gelu"},
    {"gelu_tanh", "F.gelu(approximate=\"tanh\")"},
    {"leaky_relu", "F.leaky_relu"},
    {"linear_relu", "F.relu(F.linear)"},
    {"linear_gelu_tanh", "F.gelu(F.linear, approximate=\"tanh\")"},
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
    {"squeeze_all", "torch.squeeze"},
    {"T", "Tensor.T"},
    {"expand_as", "Tensor.expand_as"},
    {"reshape_as", "Tensor.reshape_as"},
    {"view_as", "Tensor.view_as"},
    {"unfold_dim", "Tensor.unfold"},
    {"tensor_split_at", "torch.tensor_split"},
    {"index_add_alpha", "torch.index_add(alpha=...)"},
    {"take_along_dim", "torch.take_along_dim"},
    {"scatter_value", "torch.scatter"},
    {"scatter_value_", "Tensor.scatter_"},
    {"index", "Tensor[...]"},
    {"repeat_interleave_tensor", "torch.repeat_interleave"},
    {"rearrange", "- (einops.rearrange)"},
    {"im2col", "F.unfold"},
    {"col2im", "F.fold"},
    {"lstm", "torch.lstm"},
    {"gru", "torch.gru"},
    {"rnn", "torch.rnn_tanh"},
    {"lstm_cell", "torch.lstm_cell"},
    {"gru_cell", "torch.gru_cell"},
    {"rnn_cell", "torch.rnn_tanh_cell"},
    {"channels_last", "Tensor.contiguous(memory_format=torch.channels_last)"},
    {"wrap", "torch.from_numpy"},
    {"linspace_of", "torch.linspace(dtype=...)"},
    {"logspace_of", "torch.logspace(dtype=...)"},
    {"masked_fill_tensor", "torch.masked_fill"},
    {"masked_fill_tensor_", "Tensor.masked_fill_"},
    {"index_fill_tensor", "torch.index_fill"},
    {"index_fill_tensor_", "Tensor.index_fill_"},
    {"hsplit_at", "torch.hsplit"},
    {"vsplit_at", "torch.vsplit"},
    {"dsplit_at", "torch.dsplit"},
    {"rnormal_scalar", "torch.normal"},
    {"normal_size", "torch.normal"},
};

// Ops without a fixture (SKIP in ops.def says why): their dtypes.
static const char *const without[][2] = {
    {"empty", "all"},           {"empty_like", "all"},       {"empty_strided", "all"},
    {"from", "all"},            {"wrap", "all"},             {"rand", "f32"},
    {"randn", "f32"},           {"randint", "i64"},          {"randperm", "i64"},
    {"linear_relu", "floats"},  {"linear_gelu_tanh", "floats"},
    {"rand_like", "floats"},    {"randn_like", "floats"},    {"randint_like", "numbers"},
    {"normal", "floats"},       {"bernoulli", "floats"},     {"poisson", "floats"},
    {"multinomial", "floats"},  {"uniform_", "floats"},      {"normal_", "floats"},
    {"exponential_", "floats"}, {"bernoulli_", "all"},       {"cauchy_", "floats"},
    {"geometric_", "numbers"},  {"log_normal_", "floats"},   {"random_", "all"},
    {"gumbel_softmax", "floats"}, {"to_non_blocking", "all"}, {"pin_memory", "all"},
    {"normal_scalar", "floats"}, {"rnormal_scalar", "floats"}, {"normal_size", "f32"},
    {"rand_of", "floats"},      {"randn_of", "floats"},
    {"feature_alpha_dropout", "floats"}, {"triplet_margin_with_distance_loss", "floats"},
    {"fractional_max_pool2d", "floats"}, {"fractional_max_pool3d", "floats"},
    {"svd_lowrank", "f32 f64"}, {"pca_lowrank", "f32 f64"},
};

// Chapters without ops, and functions of op chapters that are none.
static const char *const chapters_without[] = {
    "manual",   "config",   "types", "errors",    "context",  "scopes", "inspect",
    "autograd", "capture",  "sites", "cpp",       "nn-manual", "modules",  "layers", "init",
    "optim",    "schedule", "data",  "files",     "formats",   "progress", "nn-cpp",
};
static const char *const no_ops[] = {"get_default_device", "get_default_dtype", "get_generator",
                                     "manual_seed",        "set_generator",     "wrap_strided",
                                     "from_dlpack",        "to_dlpack",         "from_dlpack_unversioned",
                                     "to_dlpack_unversioned"};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
static int listed(const char *const *list, int n, const char *name) {
    while (n-- > 0) {
        if (strcmp(list[n], name) == 0) { return 1; }
    }
    return 0;
}
static const char *other(const char *const (*list)[2], int n, const char *name) {
    while (n-- > 0) {
        if (strcmp(list[n][0], name) == 0) { return list[n][1]; }
    }
    return NULL;
}

// The name of an op of torch.special or torch.signal, as ops.def has it.
static const char *special(const char *name) {
    static char text[80];
    int k;
    for (k = 0; k < COUNT(ops); k++) {
        if (strcmp(ops[k].name, name) == 0 && (strncmp(ops[k].torch, "torch.special.", 14) == 0 ||
                                               strncmp(ops[k].torch, "torch.signal.", 13) == 0)) {
            snprintf(text, sizeof text, "%.*s", (int)strcspn(ops[k].torch, "("), ops[k].torch);
            return text;
        }
    }
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
static int excuse(const char *op) {
    int k;
    for (k = 0; k < COUNT(without) && strcmp(without[k][0], op) != 0; k++) {}
    CHECK_MSG(k < COUNT(without), "docs: %s has no fixture, and no reason in `without`", op);
    return k < COUNT(without) ? k : 0;
}
static int ends(const char *s, const char *tail) {
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}
static char *slurp(const char *path) {
    FILE *f = fopen(path, "rb");
    char *s;
    long n;
    if (!f) { return NULL; }
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    s = (char *)malloc((size_t)n + 1);
    s[fread(s, 1, (size_t)n, f)] = 0;
    fclose(f);
    return s;
}

// ---- fixtures ----

static nn_safetensors_t *readers[FIXTURE_FILES], *cases_in; // the file of what cases_of gave

static int is_float(tensor_t *x) {
    tensor_dtype_t d = tensor_dtype(x);
    return d == TENSOR_F32 || d == TENSOR_F64 || d == TENSOR_F16 || d == TENSOR_BF16;
}
static const char *cases_of(const char *op) {
    int k;
    for (k = 0; k < FIXTURE_FILES && readers[k]; k++) {
        const char *lines = nn_safetensors_metadata(readers[k], op);
        cases_in = readers[k];
        if (lines) { return lines; }
    }
    return NULL;
}

// Whether the op takes data of dtype d: all inputs that have the dtype of the first float (if there is none,
// of the first), or what it makes. Errors about values tell nothing. graph becomes 1 if a result has a
// gradient.
static int takes(const char *op, const char *lines, tensor_dtype_t d, int *graph) {
    tensor_scope_t scope = tensor_scope_begin();
    arguments_t a;
    char line[4096];
    int k, data = -1, good;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(lines, "\n"), lines);
    read_arguments(cases_in, line, &a);
    for (k = a.nin - 1; k >= 0; k--) {
        if (a.in[k] && (data < 0 || is_float(a.in[k]) || !is_float(a.in[data]))) { data = k; }
    }
    if (data >= 0) {
        tensor_dtype_t from = tensor_dtype(a.in[data]);
        for (k = 0; k < a.nin; k++) {
            if (a.in[k] && tensor_dtype(a.in[k]) == from) { a.in[k] = tensor_to(a.in[k], d); }
        }
    } else if (dtype_of(a.s) < TENSOR_DTYPE_COUNT) {
        snprintf(a.s, sizeof a.s, "%s", tensor_dtype_name(d));
    }
    for (k = 0; k < a.nin; k++) {
        if (a.in[k] && is_float(a.in[k])) { a.in[k] = tensor_requires_grad_(tensor_detach(a.in[k]), 1); }
    }
    CHECK_OK();
    ops[find(op)].call(&a);
    if (tensor_error_code() == TENSOR_ERR_AUTOGRAD && a.nin > 1) { // a gradient of the other inputs alone
        tensor_clear_error();
        a.in[0] = tensor_detach(a.in[0]);
        ops[find(op)].call(&a);
    }
    good = tensor_error_code() != TENSOR_ERR_DTYPE && tensor_error_code() != TENSOR_ERR_UNSUPPORTED;
    if (data < 0 && good) { good = tensor_dtype(a.out[0]) == d; }
    for (k = 0; k < a.nout && tensor_ok(); k++) { *graph |= tensor_requires_grad(a.out[k]); }
    tensor_clear_error();
    tensor_scope_end(scope);
    if (module) { nn_free(module); }
    module = NULL;
    return good;
}

// ---- examples ----

static text_t examples, program, runs;      // of the chapter; the C program: its functions, its main
static int nexamples, repeated;

// Whether an example shows nothing: several answers that are all true or all false, or its first input again.
static int shows_nothing(const example_t *e) {
    size_t n = strlen(e->gives);
    int yes = strstr(e->gives, "true") != NULL, no = strstr(e->gives, "false") != NULL;
    if (strchr(e->gives, ',') && yes != no) { return 1; }
    return n > 2 && strncmp(e->inputs, "a = ", 4) == 0 && strncmp(e->inputs + 4, e->gives, n) == 0 &&
           (e->inputs[4 + n] == 0 || e->inputs[4 + n] == ' ');
}

// Three lines: inputs, call, what it gives. Small inputs if the op takes them.
static void example(const char *base, const char *type) {
    static const char *const without_device[] = {"to_non_blocking", "pin_memory"};     // their error is shown
    // Their result has the elements of x, or elements too near to be told apart.
    static const char *const the_same[] = {
        "clone",        "contiguous", "detach",  "positive",  "atleast_1d", "atleast_2d",
        "channels_last", "squeeze",   "view_dtype", "nextafter"};
    static example_t e;
    tensor_scope_t scope = tensor_scope_begin();
    static char line[16000];
    char last[160];
    int made;
    snprintf(last, sizeof last, "tensor_%s(", base);
    if (examples.at && strstr(examples.at, last)) {         // another function of the same op
        tensor_scope_end(scope);
        repeated++;
        return;
    }
    made = example_of(base, type, 1, &e);
    if (!made || !tensor_ok()) {
        tensor_clear_error();
        made = example_of(base, type, 0, &e);
    }
    CHECK_MSG(made, "docs: %s has no example: its row gives no call", base);
    CHECK_MSG(tensor_ok() || listed(without_device, COUNT(without_device), base),
              "docs: the example of %s fails: %s", base, tensor_error_text());
    tensor_clear_error();
    tensor_scope_end(scope);
    if (!made) { return; }
    CHECK_MSG(!shows_nothing(&e) || listed(the_same, COUNT(the_same), base),
              "docs: the example of %s shows nothing: %s  %s => %s", base, e.inputs, e.call, e.gives);
    snprintf(line, sizeof line, "%s%s%s%s\n=> %s\n", nexamples && examples.length ? "\n" : "", e.inputs,
             *e.inputs ? "\n" : "", e.call, e.gives);
    say(&examples, line);
    snprintf(line, sizeof line,
             "static void example%d(void) {\n    %s\n    tensor_manual_seed(%d);\n    %s\n}\n", nexamples,
             e.make, EXAMPLE_SEED, e.show);
    say(&program, line);
    snprintf(line, sizeof line, "    run(example%d);\n", nexamples);
    say(&runs, line);
    nexamples++;
}

static void end_chapter(void) {
    if (!examples.length) { return; }
    say(&page, "\n```text\n");
    put(&page, examples.at, examples.length);
    say(&page, "```\n");
    clear(&examples);
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
    if (!p) { return; }
    for (end = strstr(p, "\n}"); (p = strstr(p, " TENSOR_INIT")) != NULL && p < end; p++) {
        const char *a = p;
        while (a[-1] == '_' || (a[-1] >= '0' && a[-1] <= '9') || (a[-1] >= 'A' && a[-1] <= 'Z') ||
               (a[-1] >= 'a' && a[-1] <= 'z')) {
            a--;
        }
        if (strncmp(a, "site_ ", 6) == 0) { continue; }
        if (strncmp(a, "options_are_named_ ", 19) == 0) {
            options = 1;
            continue;
        }
        say(out, first ? "" : ", ");
        say(out, options ? "." : "");
        put(out, a, (size_t)(p - a));
        first = 0;
    }
}

static void dtypes(const char *op, text_t *out, int *graph) {
    static const char *const groups[3] = {"f32 f64 f16 bf16 ", "i32 i64 u8 i8 i16 ", "bool "};
    static const char *const names[3] = {"floats", "integers", "bool"};
    const char *lines = cases_of(op);
    int g, all = 0;
    text_t list = {0};
    clear(&list);
    for (g = 0; g < 3; g++) {
        char some[64] = "", name[8];
        const char *p;
        for (p = groups[g]; sscanf(p, "%7s", name) == 1; p += strlen(name) + 1) {
            if (takes(op, lines, dtype_of(name), graph)) { strcat(strcat(some, name), " "); }
        }
        if (strcmp(some, groups[g]) == 0) {
            all |= 1 << g;
            snprintf(some, sizeof some, "%s ", names[g]);
        }
        say(&list, some);
    }
    if (all == 7) {
        say(out, "all");
    } else if (all == 3 && strcmp(list.at, "floats integers ") == 0) {
        say(out, "numbers");
    } else {
        put(out, list.at, list.length ? list.length - 1 : 0);
    }
    CHECK_MSG(list.length > 0, "docs: %s takes no dtype", op);
    free(list.at);
}

// By its own kernels, by the CPU's, or by the one for some dtypes: as the tests on the device found.
static void on_cuda(const row_t *row, text_t *out) {
    static const char *const no_kernel[] = {"VIEW", "COMPOSED", "CUSTOM", "TRANSFER"};
    static char *ran;
    char head[64], line[256];
    const char *p, *cpu;
    if (!row || listed(no_kernel, COUNT(no_kernel), row->family)) {
        say(out, row ? "yes" : "composed");
        return;
    }
    if (!ran) { ran = slurp("tests/cuda/rows.txt"); }
    snprintf(head, sizeof head, "%.50s: ", row->name);
    for (p = ran; p && strncmp(p, head, strlen(head)) != 0;) {
        p = strchr(p, '\n');
        if (p) { p++; }
    }
    CHECK_MSG(p != NULL, "docs: tests/cuda/rows.txt has no %s", row->name);
    if (!p) { return; }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
    cpu = strstr(line, " over the CPU");
    say(out, !cpu ? "native" : cpu == line + strlen(head) - 1 ? "over the CPU" : "native;");
    if (cpu && cpu != line + strlen(head) - 1) { say(out, cpu); }
}
// One declaration: "TENSOR_API tensor_t *tensor_abs(tensor_t *x);"
static void declaration(const char *text, const char *chapter, const char *own, const char *comment,
                        const char *all, int nn) {
    char name[128], base[128], stem[128];
    const char *open = strchr(text, '('), *a = open, *torch, *says;
    const row_t *row = NULL;
    text_t t = {0}, arguments = {0}, types = {0};
    size_t n;
    int k, gradient, function = nn && (strcmp(chapter, "functional") == 0 || strcmp(chapter, "losses") == 0);
    if (!open) { return; }
    while (a > text && a[-1] != ' ' && a[-1] != '*' && a[-1] != '\n') { a--; }
    snprintf(name, sizeof name, "%.*s", (int)(open - a), a);
    if (strncmp(name, "tensor_", 7) != 0 || strstr(name, "__") || ends(name, "_defaults")) { return; }
    if (strncmp(text + 11, "void ", 5) == 0) { return; }
    if (strncmp(text + 11, "int", 3) == 0 && !strstr(text, "tensor_t **out")) { return; }
    snprintf(base, sizeof base, "%s", name + 7);
    if (ends(base, "_with")) {
        base[strlen(base) - 5] = 0;
    } else if (ends(base, "_n_")) {
        strcpy(base + strlen(base) - 3, "_");
    } else if (ends(base, "_n") && strstr(text, "int ")) {
        base[strlen(base) - 2] = 0;
    }
    if (listed(no_ops, COUNT(no_ops), base)) { return; }
    // The row: of the name, or of the name without what makes it a twin.
    snprintf(stem, sizeof stem, "%s", base);
    for (k = 0; k < 5 && !row; k++) {
        static const char *const tails[] = {"", "_", "_scalar", "_dim", "_dims"};
        const char *there;
        int r;
        if (*tails[k] && ends(stem, tails[k])) { stem[strlen(stem) - strlen(tails[k])] = 0; }
        there = other(rows, COUNT(rows), stem);
        if (ends(stem, "_like")) { there = "fill"; }
        for (r = 0; r < ROWS && !row; r++) {
            if (strcmp(table[r].name, there ? there : stem) == 0) { row = &table[r]; }
        }
    }
    says = strstr(own, "grad") ? own : strstr(comment, "grad") ? comment : all;
    gradient = strstr(says, "grad") && !strstr(says, "grad none") && !strstr(says, "no grad");
    if (strcmp(chapter, "create") == 0) { gradient = strstr(own, "grad dx") != NULL; }
    if (row && strcmp(row->grad, "NOGRAD") == 0) { gradient = 0; }
    if (cases_of(base)) {
        gradient = 0;
        dtypes(base, &types, &gradient);
        CHECK_MSG(!gradient || (!strstr(own, "grad none") && !strstr(own, "no grad")),
                  "docs: %s has gradients; its comment says none", name);
    } else {
        say(&types, without[excuse(base)][1]);
    }
    // Arguments: the struct's members, or the text between the parentheses on one line.
    clear(&arguments);
    if (ends(name, "_with")) {
        const char *type = open + 1 + strspn(open + 1, " \n");
        if (strncmp(type, "tensor_t *x, ", 13) == 0) { // what comes before the options
            say(&arguments, "x, ");
            type += 13;
        }
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(type, " "), type);
        members(stem, &arguments);
    } else {
        for (a = open + 1; *a && strncmp(a, ");", 2) != 0; a++) {
            if (*a != '\n' && !(*a == ' ' && a[-1] == ' ')) {
                put(&arguments, *a == '\n' ? " " : a, 1);
            } else if (*a == '\n') {
                say(&arguments, " ");
            }
        }
    }
    clear(&t);
    say(&t, "| `tensor_");
    say(&t, base);
    if (ends(name, "_n") && strcmp(name + 7, base) != 0) { say(&t, "`, `_n"); }
    say(&t, "` | `");
    for (a = arguments.at, n = 0; *a; a++) {
        if (!(*a == ' ' && (n == 0 || t.at[t.length - 1] == ' '))) { put(&t, a, 1), n = 1; }
    }
    say(&t, "` | ");
    say(&t, types.at);
    say(&t, gradient ? " | yes | " : " | - | ");
    say(&t, row ? "yes | " : "composed | ");
    on_cuda(row, &t);
    say(&t, " | ");
    torch = other(torch_names, COUNT(torch_names), base);
    if (!torch) { torch = special(base); }
    if (torch) {
        say(&t, torch);
    } else {
        snprintf(stem, sizeof stem, "%s", base);
        say(&t, ends(base, "_") ? "Tensor." : function ? "F." : "torch.");
        if (ends(stem, "_scalar_")) {
            strcpy(stem + strlen(stem) - 8, "_");
        } else if (ends(stem, "_scalar")) {
            stem[strlen(stem) - 7] = 0;
        } else if (ends(stem, "_dim")) {
            stem[strlen(stem) - 4] = 0;
        } else if (ends(stem, "_dims")) {
            stem[strlen(stem) - 5] = 0;
        }
        if (strncmp(stem, "linalg_", 7) == 0) { stem[6] = '.'; }
        say(&t, stem);
    }
    say(&t, " |\n");
    put(&page, t.at, t.length);
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(text + 11, " "), text + 11);
    example(base, stem);
    nops++;
    ncomposed += !row;
    ngrad += gradient;
    free(t.at);
    free(arguments.at);
    free(types.at);
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
        if (strncmp(line, stop, strlen(stop)) == 0) { break; }
        if (strncmp(line, "// >>", 5) == 0 && strstr(line, "MARK: ")) {
            snprintf(chapter, sizeof chapter, "%.*s", (int)strcspn(line + 5, " "), line + 5);
            snprintf(title, sizeof title, "%.120s", strstr(line, "MARK: ") + 6);
            clear(&all);
            head = 1;
            printed = 0;
        } else if (head && strncmp(line, "//", 2) != 0) {
            head = 0;
        }
        if (head) {
            say(&all, line);
            continue;
        }
        if (in_struct || strncmp(line, "typedef struct ", 15) == 0) {
            say(&structs, line);
            say(&structs, "\n");
            in_struct = strchr(line, ';') == NULL || (in_struct && line[0] != '}');
            if (strchr(line, '{') && !strchr(line, '}')) { in_struct = 1; }
            if (line[0] == '}') { in_struct = 0; }
            continue;
        }
        if (!now.length && line[0] == 0) {
            clear(&comment);
            clear(&own);
            commenting = 0;
            first = 1;
        } else if (!now.length && strncmp(line, "//", 2) == 0) {
            if (!commenting) { clear(&own); }
            commenting = 1;
            if (first) { say(&comment, line); }
            say(&own, line);
        } else if (now.length || strncmp(line, "TENSOR_API ", 11) == 0) {
            commenting = first = 0;
            if (behind) { clear(&own); }
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
                        end_chapter();
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
    end_chapter();
    free(text), free(comment.at), free(own.at), free(all.at), free(now.at);
}

static void make(void) {
    char path[128], count[256];
    text_t body;
    int k;
    for (k = 0; k < fixture_count("tests/fixtures"); k++) {
        snprintf(path, sizeof path, "tests/fixtures/%s.safetensors", fixture_files[k]);
        readers[k] = nn_safetensors_open(path);
        CHECK_MSG(readers[k] != NULL, "docs: %s", tensor_error_text());
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
        "header. Dtypes are those of\nthe data (indices and masks apart) that a call took "
        "when this was written: floats (f32 f64 f16 bf16), integers\n(i32 i64 u8 i8 i16), numbers (both), "
        "bool, all. F is `torch.nn.functional`. On CUDA every op "
        "runs,\nby kernels of its own (native) or, where there are none, by the CPU's over copies: as the "
        "tests on the device found\nfor f32 f64 f16 bf16 i64 (tests/cuda/rows.txt; i64 stands for the other "
        "integers). In a program\n`tensor_cuda_op_counts` says which did.\n");
    put(&page, body.at, body.length);
    free(body.at);
}

// The examples as a program that prints what they give, one line each.
static void write_program(void) {
    puts("#include \"tensor_nn.h\"\n#include \"tests/spell.h\"\n\n#include <math.h>\n\n"
         "static int shown;\n"
         "static void show_text(const char *label, const char *text) {\n"
         "    printf(\"%s%s%s\", shown++ ? \"  \" : \"=> \", label, text);\n}\n"
         "static void show(const char *label, tensor_t *x) {\n"
         "    char text[6000];\n    if (!x) return;\n"
         "    spell(x, text, sizeof text);\n    show_text(label, text);\n}\n"
         "static void show_shape(const char *label, tensor_t *x) {\n    char text[100];\n"
         "    spell_shape(x, text, sizeof text);\n    show_text(label, text);\n}\n"
         "static void show_list(tensor_t **x, int n) {\n    char label[20];\n    int k;\n"
         "    for (k = 0; k < n; k++) {\n        snprintf(label, sizeof label, \"out[%d] = \", k);\n"
         "        show(label, x[k]);\n    }\n}\n"
         "static void quiet(int code, const char *text, void *user) {\n"
         "    (void)code, (void)text, (void)user;\n}\n"
         "static void show_error(void) {\n    char text[500], *at;\n"
         "    snprintf(text, sizeof text, \"%s\", tensor_error_text());\n    at = strstr(text, \" at \");\n"
         "    if (at) *at = 0;\n    show_text(\"error: \", text);\n    tensor_clear_error();\n}\n"
         "static void run(void (*example)(void)) {\n"
         "    tensor_scope_t scope = tensor_scope_begin();\n    shown = 0;\n"
         "    example();\n    printf(\"\\n\");\n    tensor_scope_end(scope);\n}\n");
    fputs(program.at, stdout);
    printf("int main(void) {\n    tensor_set_error_handler(quiet, NULL);\n%s"
           "    return tensor_shutdown();\n}\n", runs.at);
}

// Whether two pages say the same: numbers may differ by one in the last decimal, as another processor's do.
static int same_page(const char *a, const char *b) {
    while (*a && *b) {
        if ((*a >= '0' && *a <= '9') || (*b >= '0' && *b <= '9')) {
            char *end_a, *end_b;
            double v = strtod(a, &end_a), w = strtod(b, &end_b);
            if (fabs(v - w) > 1.5e-4 * (1 + fabs(w) / 1e6) || end_a == a || end_b == b) { return 0; }
            a = end_a;
            b = end_b;
        } else if (*a++ != *b++) {
            return 0;
        }
    }
    return *a == *b;
}

static void fresh(void) {
    char *there = slurp("docs/ops.md");
    int k;
    make();
    CHECK(nops > 500);
    for (k = 0; k < COUNT(without); k++) {
        const char *why = skipped(without[k][0], "FIXTURE");
        CHECK_MSG(!cases_of(without[k][0]), "docs: %s is in `without` and has fixtures", without[k][0]);
        CHECK_MSG(why != NULL, "docs: %s is in `without` and has no SKIP in ops.def", without[k][0]);
    }
    for (k = 0; k < SKIPS; k++) {
        if (strcmp(skips[k].test, "FIXTURE") != 0) { continue; }
        printf("of %d ops have no fixture: %s: %s\n", nops, skips[k].names, skips[k].why);
    }
    CHECK_MSG(nexamples + repeated == nops, "docs: %d ops, %d of them of a name before, and %d examples",
              nops, repeated, nexamples);
    CHECK_MSG(there && same_page(there, page.at), "docs/ops.md is stale: make docs");
    printf("%d ops, %d examples\n", nops, nexamples);
    free(there);
    for (k = 0; k < FIXTURE_FILES; k++) {
        if (readers[k]) { nn_safetensors_close(readers[k]); }
    }
}

int main(int argc, char **argv) {
    int code;
    tensor_set_error_handler(test_quiet, NULL);
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        make();
        fputs(page.at, stdout);
        return test_failed != 0;
    }
    if (argc > 1 && strcmp(argv[1], "program") == 0) {
        make();
        write_program();
        return test_failed != 0;
    }
    RUN(fresh);
    code = test_report();
    free(page.at), free(structs.at), free(examples.at), free(program.at), free(runs.at);
    return code;
}

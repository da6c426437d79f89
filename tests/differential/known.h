// known.h - where the library and PyTorch differ on purpose, or PyTorch is at fault: how to know it, and why
//
// Counted, and printed with the counts; a program that differs so is not compared further.
typedef struct known_t {
    const char *names, *text, *why;     // "a b": the statement, "" = any; a part of the difference; why
    long count;
} known_t;
static known_t knowns[] = {
    {"", "\" against \"NotImplementedError", "PyTorch has no kernel for the dtype", 0},
    {"", "\"\" against \"RuntimeError: unsupported operation: some elements of the input tensor and the written-to",
     "operands that overlap are copied first", 0},
    {"", "\"\" against \"RuntimeError: expected dtype", "operands of several dtypes promote", 0},
    {"", "is not differentiable with respect to argument", "more gradients than PyTorch has", 0},
    {"", "\"\" against \"RuntimeError: derivative for aten::", "more gradients than PyTorch has", 0},
    {"unique unique_dim unique_consecutive unique_consecutive_dim heaviside", "requires grad 0, leaf 1 against 1, 0",
     "what has no gradient does not require one", 0},
    {"addcdiv addcmul", "\"\" against \"RuntimeError: result type", "operands of several dtypes promote", 0},
    {"", "given to vhp should contain a single", "results without a gradient may have any shape", 0},
    {"", "given to hvp should contain a single", "results without a gradient may have any shape", 0},
    {"", "\"\" against \"RuntimeError: one of the variables needed for gradient computation has been modified",
     "a change by the own value has right gradients", 0},
    {"", "\"\" against \"RuntimeError: Only Tensors of floating", "integers are constants of vjp and its like", 0},
    {"index_copy_ index_copy index_add_ index_add", "Expected a long tensor for index, but got Int", "indices of i32 are taken", 0},
    {"flatten", "shares memory", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten", "leaf 1 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten", "leaf 0 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"cosine_similarity", "eps must be non-negative", "any eps is taken", 0},
};

// at: differ's answer, the statement + 1, or 1000 + a record.
TEST_FN int known(const program_t *p, const trace_t *a, int at, const char *what) {
    int step = at < 1000 ? at - 1 : at < 5000 ? a->r[at - 1000].step : -1, k;
    const char *name = step < 0 ? "" : name_of(&p->step[step]);
    size_t n = strlen(name);
    if (step >= 0 && a->failed[step] && skipped(name, "DTYPE")) return 1;       // ops.def counts and says why
    for (k = 0; k < (int)(sizeof knowns / sizeof knowns[0]); k++) {
        known_t *w = &knowns[k];
        const char *found = *w->names ? strstr(w->names, name) : name;
        while (*w->names && found && !((found == w->names || found[-1] == ' ') && (found[n] == 0 || found[n] == ' ')))
            found = strstr(found + 1, name);
        if (!found || !strstr(what, w->text)) continue;
        w->count++;
        return 1;
    }
    return 0;
}

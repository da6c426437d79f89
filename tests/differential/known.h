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
    {"", "\"\" against \"RuntimeError: Autograd not support dtype", "integers are constants of vjp and its like", 0},
    {"", "given to hessian should contain a single", "results without a gradient may have any shape", 0},
    {"", "Setting requires_grad=True on inference tensor", "vjp and its like take tensors of inference mode", 0},
    {"", "stack expects a non-empty TensorList", "PyTorch's jacobian has no empty results", 0},
    {"kron backward", "\"\" against \"RuntimeError: view size is not compatible", "PyTorch at fault: it views what is no view", 0},
    {"backward grad", "returned an invalid gradient at index 1", "PyTorch at fault: scatter of an index smaller than src", 0},
    {"cartesian_prod", "meshgrid expects all tensors to have the same dtype", "operands of several dtypes promote", 0},
    {"allclose", "did not match", "operands of several dtypes promote", 0},
    {"cdist", "\"\" against", "operands of several dtypes promote", 0},
    {"kl_div", "Integral inputs not supported", "integers are taken as f32", 0},
    {"lp_pool1d lp_pool2d lp_pool3d", "with optional 0 dim batch size", "no channels are taken", 0},
    {"take take_along_dim one_hot nll_loss gather scatter index_select", "ong", "indices of i32 are taken", 0},
    {"reshape flatten ravel unflatten reshape_as view", "requires grad 0, leaf 1 against 1, 1",
     "PyTorch 2.15 at fault: such views made under no_grad require grad", 0},
    {"flatten", "shares memory", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten", "leaf 1 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten", "leaf 0 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"cosine_similarity", "eps must be non-negative", "any eps is taken", 0},
};

// Whether a change in place of the program before step reads what it writes: PyTorch's kernels of scatters and the like
// do not notice, and read what they have written already.
static long n_overlaps;
TEST_FN int storage_of(const trace_t *a, int var) {
    int r;
    for (r = 0; r < a->n; r++)
        if (a->r[r].kind == 'v' && a->r[r].var == var) return a->r[r].alias < 0 ? var : a->r[r].alias;
    return -1;
}
TEST_FN int overlaps(const program_t *p, const trace_t *a, int step) {
    int k, j;
    for (k = 0; k <= step; k++) {
        const step_t *s = &p->step[k];
        const char *name = name_of(s);
        if (s->what >= NOPS || name[strlen(name) - 1] != '_') continue;
        if (!strstr(name, "scatter") && !strstr(name, "index") && !strstr(name, "put")) continue;
        for (j = 1; j < s->nin; j++)
            if (s->in[j] >= 0 && storage_of(a, s->in[j]) == storage_of(a, s->in[0])) return 1;
    }
    return 0;
}

// The gradients of elements that as_strided_scatter overwrites: PyTorch at fault.
static long n_overwritten;
TEST_FN int uses(const program_t *p, const char *name) {
    int k;
    for (k = 0; k < p->n; k++)
        if (strcmp(name_of(&p->step[k]), name) == 0) return 1;
    return 0;
}

// at: differ's answer, the statement + 1, or 1000 + a record.
TEST_FN int known(const program_t *p, const trace_t *a, int at, const char *what) {
    int step = at < 1000 ? at - 1 : at < 5000 ? a->r[at - 1000].step : -1, k;
    const char *name = step < 0 ? "" : name_of(&p->step[step]);
    size_t n = strlen(name);
    if (step >= 0 && a->failed[step] && skipped(name, "DTYPE")) return 1;       // ops.def counts and says why
    if (strstr(what, "gradient") && uses(p, "as_strided_scatter")) {
        n_overwritten++;
        return 1;
    }
    if (step >= 0 && overlaps(p, a, step)) {
        n_overlaps++;
        return 1;
    }
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

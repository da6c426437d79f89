// machine.c - random programs over every public function, run in several configurations, compared
//
//   machine check FIRST COUNT [torch]    programs of these seeds; torch: PyTorch too, by torch_side.py
//   machine beside FIRST COUNT           each once, and in PyTorch alone: many programs in little time
//   machine show SEED                    the program as text, as C, and as Python with PyTorch
//   machine replay FILE [torch]          a program as text
//   machine names                        the public functions that the programs of this run called
//
// A program runs (a) with each instruction set, (b) with the reference, (c) with 3 threads, (d) on the mirror
// device, (e) in PyTorch. (c) and (d) must have the bits of the first run; the others are within what runs with
// noise (results off by units of the last place) differ by. A failing program is shrunk and printed. Its ops are also
// captured, and replays must have the bits of the capture (replay.h).
#define _DEFAULT_SOURCE
#include "replay.h"
#include "public.h"

#include <ctype.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const setting_t settings[] = {
    {"again", NULL, 1, 0, 0},
    {"3 threads", NULL, 3, 0, 0},
    {"mirror", NULL, 1, 1, 0},
    {"scalar", "scalar", 1, 0, 0},
    {"sse2", "sse2", 1, 0, 0},
    {"avx2", "avx2", 1, 0, 0},
    {"avx512", "avx512", 1, 0, 0},
    {"avx512bf16", "avx512bf16", 1, 0, 0},
    {"amx", "amx", 1, 0, 0},
    {"neon", "neon", 1, 0, 0},
    {"reference", "reference", 1, 0, 0},
};
enum { SETTINGS = (int)(sizeof settings / sizeof settings[0]), EXACT_SETTINGS = 3, TORCH = SETTINGS };
// 4 and 5: all up, all down; of random signs some would take back what others did.
static const setting_t noises[] = {{"noise", NULL, 1, 0, 1},
                                   {"noise", NULL, 1, 0, 2},
                                   {"noise", NULL, 1, 0, 3},
                                   {"noise", NULL, 1, 0, NOISE_UP},
                                   {"noise", NULL, 1, 0, NOISE_DOWN}};
enum { NOISES = (int)(sizeof noises / sizeof noises[0]) };
static int there[SETTINGS], with_torch;
enum { MOST_RESTS = 6 }; // times that a known difference is left out of a program and the rest compared
static long n_runs[SETTINGS + 1], n_programs, n_steps, n_failures, n_not_torch, n_known, n_rests, n_crashes;
static long n_beside; // programs that PyTorch has run, of check_beside

// ---- PyTorch, in one process at the other end of two pipes ----

static FILE *to_torch, *from_torch;
static pid_t torch_process;

// 0: there is no Python, or no PyTorch in it. What ends in another way is an error.
TEST_FN int start_torch(const char *script) {
    int in[2], out[2], status = 0;
    char line[64] = "";
    if (!script || pipe(in) || pipe(out)) {
        CHECK_MSG(0, "TORCH_SIDE names torch_side.py, and there are pipes");
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    torch_process = fork();
    if (!torch_process) {
        dup2(in[0], 0), dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        execlp("python3", "python3", script, (char *)NULL);
        _exit(127);
    }
    close(in[0]), close(out[1]);
    to_torch = fdopen(in[1], "w"), from_torch = fdopen(out[0], "r");
    if (fgets(line, sizeof line, from_torch) && strncmp(line, "ready", 5) == 0) {
        printf("PyTorch %s", line + 6);
        return 1;
    }
    fclose(to_torch), fclose(from_torch);
    to_torch = NULL;
    waitpid(torch_process, &status, 0);
    if (strncmp(line, "absent", 6) != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
        CHECK_MSG(0, "%s does not start", script);
    }
    return 0;
}
// -> the status of its process
TEST_FN int stop_torch(void) {
    int status = 0;
    if (!to_torch) { return status; }
    fclose(to_torch), fclose(from_torch);
    waitpid(torch_process, &status, 0);
    to_torch = NULL;
    return status;
}
TEST_FN void send_to_torch(const program_t *p, const trace_t *like) {
    int k;
    for (k = 0; k < p->n; k++) { write_step(to_torch, &p->step[k], 1); }
    fprintf(to_torch, "alive");
    for (k = 0; k < MAX_VALUES; k++) {
        if (like->alive[k]) { fprintf(to_torch, " %d", k); }
    }
    fprintf(to_torch, "\nrun\n");
    fflush(to_torch);
}
// Its run of the program that was sent. -> 0: it has no such call
TEST_FN int answer_of_torch(const program_t *p, trace_t *t) {
    char line[1024];
    trace_begin(t);
    while (fgets(line, sizeof line, from_torch)) {
        record_t *r = &t->r[t->n];
        int used, number, d;
        long long whole;
        char kind;
        if (strncmp(line, "none", 4) == 0) { return 0; }
        if (strncmp(line, "done", 4) == 0) { return 1; }
        if (sscanf(line, "ok %d", &number) == 1) {
            t->steps = number + 1;
            continue;
        }
        if (sscanf(line, "error %d %n", &number, &used) == 1) {
            t->steps = number + 1;
            t->failed[number] = 1;
            snprintf(t->text[number], sizeof t->text[number], "%.150s", line + used);
            t->text[number][strcspn(t->text[number], "\n")] = 0;
            continue;
        }
        if (t->n == MAX_RECORDS) { break; }
        memset(r, 0, sizeof *r);
        if (sscanf(line, "%c %d %d%n", &kind, &r->var, &r->there, &used) != 3) { break; }
        r->kind = kind, r->step = -1;
        t->n++;
        if (!r->there) { continue; }
        sscanf(line + used, "%d %d %d %d %d %lld%n", &r->dtype, &r->grad, &r->leaf, &r->alias, &r->nd, &whole,
               &number);
        used += number;
        r->n = whole;
        for (d = 0; d < r->nd && d < TENSOR_MAX_DIMS; d++, used += number) {
            long long stride;
            sscanf(line + used, "%lld %lld%n", &whole, &stride, &number);
            r->dims[d] = whole, r->strides[d] = stride;
        }
        if (is_real(r->dtype)) {
            r->v = (double *)malloc(((size_t)r->n + 1) * 8);
            if (fread(r->v, 8, (size_t)r->n, from_torch) != (size_t)r->n) { break; }
        } else {
            r->i = (int64_t *)malloc(((size_t)r->n + 1) * 8);
            if (fread(r->i, 8, (size_t)r->n, from_torch) != (size_t)r->n) { break; }
        }
    }
    printf("PyTorch has crashed; the program:\n");
    write_program(stdout, p);
    n_crashes++;
    if (!WIFSIGNALED(stop_torch())) {
        CHECK_MSG(0, "its side has ended by itself, or its answer is not understood");
    }
    trace_end(t);
    trace_begin(t);
    if (!start_torch(getenv("TORCH_SIDE"))) { exit(1); }
    return 0;
}

// ---- one program in all configurations ----

TEST_FN int for_device(const program_t *p) {
    int k;
    for (k = 0; k < p->n; k++) {
        if (p->step[k].what < NOPS && skipped(name_of(&p->step[k]), "DEVICE")) { return 0; }
    }
    return 1;
}
TEST_FN int for_torch(const program_t *p) {
    int k;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        if (s->what < NOPS && (is_random(name_of(s)) || strcmp(ops[s->what].torch, "-") == 0)) { return 0; }
        if (is(s, DO_begin) && s->i[0] >= CAST_F16) { return 0; }
        if (is(s, DO_init) && s->i[0] >= INIT_UNIFORM) { return 0; }
    }
    return 1;
}
#include "known.h"

TEST_FN int has_halves(const trace_t *t) {
    int k;
    for (k = 0; k < t->n; k++) {
        if (t->r[k].dtype == TENSOR_F16 || t->r[k].dtype == TENSOR_BF16) { return 1; }
    }
    return 0;
}
// p without statement k and all that needs what it makes. replaced: leaves in place of its results
TEST_FN void without(const program_t *p, int k, program_t *q) {
    int gone[MAX_VALUES] = {0}, j, i, depth = 0, open = 0;
    *q = *p;
    q->n = 0;
    for (j = 0; j < p->n; j++) {
        const step_t *s = &p->step[j];
        int drop = j == k;
        if (is(s, DO_begin) && j > k) { depth++; }
        if (is(s, DO_end) && j > k) {
            if (open && depth == 0) {
                drop = 1, open = 0;
            } else {
                depth--;
            }
        }
        if (j == k && is(s, DO_begin)) { open = 1; }
        for (i = 0; i < s->nin; i++) { drop |= s->in[i] >= 0 && gone[s->in[i]]; }
        if (drop && is(s, DO_end) && j != k && !open) { // its scope still ends
            step_t e = *s;
            e.nin = 0;
            if (depth >= 0) { q->step[q->n++] = e; }
            continue;
        }
        if (drop) {
            for (i = 0; i < s->nout; i++) { gone[s->out + i] = 1; }
            if (s->what < NOPS && name_of(s)[strlen(name_of(s)) - 1] == '_') { continue; }
            continue;
        }
        q->step[q->n++] = *s;
    }
}
// p without what a known difference comes from. -> whether there was any such
TEST_FN int without_known(const program_t *p, const trace_t *a, drop_t *drop, int step, program_t *q) {
    static program_t next;
    int k, dropped = 0;
    *q = *p;
    for (k = p->n - 1; k >= 0; k--) {   // from the end: what follows does not move the others
        if (drop ? drop(p, a, k) : k == step) {
            without(q, k, &next);
            *q = next;
            dropped++;
        }
    }
    return dropped && q->n > 0;
}
// Whether two runs agree by what rounding does alone, without the runs with noise, which say what it may do.
TEST_FN int agree_at_once(const program_t *p, const trace_t *a, const trace_t *b, int how, char *what,
                          size_t size) {
    compared_t before = compared;
    int differs = differ(p, a, b, NULL, 0, how, what, size);
    if (differs) { compared = before; }
    return !differs;
}
// -> the number of the configuration that differs + 1, 0: none. only: that one alone, -1: all
TEST_FN int try_program(const program_t *p, int only, char *what, size_t size) {
    static program_t rests[MOST_RESTS];
    static int depth;
    trace_t base, other, noise[NOISES];
    const trace_t *noisy[NOISES];
    int k, bad = 0, have_noise = 0, left = 0;
    run_program(p, &plain_setting, &base);
    if (base.invalid) {
        trace_end(&base);
        return 0;
    }
    for (k = 0; k <= SETTINGS && !bad; k++) {
        int how = k < EXACT_SETTINGS ? EXACT : k == TORCH ? FOREIGN : CLOSE, j;
        if (settings[k % SETTINGS].device && has_halves(&base)) {
            how = CLOSE; // products go other ways there
        }
        if (only >= 0 && k != only) { continue; }
        if (k == TORCH ? !with_torch : !there[k]) { continue; }
        if (k == 2 && !for_device(p)) { continue; }
        if (k == TORCH && !for_torch(p)) {
            n_not_torch++;
            continue;
        }
        if (k == TORCH) {
            send_to_torch(p, &base);
            if (!answer_of_torch(p, &other)) {
                n_not_torch++;
                trace_end(&other);
                continue;
            }
        } else {
            run_program(p, &settings[k], &other);
        }
        n_runs[k]++;
        j = 0;
        if (!agree_at_once(p, &base, &other, how, what, size)) {
            for (j = 0; j < NOISES && how != EXACT && !have_noise; j++) {
                run_program(p, &noises[j], &noise[j]);
                noisy[j] = &noise[j];
            }
            have_noise |= how != EXACT;
            j = differ(p, &base, &other, noisy, have_noise ? NOISES : 0, how, what, size);
        }
        if (j && k == TORCH) {
            drop_t *drop;
            int step;
            if (known(p, &base, j, what, &drop, &step)) {
                n_known++;
                j = 0;
                left = depth < MOST_RESTS && without_known(p, &base, drop, step, &rests[depth]);
            }
        }
        if (!j && other.leaked && k != TORCH) {
            snprintf(what, size, "tensors or nodes are left alive");
            j = 1;
        }
        if (j) { bad = k + 1; }
        trace_end(&other);
    }
    for (k = 0; have_noise && k < NOISES; k++) { trace_end(&noise[k]); }
    trace_end(&base);
    if (left && !bad) {
        n_rests++;
        depth++;
        bad = try_program(&rests[depth - 1], TORCH, what, size);
        depth--;
    }
    return bad;
}
TEST_FN const char *setting_name(int k) {
    return k == TORCH ? "PyTorch" : settings[k].name;
}

// ---- shrinking ----

// p with a leaf in place of what statement k makes
TEST_FN int with_leaf(const program_t *p, int k, program_t *q) {
    trace_t t;
    int j, good = 0;
    const step_t *s = &p->step[k];
    if (is(s, DO_leaf) || s->nout != 1) { return 0; }
    run_program(p, &plain_setting, &t);
    for (j = 0; j < t.n; j++) {
        const record_t *r = &t.r[j];
        if (r->kind != 'v' || r->var != s->out || !r->there) { continue; }
        *q = *p;
        memset(&q->step[k], 0, sizeof q->step[k]);
        q->step[k].what = NOPS + DO_leaf;
        q->step[k].i[AT_DTYPE] = r->dtype, q->step[k].i[AT_GRAD] = r->grad, q->step[k].i[AT_SEED] = 1;
        q->step[k].ni = AT_DIMS + r->nd;
        memcpy(q->step[k].i + AT_DIMS, r->dims, (size_t)r->nd * sizeof r->dims[0]);
        q->step[k].nf = 2, q->step[k].f[0] = 0.25, q->step[k].f[1] = 1.75;
        q->step[k].out = s->out, q->step[k].nout = 1;
        good = 1;
        break;
    }
    trace_end(&t);
    return good;
}
TEST_FN void shrink(program_t *p, int bad, char *what, size_t size) {
    static program_t q;
    char text[512];
    int changed = 1, k, i, tries = 0;
    while (changed && tries < 600) {
        changed = 0;
        for (k = p->n - 1; k >= 0; k--, tries++) {
            if (k >= p->n) { continue; }
            without(p, k, &q);
            if (q.n < p->n && q.n && try_program(&q, bad - 1, text, sizeof text) == bad) {
                *p = q, changed = 1;
                snprintf(what, size, "%s", text);
                continue;
            }
            if (with_leaf(p, k, &q) && try_program(&q, bad - 1, text, sizeof text) == bad) {
                *p = q, changed = 1;
                snprintf(what, size, "%s", text);
                continue;
            }
            if (!is(&p->step[k], DO_leaf)) { continue; }
            for (i = AT_GRAD; i < p->step[k].ni; i++) { // plain leaves, smaller ones
                q = *p;
                if (i == AT_FILL || i == AT_BOUND) { continue; }
                if (i < AT_DIMS ? !q.step[k].i[i] : q.step[k].i[i] < 2) { continue; }
                q.step[k].i[i] = i < AT_DIMS ? 0 : q.step[k].i[i] / 2;
                if (try_program(&q, bad - 1, text, sizeof text) != bad) { continue; }
                *p = q, changed = 1;
                snprintf(what, size, "%s", text);
            }
        }
    }
}
TEST_FN void print_program(const program_t *p) {
    char line[4096];
    printf("-- text\n");
    write_program(stdout, p);
    printf("-- C\n");
    write_c(stdout, p);
    if (!with_torch) { return; }
    printf("-- Python\n");
    fflush(stdout);
    for (int k = 0; k < p->n; k++) { write_step(to_torch, &p->step[k], 1); }
    fprintf(to_torch, "print\n");
    fflush(to_torch);
    while (fgets(line, sizeof line, from_torch) && strncmp(line, "done", 4) != 0) { fputs(line, stdout); }
}

// ---- all ----

// only: as of try_program; with one alone there are no replays
TEST_FN void check_program(program_t *p, int only, int print) {
    char what[512] = "";
    int bad, steps = p->n;
    n_programs++;
    n_steps += p->n;
    if (only < 0) { check_replays(p); }
    bad = try_program(p, only, what, sizeof what);
    CHECK_MSG(!bad, "seed %llu, %s: %s", (unsigned long long)p->seed, bad ? setting_name(bad - 1) : "", what);
    if (!bad) { return; }
    if (n_failures++ >= print) { return; }
    shrink(p, bad, what, sizeof what);
    printf("==== seed %llu, %d statements, now %d; default against %s: %s\n", (unsigned long long)p->seed,
           steps, p->n, setting_name(bad - 1), what);
    print_program(p);
    fflush(stdout);
}

// PyTorch's answer to the program that was sent, whose run is a. What differs goes the way of all others.
TEST_FN void check_answer(program_t *p, const trace_t *a, int print) {
    trace_t b;
    char what[512];
    int answered = answer_of_torch(p, &b);
    if (answered && !agree_at_once(p, a, &b, FOREIGN, what, sizeof what)) {
        check_program(p, TORCH, print);
    } else {
        n_programs++;
        n_steps += p->n;
        n_runs[TORCH] += answered;
        n_not_torch += !answered;
    }
    n_beside += answered;
    trace_end(&b);
}
// While PyTorch runs a program, the next one is made and run here.
TEST_FN void check_beside(uint64_t first, uint64_t count, int print) {
    static program_t programs[2];
    static trace_t runs[2];
    uint64_t j;
    int sent = 0, send = 0;
    for (j = 0; j <= count; j++, sent = send) {
        program_t *p = &programs[j % 2];
        trace_t *a = &runs[j % 2];
        send = 0;
        if (test_lines > TEST_MAX_LINES - 4) { test_lines = TEST_MAX_LINES - 4; }
        if (j < count) {
            generate(p, first + j);
            run_program(p, &plain_setting, a);
            send = !a->invalid && for_torch(p);
        }
        if (sent) {
            check_answer(&programs[(j + 1) % 2], &runs[(j + 1) % 2], print);
            trace_end(&runs[(j + 1) % 2]);
        }
        if (send) {
            send_to_torch(p, a);
        } else if (j < count) {
            n_programs++;
            n_steps += p->n;
            n_not_torch += !a->invalid;
            trace_end(a);
        }
        if (j % 1000 == 999 || j == count) {
            printf("to seed %llu: %ld programs, %ld of them beside PyTorch, %ld differ\n",
                   (unsigned long long)(first + j - (j == count)), n_programs, n_beside, n_failures);
            fflush(stdout);
        }
    }
}

// What no program called, though it is public, and is no exception.
static const struct {
    const char *names, *why;
} exceptions[] = {
#define EXCEPTION(why, names) {names, why},
#include "exceptions.def"
};
TEST_FN int listed(const char *names, const char *name) {
    size_t n = strlen(name);
    const char *at;
    for (at = strstr(names, name); at; at = strstr(at + 1, name)) {
        if ((at == names || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) { return 1; }
    }
    return 0;
}
TEST_FN int was_called(const char *name) {
    char base[120];
    size_t n;
    int k;
    for (k = 0; k < nused; k++) {
        if (strcmp(used_names[k], name) == 0) { return 1; }
    }
    if (strncmp(name, "nn_", 3) == 0) {
        n = strlen(name);
        if (n > 5 && strcmp(name + n - 5, "_with") == 0) {
            n -= 5;
        } else if (n > 2 && strcmp(name + n - 2, "_n") == 0) {
            n -= 2;
        }
        for (k = 0; k < nused; k++) {
            if (strncmp(used_names[k], name, n) == 0 && !used_names[k][n]) { return 1; }
        }
        return 0;
    }
    snprintf(base, sizeof base, "%s", name + 7);
    k = find(base);
    if (k < NOPS) { return ops[k].seen > 0; }
    n = strlen(base); // the plain twins that the macros call
    if (n > 3 && strcmp(base + n - 3, "_n_") == 0) {
        base[n - 3] = '_', base[n - 2] = 0;
    } else if (n > 2 && strcmp(base + n - 2, "_n") == 0) {
        base[n - 2] = 0;
    } else if (n > 5 && strcmp(base + n - 5, "_with") == 0) {
        base[n - 5] = 0;
    }
    k = find(base);
    return k < NOPS && ops[k].seen > 0;
}
enum { PUBLIC = (int)(sizeof public_names / sizeof public_names[0]) };
// The options of a call that gives none: calls fill theirs by the same list (NN__FILL_DEFAULTS).
TEST_FN int is_defaults(const char *name) {
    size_t length = strlen(name);
    return length > 9 && strcmp(name + length - 9, "_defaults") == 0;
}
TEST_FN int is_exception(const char *name) {
    int except = 0, j;
    for (j = 0; j < (int)(sizeof exceptions / sizeof exceptions[0]); j++) {
        except |= listed(exceptions[j].names, name);
    }
    return except;
}
// Whether the files that `why` names contain the name, as a word, or that of the macro in front of it.
TEST_FN int is_tested(const char *why, const char *name) {
    static char text[1 << 19];
    char path[80], base[120];
    const char *at = strstr(why, "tests/"), *hit;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, "_with") == 0) { n -= 5; }
    if (n > 2 && strcmp(name + n - 2, "_n") == 0) { n -= 2; }
    snprintf(base, sizeof base, "%.*s", (int)n, name);
    for (; at; at = strstr(at + 1, "tests/")) {
        FILE *f;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ", "), at);
        f = fopen(path, "r");
        text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
        if (f) { fclose(f); }
        for (hit = strstr(text, base); hit; hit = strstr(hit + 1, base)) {
            int inside = hit > text && (isalnum((unsigned char)hit[-1]) || hit[-1] == '_');
            const char *end = hit + n + (strncmp(hit + n, "_n", 2) == 0 ? 2 : 0);
            if (!inside && !isalnum((unsigned char)*end) && *end != '_') { return 1; }
        }
    }
    return 0;
}
// Every exception is a function that the tests it names call.
TEST_FN void exceptions_are_tested(void) {
    char name[120];
    int k, j;
    for (k = 0; k < PUBLIC; k++) {
        snprintf(name, sizeof name, "%s", public_names[k]);
        for (j = 0; j < (int)(sizeof exceptions / sizeof exceptions[0]); j++) {
            if (listed(exceptions[j].names, name)) {
                CHECK_MSG(is_tested(exceptions[j].why, name), "%s is not in the files of \"%s\"", name,
                          exceptions[j].why);
            }
        }
    }
}
TEST_FN int all_called(void) {
    int k;
    for (k = 0; k < MODULES; k++) {
        if (!n_of_module[k]) { return 0; }
    }
    for (k = 0; k < PUBLIC; k++) {
        if (!was_called(public_names[k]) && !is_defaults(public_names[k]) && !is_exception(public_names[k])) {
            return 0;
        }
    }
    return 1;
}
TEST_FN void coverage(void) {
    int k, called = 0, excepted = 0, defaults = 0, n = PUBLIC;
    for (k = 0; k < n; k++) {
        if (was_called(public_names[k])) {
            called++;
        } else if (is_defaults(public_names[k])) {
            defaults++;
        } else if (is_exception(public_names[k])) {
            excepted++;
        } else {
            CHECK_MSG(0, "%s: no program called it", public_names[k]);
            if (getenv("UNCALLED")) { printf("uncalled %s\n", public_names[k]); }
        }
    }
    for (k = 0; k < MODULES; k++) {
        CHECK_MSG(n_of_module[k], "module %s: no program ran it without an error", module_names[k]);
    }
    for (k = 0; k < OPTIMIZERS; k++) {
        CHECK_MSG(n_of_optimizer[k], "optimizer %s: no program ran it without an error", optimizer_names[k]);
    }
    CHECK(called > 0);
    printf("%d public functions: %d called, %d _defaults of options, %d exceptions (tests/differential/exceptions.def "
           "says why)\n", n, called, defaults, excepted);
}
TEST_FN void report(void) {
    int k;
    printf("%ld programs of %ld statements (%ld tried), %ld values of %ld elements compared, %ld elements "
           "whose rounding "
           "decides, %ld errors agreed, %ld hooks called\n",
           n_programs, n_steps, n_tried, compared.records, compared.elements, compared.loose, compared.errors,
           n_hooks);
    printf("%ld captured steps of %ld calls (%ld statements fail or are refused there, %ld values are "
           "freed), %ld values of their replays compared\n",
           n_graphs, n_graph_calls, n_uncaptured, n_freed, n_replayed);
    printf("runs:");
    for (k = 0; k < SETTINGS; k++) {
        if (there[k]) { printf(" %s %ld", settings[k].name, n_runs[k]); }
    }
    if (with_torch) {
        printf(" PyTorch %ld (%ld have no counterpart there, %ld differ where they may: without "
               "what differs %ld were compared again), %ld gradients of zeros against none",
               n_runs[TORCH], n_not_torch, n_known, n_rests, compared.zeros);
    }
    printf("\n");
    if (n_equals) { printf("known: %ld times which of equal elements is meant is not said\n", n_equals); }
    if (n_overlaps) { printf("known: %ld times PyTorch reads what it has written\n", n_overlaps); }
    for (k = 0; k < (int)(sizeof cases / sizeof cases[0]); k++) {
        if (cases[k].count) { printf("known: %ld times %s\n", cases[k].count, cases[k].why); }
    }
    for (k = 0; k < (int)(sizeof knowns / sizeof knowns[0]); k++) {
        if (knowns[k].count) {
            printf("known: %ld times %s%s%s\n", knowns[k].count, knowns[k].why, *knowns[k].names ? ": " : "",
                   knowns[k].names);
        }
    }
    for (k = 0; k < SETTINGS; k++) {
        if (!there[k]) { printf("skipped: %s, not on this machine\n", settings[k].name); }
    }
}

int main(int argc, char **argv) {
    static program_t p;
    const char *script = getenv("TORCH_SIDE");
    int k, beside, print = getenv("PRINT") ? atoi(getenv("PRINT")) : 12;
    tensor_set_error_handler(test_quiet, NULL);
    for (k = 0; k < SETTINGS; k++) {
        there[k] = tensor_set_isa(settings[k].isa) == 0;
        tensor_clear_error();
    }
    tensor_set_isa(NULL);
    device_start();
    beside = argc > 3 && strcmp(argv[1], "beside") == 0;
    with_torch = beside || (argc > 1 && strcmp(argv[argc - 1], "torch") == 0);
    if (with_torch && !start_torch(script)) {
        if (!test_failed) { printf("skipped 1 test: PyTorch is not there\n"); }
        with_torch = 0;
    }
    if (argc > 2 && strcmp(argv[1], "show") == 0) {
        generate(&p, strtoull(argv[2], NULL, 10));
        print_program(&p);
        stop_torch();
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "replay") == 0) {
        FILE *f = fopen(argv[2], "r");
        while (f && read_program(f, &p)) { check_program(&p, -1, print); }
        if (f) { fclose(f); }
        CHECK_MSG(n_programs, "%s has no program", argv[2]);
    } else if (beside) {
        if (with_torch) { check_beside(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), print); }
    } else if (argc > 3 && strcmp(argv[1], "check") == 0) {
        uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10), j;
        printf("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + count - 1));
        for (j = 0; j < count; j++) {
            if (test_lines > TEST_MAX_LINES - 4) { test_lines = TEST_MAX_LINES - 4; }
            generate(&p, first + j);
            check_program(&p, -1, print);
        }
        // Fewer need not reach every function; of so many some more may be needed for a rare one.
        for (; count >= 1200 && j < count + 2400 && !all_called(); j++) {
            generate(&p, first + j);
            check_program(&p, -1, print);
        }
        if (count >= 1200) {
            coverage();
            exceptions_are_tested();
        }
    } else {
        printf("machine check FIRST COUNT [torch] | beside FIRST COUNT | show SEED | replay FILE [torch]\n");
        return 2;
    }
    report();
    stop_torch();
    return test_report();
}

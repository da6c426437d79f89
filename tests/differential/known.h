// known.h - where the library and PyTorch differ on purpose, or PyTorch is at fault: why, and how to know it
//
// Counted, and printed with the count; a program that differs so is not compared further.
typedef struct known_t {
    const char *names, *why;            // "a b": one of them made the value, or failed
    int ours, theirs;                   // who fails: 1 it does, 0 it does not, -1 either
} known_t;
static const known_t knowns[] = {
    {"", "", 0, 0},
};
static long known_count[sizeof knowns / sizeof knowns[0]];

// differ's answer: the statement + 1, or 1000 + a record.
TEST_FN int known(const program_t *p, const trace_t *a, const trace_t *b, int at, const char *what) {
    const char *name;
    int step = at < 1000 ? at - 1 : at < 5000 ? a->r[at - 1000].step : -1, k;
    (void)what;
    if (step < 0) return 0;
    name = name_of(&p->step[step]);
    for (k = 0; k < (int)(sizeof knowns / sizeof knowns[0]); k++) {
        const known_t *w = &knowns[k];
        const char *found = strstr(w->names, name);
        size_t n = strlen(name);
        while (found && !((found == w->names || found[-1] == ' ') && (found[n] == 0 || found[n] == ' ')))
            found = strstr(found + 1, name);
        if (!found) continue;
        if (w->ours >= 0 && w->ours != (a->failed[step] != 0)) continue;
        if (w->theirs >= 0 && w->theirs != (b->failed[step] != 0)) continue;
        known_count[k]++;
        return 1;
    }
    return 0;
}

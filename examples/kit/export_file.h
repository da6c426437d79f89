// export_file.h - the file that export_c.h writes, but for the step itself: head, arrays, functions, test
//
// Included by the implementation of export_c.h; copy it with that.
#ifndef KIT_EXPORT_FILE_H
#define KIT_EXPORT_FILE_H

#include "export_c.h"
#include "export_call.h"

// Whether a name can be one of C, or the end of one.   -> 0 if it cannot
KIT_TEXT_FN int kit_export__name(kit_export_state_t *x, const char *name, int end) {
    size_t n = name ? strlen(name) : 0;
    int good = n > 0 && n < 48 && (end || !strchr("0123456789", name[0]));
    for (size_t i = 0; i < n && good; i++) {
        char c = name[i];
        good = c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
    return good || kit_cannot(x, "\"%.60s\" cannot be a name in C", name ? name : "(null)");
}

// A line of the program, "train.c:12"; "" = not known.
KIT_TEXT_FN const char *kit_export__site(const char *site) {
    const char *at = site ? site : "";
    for (const char *c = at; *c; c++) {
        if (*c == '\1' || *c == '/' || *c == '\\') { at = c + 1; }
    }
    return at;
}

// ---- data

KIT_TEXT_FN double kit_export__element(const void *data, tensor_dtype_t dtype, int64_t i) {
    switch (dtype) {
    case TENSOR_F32: return (double)((const float *)data)[i];
    case TENSOR_F64: return ((const double *)data)[i];
    case TENSOR_I32: return (double)((const int32_t *)data)[i];
    case TENSOR_I64: return (double)((const int64_t *)data)[i];
    default: return (double)((const uint8_t *)data)[i];
    }
}

KIT_TEXT_FN int kit_export__all_zero(const kit_place_t *p) {
    const char *data = (const char *)p->data;
    int64_t bytes = p->numel * (int64_t)tensor_dtype_size(p->dtype);
    for (int64_t i = 0; i < bytes; i++) {
        if (data[i]) { return 0; }          // -0 is not +0
    }
    return 1;
}

// The size of an array of n elements: C has no empty ones.
KIT_TEXT_FN long long kit_export__size(int64_t n) { return n ? (long long)n : 1; }

// Element i as a constant of C.
KIT_TEXT_FN kit_word_t kit_export__constant(kit_export_state_t *x, const void *data, tensor_dtype_t dtype,
                                            int64_t i) {
    if (dtype != TENSOR_I64) { return kit_number(x, kit_export__element(data, dtype, i), dtype); }
    int64_t v = ((const int64_t *)data)[i];         // a double would lose digits
    return v == INT64_MIN ? kit_word("%s", "INT64_MIN") : kit_word("%lld", (long long)v);
}

// The values between braces, eight a line.
KIT_TEXT_FN void kit_export__list(kit_export_state_t *x, const void *data, tensor_dtype_t dtype, int64_t n) {
    kit_put(x, n ? "{" : "{\n    0");
    for (int64_t i = 0; i < n; i++) {
        kit_put(x, "%s%s", i % 8 ? " " : "\n    ", kit_export__constant(x, data, dtype, i).text);
        if (i + 1 < n) { kit_put(x, ","); }
    }
    kit_put(x, "\n}");
}

KIT_TEXT_FN void kit_export__values(kit_export_state_t *x, const void *data, tensor_dtype_t dtype,
                                    int64_t n) {
    kit_export__list(x, data, dtype, n);
    kit_put(x, ";\n");
}

// A matrix of weights as bytes, with a scale for each row: w = scale * byte.
KIT_TEXT_FN void kit_export__bytes(kit_export_state_t *x, const kit_place_t *p) {
    const float *w = (const float *)p->data;
    int64_t k = p->numel / p->rows;
    float *scale = (float *)malloc((size_t)p->rows * sizeof *scale);
    if (!scale) {
        x->failed = 1;
        return;
    }
    kit_put(x, "static const int8_t %s[%lld] = {", p->name, (long long)p->numel);
    for (int64_t r = 0; r < p->rows; r++) {
        float most = 0;
        for (int64_t i = 0; i < k; i++) {
            float size = w[r * k + i] < 0 ? -w[r * k + i] : w[r * k + i];
            most = size > most ? size : most;
        }
        scale[r] = most / 127;
        for (int64_t i = 0; i < k; i++) {
            double q = most > 0 ? (double)(w[r * k + i] / scale[r]) : 0;
            kit_put(x, "%s%d,", (r * k + i) % 16 ? " " : "\n    ", (int)(q < 0 ? q - 0.5 : q + 0.5));
        }
    }
    kit_put(x, "\n};\nstatic const float %s_scale[%lld] = ", p->name, (long long)p->rows);
    kit_export__values(x, scale, TENSOR_F32, p->rows);
    free(scale);
}

KIT_TEXT_FN void kit_export__arrays(kit_export_state_t *x, uint64_t *flash, uint64_t *ram) {
    for (int64_t i = 0; i < x->places; i++) {
        const kit_place_t *p = &x->place[i];
        uint64_t bytes = (uint64_t)p->numel * tensor_dtype_size(p->dtype);
        if (p->kind != KIT_CONSTANT && p->kind != KIT_STATE) { continue; }
        kit_put(x, "\n// first used by %s, %s\n", p->op, kit_export__site(p->site));
        if (p->rows) {
            kit_export__bytes(x, p);
            *flash += (uint64_t)p->numel + (uint64_t)p->rows * sizeof(float);
            continue;
        }
        if (p->kind == KIT_STATE) {
            kit_put(x, "static %s %s[%lld];\n", kit_type(p->dtype), p->name, kit_export__size(p->numel));
            *ram += bytes;
            if (kit_export__all_zero(p)) { continue; }
        }
        *flash += bytes;
        kit_put(x, "static const %s %s%s[%lld] = ", kit_type(p->dtype), p->name,
                p->kind == KIT_STATE ? "_start" : "", kit_export__size(p->numel));
        kit_export__values(x, p->data, p->dtype, p->numel);
    }
}

// Places the temporaries of one dtype: the longest first, each at the lowest place where none that lives at
// the same time is.   -> elements of the arena
KIT_TEXT_FN int64_t kit_export__arena(kit_export_state_t *x, const char *arena) {
    int64_t end = 0;
    for (;;) {
        kit_place_t *p = NULL;
        for (int64_t i = 0; i < x->places; i++) {
            kit_place_t *q = &x->place[i];
            if (q->kind != KIT_TEMPORARY || q->placed || strcmp(kit_arena(q->dtype), arena) != 0) {
                continue;
            }
            if (!p || q->numel > p->numel) { p = q; }
        }
        if (!p) { return end; }
        p->at = 0;
        for (int64_t i = 0; i < x->places; i++) {
            const kit_place_t *q = &x->place[i];
            if (!q->placed || q->kind != KIT_TEMPORARY || strcmp(kit_arena(q->dtype), arena) != 0) {
                continue;
            }
            int together = q->first <= p->last && p->first <= q->last;
            if (together && q->at < p->at + p->numel && p->at < q->at + q->numel) {
                p->at = q->at + q->numel;
                i = -1;                 // look at all of them again from there
            }
        }
        p->placed = 1;
        end = p->at + p->numel > end ? p->at + p->numel : end;
    }
}

KIT_TEXT_FN void kit_export__arenas(kit_export_state_t *x, uint64_t *ram) {
    static const tensor_dtype_t of[] = {TENSOR_F64, TENSOR_I64, TENSOR_F32, TENSOR_I32, TENSOR_U8};
    for (int k = 0; k < 5; k++) {
        int64_t n = kit_export__arena(x, kit_arena(of[k]));
        int named = 0;                  // also by one without elements
        for (int64_t i = 0; i < x->places; i++) {
            const kit_place_t *p = &x->place[i];
            int in_it = p->kind == KIT_TEMPORARY && strcmp(kit_arena(p->dtype), kit_arena(of[k])) == 0;
            named |= in_it && !p->spare;
        }
        if (!n && !named) { continue; }
        kit_put(x, "static %s %s[%lld];\n", kit_type(of[k]), kit_arena(of[k]), kit_export__size(n));
        *ram += (uint64_t)n * tensor_dtype_size(of[k]);
    }
}

// ---- functions

// One text of export_math.h. A text may have a function that the step does not use.
KIT_TEXT_FN void kit_export__function(kit_export_state_t *x, const char *text) {
    int begins = 1;                     // a line
    while (*text) {
        size_t skip = 0;
        if (begins && strncmp(text, "static ", 7) == 0) {
            skip = strncmp(text, "static inline ", 14) == 0 ? 14 : 7;
        }
        if (skip) { kit_put(x, "K_FN "); }
        text += skip;
        begins = *text == '\n';
        kit_put(x, "%c", *text++);
    }
    kit_put(x, "\n");
}

KIT_TEXT_FN void kit_export__functions(kit_export_state_t *x) {
    static const kit_math_text_t texts[] = {KIT_MATH_TEXTS};
    for (int i = KIT_MATH_COUNT - 1; i >= 0; i--) {
        if (x->needs >> i & 1) { x->needs |= texts[i].needs; }
    }
    if (x->needs & ~(KIT_ON(KIT_INF) | KIT_ON(KIT_NAN))) {
        kit_put(x, "#if defined(__GNUC__)\n#define K_FN __attribute__((unused)) static inline\n"
                   "#else\n#define K_FN static\n#endif\n\n");
    }
    for (int i = 0; i < KIT_MATH_COUNT; i++) {
        if (!(x->needs >> i & 1)) { continue; }
        if (i == KIT_FOLD) {
            kit_put(x, "// The sums that are made side by side, as in the lanes of a vector.\n"
                       "#define K_LANES %d\n\n", x->lanes);
        }
        kit_export__function(x, texts[i].text);
    }
}

KIT_TEXT_FN void kit_export__init(kit_export_state_t *x, const char *name) {
    kit_put(x, "\nvoid %s_init(%s) {\n", name, x->draws ? "uint64_t seed_" : "void");
    for (int64_t i = 0; i < x->places; i++) {
        const kit_place_t *p = &x->place[i];
        if (p->kind != KIT_STATE) { continue; }
        int zero = kit_export__all_zero(p);
        kit_put(x, "    for (int i = 0; i < %lld; i++) { %s[i] = %s%s; }\n", (long long)p->numel, p->name,
                zero ? "0" : p->name, zero ? "" : "_start[i]");
    }
    if (x->updates) { kit_put(x, "    steps = %lld;\n", (long long)x->update[0]->at); }
    if (x->draws) { kit_put(x, "    seed = seed_;\n    stream = 0;\n"); }
    kit_put(x, "}\n");
}

// ---- what steps change

// Numbers the arrays that steps change: the parameters first, in the order in which the optimizer steps them.
KIT_TEXT_FN void kit_export__list_states(kit_export_state_t *x, int64_t calls) {
    for (int64_t c = 0; c < calls; c++) {
        tensor_graph_call_t call = tensor_graph_call(x->graph, c);
        if (strcmp(call.kernel->row->name, "step") != 0) { continue; }
        for (int k = TENSOR_STEP_HEAD; k < call.inputs + call.outputs; k += TENSOR_STEP_EACH) {
            tensor_graph_operand_t o = tensor_graph_operand(&call, k + TENSOR_STEP_PARAMETER);
            kit_place_t *p = kit_place(x, o.memory);
            if (p && p->kind == KIT_STATE && !p->listed) { p->listed = ++x->listed; }
        }
    }
    x->parameters = x->listed;
    for (int64_t i = 0; i < x->places; i++) {
        kit_place_t *p = &x->place[i];
        if (p->kind == KIT_STATE && !p->listed) { p->listed = ++x->listed; }
    }
}

KIT_TEXT_FN const kit_place_t *kit_export__listed(const kit_export_state_t *x, int number) {
    for (int64_t i = 0; i < x->places; i++) {
        if (x->place[i].listed == number) { return &x->place[i]; }
    }
    return NULL;
}

// The lines of the head about them.
KIT_TEXT_FN void kit_export__states(kit_export_state_t *x, const char *name) {
    if (!x->listed) { return; }
    kit_put(x, "//   %s_state(i, &size)        -> array i of what steps change, to read or put back\n", name);
    for (int i = 1; i <= x->listed; i++) {
        const kit_place_t *p = kit_export__listed(x, i);
        kit_put(x, "//   %8d %s[%lld]: %s, %s\n", i - 1, tensor_dtype_name(p->dtype), (long long)p->numel,
                i <= x->parameters ? "a parameter" : kit_word("first used by %.60s", p->op).text,
                kit_export__site(p->site));
    }
    int next = x->listed;
    if (x->updates) { kit_put(x, "//   %8d i32[1]: the count of steps\n", next++); }
    if (x->draws) {
        kit_put(x, "//   %8d u64[1]: the seed\n//   %8d u64[1]: how many random streams were used\n", next,
                next + 1);
    }
}

// The function that gives them.
KIT_TEXT_FN void kit_export__state(kit_export_state_t *x, const char *name) {
    if (!x->listed) { return; }
    kit_put(x, "\nvoid *%s_state(int i, int64_t *size) {\n    switch (i) {\n", name);
    for (int i = 1; i <= x->listed; i++) {
        const kit_place_t *p = kit_export__listed(x, i);
        kit_put(x, "    case %d: *size = %lld; return %s;\n", i - 1,
                (long long)p->numel * (long long)tensor_dtype_size(p->dtype), p->name);
    }
    int next = x->listed;
    if (x->updates) { kit_put(x, "    case %d: *size = 4; return &steps;\n", next++); }
    if (x->draws) {
        kit_put(x, "    case %d: *size = 8; return &seed;\n    case %d: *size = 8; return &stream;\n", next,
                next + 1);
    }
    kit_put(x, "    default: *size = 0; return 0;\n    }\n}\n");
}

// The arguments of NAME_step: with types, or as they are passed in the test.
KIT_TEXT_FN void kit_export__parameters(kit_export_state_t *x, const kit_export_t *e, int types) {
    int n = 0;
    for (int kind = KIT_INPUT; kind <= KIT_OUTPUT; kind++) {
        int count = kind == KIT_INPUT ? e->ninputs : e->noutputs;
        for (int i = 0; i < count; i++) {
            tensor_t *t = kind == KIT_INPUT ? e->inputs[i] : e->outputs[i];
            const kit_place_t *p = kit_place_of(x, t);
            kit_put(x, "%s", n++ ? ", " : "");
            if (types) {
                kit_put(x, "%s%s *%s", kind == KIT_INPUT ? "const " : "", kit_type(p->dtype), p->name);
            } else {
                kit_put(x, "%s_%s", kind == KIT_INPUT ? "given" : "got", p->name);
            }
        }
    }
    if (x->updates) { kit_put(x, "%s%s", n++ ? ", " : "", types ? "const double *rates" : "rates"); }
    if (!n && types) { kit_put(x, "void"); }
}

// Whether the kernels that record the test's values are those whose numbers the file has.
KIT_TEXT_FN int kit_export__is_own(const kit_export_state_t *x) {
    return x->lanes > 1 || strcmp(tensor_isa_name(), "scalar") == 0;
}

// The first lines, which say what the file is.
KIT_TEXT_FN void kit_export__head(kit_export_state_t *x, const kit_export_t *e, const char *name,
                                  uint64_t flash, uint64_t ram) {
    kit_put(x, "// %s.c - a step of a network, written by tensor.h's export_c.h\n//\n", name);
    kit_put(x, "//   %s_init(%s)        before the first step, and to begin again\n", name,
            x->draws ? "seed" : "");
    kit_put(x, "//   %s_step(", name);
    kit_export__parameters(x, e, 1);
    kit_put(x, ")        -> 0; 1 = a label is out of range\n");
    kit_export__states(x, name);
    for (int i = 0; i < e->ninputs + e->noutputs; i++) {
        tensor_t *t = i < e->ninputs ? e->inputs[i] : e->outputs[i - e->ninputs];
        kit_put(x, "//   %-8s %s[", kit_place_of(x, t)->name, tensor_dtype_name(tensor_dtype(t)));
        for (int d = 0; d < tensor_ndim(t); d++) {
            kit_put(x, d ? ",%lld" : "%lld", (long long)tensor_size(t, d));
        }
        kit_put(x, "]\n");
    }
    for (int i = 0; i < x->updates; i++) { kit_put(x, "//   rates[%d]  was %g\n", i, -x->update[i]->lr); }
    kit_put(x,
            "//\n// %llu bytes of memory, %llu bytes of constants, %.0f floating-point operations a step.\n",
            (unsigned long long)ram, (unsigned long long)flash, x->flops);
    if (e->int8) {
        kit_put(x, "// Weights are bytes with a scale for each row: results are near the library's.\n");
    }
    if (x->inexact) {
        kit_put(x, "// Some long sums are in another order than the library's: their last bits differ.\n");
    } else if (!e->int8) {
        kit_put(x, "// The numbers are those of TENSOR_ISA=%s, bit for bit.\n",
                x->lanes > 1 ? "portable" : "scalar");
    }
    if (e->replays > 0 && !x->inexact && !e->int8 && !kit_export__is_own(x)) {
        kit_put(x,
                "// The values that its test compares with were recorded under TENSOR_ISA=%s, which adds in\n"
                "// another order: the test accepts numbers that differ by 1e-4 of 1 + their size.\n",
                tensor_isa_name());
    }
    kit_put(x, "// No function of libc is called. Compile without -ffast-math.\n"
               "#include <float.h>\n#include <stdint.h>\n\n"
               "#ifdef __FAST_MATH__\n#error \"-ffast-math changes the numbers\"\n#endif\n\n"
               "#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16\n"
               "#error \"floats are not computed as floats: -std=gnu99, or -msse2 -mfpmath=sse\"\n"
               "#endif\n\n"
               "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
               "#elif defined(__GNUC__)\n#pragma GCC optimize (\"-ffp-contract=off\")\n#endif\n\n");
    kit_put(x, "void %s_init(%s);\nint %s_step(", name, x->draws ? "uint64_t seed" : "void", name);
    kit_export__parameters(x, e, 1);
    kit_put(x, ");\n%s", x->listed ? "" : "\n");
    if (x->listed) { kit_put(x, "void *%s_state(int i, int64_t *size);\n\n", name); }
}

// The bytes of an output of one replay, in whole doubles.
KIT_TEXT_FN size_t kit_export__bytes_of(tensor_t *t) {
    return ((size_t)tensor_numel(t) * tensor_dtype_size(tensor_dtype(t)) + 7) / 8 * 8;
}

// Replays, and copies the outputs of each one to `to`.   -> code
KIT_TEXT_FN int kit_export__replay(tensor_graph_t *g, const kit_export_t *e, char *to) {
    for (int r = 0; r < e->replays; r++) {
        int code = (tensor_graph_replay)(g);
        if (code) { return code; }
        for (int i = 0; i < e->noutputs; i++) {
            tensor_t *t = e->outputs[i];
            if (!tensor_numel(t)) { continue; }
            memcpy(to, tensor_data(t), (size_t)tensor_numel(t) * tensor_dtype_size(tensor_dtype(t)));
            to += kit_export__bytes_of(t);
        }
    }
    return 0;
}

// What the test compares with: the outputs of the replays.
KIT_TEXT_FN int kit_export__record(kit_export_state_t *x, tensor_graph_t *g, const kit_export_t *e) {
    size_t bytes = 0, at = 0;
    for (int i = 0; i < e->noutputs; i++) { bytes += kit_export__bytes_of(e->outputs[i]); }
    char *all = (char *)malloc(bytes * (size_t)e->replays + 1);
    if (!all) {
        x->failed = 1;
        return 0;
    }
    if (kit_export__replay(g, e, all)) {
        free(all);
        return 0;
    }
    for (int i = 0; i < e->noutputs; i++) {
        tensor_t *t = e->outputs[i];
        const kit_place_t *p = kit_place_of(x, t);
        if (!p->numel) { continue; }
        kit_put(x, "static const %s want_%s[%d][%lld] = {\n", kit_type(p->dtype), p->name, e->replays,
                (long long)p->numel);
        for (int r = 0; r < e->replays; r++) {
            kit_export__list(x, all + at + (size_t)r * bytes, p->dtype, p->numel);
            kit_put(x, r + 1 < e->replays ? ", " : "\n};\n");
        }
        at += kit_export__bytes_of(t);
    }
    free(all);
    return 1;
}

// The loop that compares output p of replay r.
KIT_TEXT_FN void kit_export__compare(kit_export_state_t *x, const kit_place_t *p) {
    const char *type = kit_type(p->dtype);
    int is_float = p->dtype == TENSOR_F32 || p->dtype == TENSOR_F64;
    kit_put(x, "        for (int i = 0; i < %lld; i++) {\n", (long long)p->numel);
    kit_put(x, "            %s got = got_%s[i], want = want_%s[r][i];\n", type, p->name, p->name);
    kit_put(x, "            if (memcmp(&got, &want, sizeof got) == 0) { continue; }\n");
    if (is_float) {
        kit_put(x, "            if (got != got && want != want) { continue; }     // NaN: its bits are the "
                   "processor's\n");
    }
    kit_put(x, "            double off = (double)got - (double)want, size = (double)want;\n"
               "            off = (off < 0 ? -off : off) / (1 + (size < 0 ? -size : size));\n"
               "            most = off > most || off != off ? off : most;\n"
               "            differ++;\n"
               "        }\n");
}

// A program that repeats the steps.
KIT_TEXT_FN int kit_export__test(kit_export_state_t *x, tensor_graph_t *g, const kit_export_t *e,
                                 const char *name) {
    int exact = kit_export__is_own(x) && !x->inexact && !e->int8;
    tensor_generator_t rng = tensor_get_generator();
    kit_put(x, "\n#ifdef ");
    for (const char *c = name; *c; c++) { kit_put(x, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c); }
    kit_put(x, "_VERIFY\n#include <stdio.h>\n#include <string.h>\n\n");
    for (int i = 0; i < e->ninputs; i++) {
        tensor_t *t = e->inputs[i];
        const kit_place_t *p = kit_place_of(x, t);
        kit_put(x, "static const %s given_%s[%lld] = ", kit_type(p->dtype), p->name,
                kit_export__size(p->numel));
        kit_export__values(x, tensor_data(t), p->dtype, p->numel);
    }
    if (!kit_export__record(x, g, e)) { return 0; }
    kit_put(x, "\nint main(void) {\n");
    if (x->updates) {
        kit_put(x, "    static const double rates[%d] = {", x->updates);
        for (int i = 0; i < x->updates; i++) {
            kit_put(x, "%s%s", i ? ", " : "", kit_number(x, -x->update[i]->lr, TENSOR_F64).text);
        }
        kit_put(x, "};\n");
    }
    kit_put(x, "    double most = 0;\n    long differ = 0;\n");
    for (int i = 0; i < e->noutputs; i++) {
        const kit_place_t *p = kit_place_of(x, e->outputs[i]);
        kit_put(x, "    static %s got_%s[%lld];\n", kit_type(p->dtype), p->name, kit_export__size(p->numel));
    }
    kit_put(x, x->draws ? "    %s_init(%lluu);\n" : "    %s_init();\n", name, (unsigned long long)rng.seed);
    if (x->draws) { kit_put(x, "    stream = %lluu;\n", (unsigned long long)rng.offset); }
    kit_put(x, "    for (int r = 0; r < %d; r++) {\n", e->replays);
    kit_put(x, "        if (%s_step(", name);
    kit_export__parameters(x, e, 0);
    kit_put(x, ")) { return 1; }\n");
    for (int i = 0; i < e->noutputs; i++) {
        const kit_place_t *p = kit_place_of(x, e->outputs[i]);
        if (p->numel) { kit_export__compare(x, p); }
    }
    kit_put(x, "    }\n    if (!differ) { printf(\"%s: %d steps, all bits are the same\\n\"); }\n", name,
            e->replays);
    kit_put(x, "    if (differ) { printf(\"%s: %%ld numbers differ, by %%g at most\\n\", differ, most); }\n",
            name);
    const char *passes = e->int8 ? "most <= 0.05" : "most <= 1e-4";
    kit_put(x, "    return !(%s);\n}\n#endif\n", exact ? "differ == 0" : passes);
    return 1;
}

#endif

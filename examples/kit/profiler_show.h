// profiler_show.h - how profiler.h shows what it has heard: tables, a flame graph as text, a trace
//
// A part of profiler.h, to copy with it.
#ifndef KIT_PROFILER_SHOW_H
#define KIT_PROFILER_SHOW_H

#include "profiler.h"

#endif

#if defined(KIT_PROFILER_IMPLEMENTATION) && !defined(KIT_PROFILER_SHOW_DONE)
#define KIT_PROFILER_SHOW_DONE

// Sums of a table by op, line or frame, in the order of their numbers.   -> rows to free, NULL after raising
static kit_profiler_row_t *kit_profiler__sums(kit_profiler_t *p, int by, int64_t *count) {
    double seconds = kit_profiler_seconds(p);
    uint64_t before = p->begin;
    int tree = by == KIT_PROFILER_MODULES;
    *count = tree ? p->frames.count : p->names.count;
    if (by < KIT_PROFILER_OPS || by > KIT_PROFILER_MODULES) {
        (tensor_raise)(TENSOR_ERR_INDEX,
                       "kit_profiler: by must be one of KIT_PROFILER_OPS, .._LINES, .._MODULES");
        return NULL;
    }
    kit_profiler_row_t *rows = (kit_profiler_row_t *)calloc((size_t)*count, sizeof *rows);
    if (!rows) { (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_profiler: out of memory"); }
    for (int64_t k = 0; rows && k < p->calls.count; k++) {
        const kit_profiler__call_t *c = &KIT_PROFILER__AT(p, calls, call, k);
        int32_t keys[3] = {c->op, c->line < 0 ? 1 : c->line, c->frame}; // 1: "?"
        kit_profiler_row_t *r = &rows[keys[by]];
        r->calls++;
        r->self += p->rate * (double)(c->end - c->begin);
        if (!tree) { r->total += p->rate * (double)(c->end - before); }
        r->bytes += (double)c->bytes;
        r->flops += (double)c->flops;
        before = c->end;
    }
    for (int64_t k = 0; rows && k < p->taken.count; k++) {
        const kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, k);
        const kit_profiler__call_t *c = &KIT_PROFILER__AT(p, calls, call, t->call);
        int32_t keys[3] = {c->op, c->line < 0 ? 1 : c->line, c->frame};
        rows[keys[by]].device += t->seconds;
    }
    for (int64_t k = *count - 1; rows && k >= 0; k--) {
        kit_profiler_row_t *r = &rows[k];
        r->name = kit_profiler__text(p, tree ? KIT_PROFILER__AT(p, frames, frame, k).path : (int32_t)k);
        if (tree) { r->total += p->rate * (double)KIT_PROFILER__AT(p, frames, frame, k).spent; }
        if (seconds > 0) { r->share = (tree ? r->total : r->self) / seconds; }
        if (!tree || k == 0) { continue; }
        kit_profiler_row_t *above = &rows[KIT_PROFILER__AT(p, frames, frame, k).parent];
        above->calls += r->calls;
        above->total += r->total;
        above->bytes += r->bytes;
        above->flops += r->flops;
        above->device += r->device;
    }
    return rows;
}

static int kit_profiler__by_share(const void *a, const void *b) {
    double x = ((const kit_profiler_row_t *)a)->share, y = ((const kit_profiler_row_t *)b)->share;
    return (x < y) - (x > y);
}

int kit_profiler_rows(kit_profiler_t *p, int by, kit_profiler_row_t *rows, int room) {
    int64_t count = 0, there = 0;
    kit_profiler_stop(p);
    kit_profiler_row_t *all = p ? kit_profiler__sums(p, by, &count) : NULL;
    for (int64_t k = 0; all && k < count; k++) {
        if (all[k].calls || all[k].total > 0) { all[there++] = all[k]; }
    }
    if (there) { qsort(all, (size_t)there, sizeof *all, kit_profiler__by_share); }
    for (int64_t k = 0; k < there && k < room; k++) { rows[k] = all[k]; }
    free(all);
    return (int)there;
}

void kit_profiler_print(kit_profiler_t *p, int by, int most) {
    static const char *const titles[3] = {"op", "line", "module"};
    int n = kit_profiler_rows(p, by, NULL, 0);
    if (by < KIT_PROFILER_OPS || by > KIT_PROFILER_MODULES) { return; } // raised, if there is a profiler
    kit_profiler_row_t *rows = (kit_profiler_row_t *)calloc((size_t)n + 1, sizeof *rows);
    double self = 0, device = 0;
    int marked = p && p->taken.count > 0;
    n = rows ? kit_profiler_rows(p, by, rows, n) : 0;
    printf("%-36s     calls    self ms   total ms    share         MB  GFLOP/s%s\n", titles[by],
           marked ? "   device us" : "");
    for (int k = 0; k < n; k++) {
        const kit_profiler_row_t *r = &rows[k];
        double host = by == KIT_PROFILER_MODULES ? r->total : r->self;
        double kernels = r->device > 0 ? r->device : host;
        double rate = r->flops > 0 && kernels > 0 ? 1e-9 * r->flops / kernels : 0;
        size_t length = strlen(r->name);
        self += r->self;
        if (by != KIT_PROFILER_MODULES || k == 0) { device += r->device; }
        if (k >= most) { continue; }
        printf("%-36s %9lld %10.3f %10.3f %6.2f %% %10.2f", r->name + (length > 36 ? length - 36 : 0),
               (long long)r->calls, 1e3 * r->self, 1e3 * r->total, 100 * r->share, 1e-6 * r->bytes);
        if (rate > 0) { printf(" %8.1f", rate); }
        if (marked) { printf("%*s %11.1f", rate > 0 ? 0 : 9, "", 1e6 * r->device); }
        printf("\n");
    }
    printf("%d rows: %.3f of %.3f ms in kernels; %lld calls not kept\n", n, 1e3 * self,
           1e3 * kit_profiler_seconds(p), (long long)(p ? p->lost : 0));
    if (marked || (p && p->unmarked)) {
        printf("device: %.3f ms; %lld calls without marks\n", 1e3 * device, (long long)p->unmarked);
    }
    free(rows);
}

void kit_profiler_flame(kit_profiler_t *p) {
    int64_t count;
    kit_profiler_stop(p);
    kit_profiler_row_t *rows = p ? kit_profiler__sums(p, KIT_PROFILER_MODULES, &count) : NULL;
    int32_t f = rows ? 0 : -1, depth = 0;
    while (f >= 0) { // the tree, without recursion: ranges nest as deep as the program likes
        kit_profiler__frame_t at = KIT_PROFILER__AT(p, frames, frame, f);
        int shown = rows[f].share >= 0.005, indent = depth < 16 ? 2 * depth : 32;
        int bar = (int)(40 * (rows[f].share < 1 ? rows[f].share : 1));
        if (shown) {
            printf("%*s%-*.40s %6.2f %% %10.3f ms %.*s\n", indent, "", 40 - indent,
                   kit_profiler__text(p, at.name), 100 * rows[f].share, 1e3 * rows[f].total, bar,
                   "########################################");
        }
        for (f = shown ? at.child : -1, depth++; f < 0 && depth > 0; depth--) {
            f = at.next;
            if (f < 0 && at.parent >= 0) { at = KIT_PROFILER__AT(p, frames, frame, at.parent); }
        }
    }
    free(rows);
}

// An event without its end: kind, track, name, times in microseconds (three places, whatever the locale).
static void kit_profiler__event(const kit_profiler_t *p, FILE *file, const char *text, char kind, int track,
                                uint64_t begin, uint64_t end) {
    unsigned long long at = (unsigned long long)(1e9 * p->rate * (double)(begin - p->begin));
    unsigned long long took = (unsigned long long)(1e9 * p->rate * (double)(end - begin));
    fprintf(file, ",\n{\"pid\":1,\"tid\":%d,\"ph\":\"%c\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,\"name\":\"",
            track, kind, at / 1000, at % 1000, took / 1000, took % 1000);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') { fputc('\\', file); }
        fputc((unsigned char)*text < 32 ? ' ' : *text, file);
    }
    fputc('"', file);
}

// A track for each device. Its clock is not the host's: it is set so that no kernel begins before its call.
static void kit_profiler__devices(const kit_profiler_t *p, FILE *file) {
    double shift[KIT_PROFILER_DEVICES] = {0};
    int seen[KIT_PROFILER_DEVICES] = {0};
    for (int64_t k = 0; k < p->taken.count; k++) {
        const kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, k);
        uint64_t called = KIT_PROFILER__AT(p, calls, call, t->call).begin - p->begin;
        double late = p->rate * (double)called - t->at;
        if (t->at < 0) { continue; }
        if (!seen[t->device] || late > shift[t->device]) { shift[t->device] = late; }
        seen[t->device] = 1;
    }
    for (int d = 0; d < KIT_PROFILER_DEVICES; d++) {
        if (!seen[d]) { continue; }
        fprintf(file, ",\n{\"pid\":1,\"tid\":%d,\"ph\":\"M\",\"name\":\"thread_name\",", d + 2);
        fprintf(file, "\"args\":{\"name\":\"device %d\"}}", d);
    }
    for (int64_t k = 0; p->rate > 0 && k < p->taken.count; k++) {
        const kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, k);
        int32_t op = KIT_PROFILER__AT(p, calls, call, t->call).op;
        if (t->at < 0) { continue; }
        uint64_t begin = p->begin + (uint64_t)((t->at + shift[t->device]) / p->rate);
        uint64_t end = begin + (uint64_t)(t->seconds / p->rate);
        kit_profiler__event(p, file, kit_profiler__text(p, op), 'X', t->device + 2, begin, end);
        fputc('}', file);
    }
}

int kit_profiler_trace(kit_profiler_t *p, const char *path) {
    kit_profiler_stop(p); // first: opening a file takes time
    if (!p) { return (tensor_raise)(TENSOR_ERR_OWNER, "kit_profiler_trace: the profiler is NULL"); }
    kit_file__new_t whole = kit_file__begin(path);
    FILE *file = whole.f;
    if (file) {
        fputs("{\"traceEvents\":[{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{}}", file);
    }
    for (int64_t k = 0; file && k < p->spans.count; k++) {
        const kit_profiler__span_t *s = &KIT_PROFILER__AT(p, spans, span, k);
        const char *name = kit_profiler__text(p, KIT_PROFILER__AT(p, frames, frame, s->frame).name);
        if (s->base >= 0) { name = "backward"; }
        kit_profiler__event(p, file, name, 'X', 1, s->begin, s->end);
        fputc('}', file);
    }
    for (int64_t k = 0; file && k < p->calls.count; k++) {
        const kit_profiler__call_t *c = &KIT_PROFILER__AT(p, calls, call, k);
        kit_profiler__event(p, file, kit_profiler__text(p, c->op), 'X', 1, c->begin, c->end);
        fprintf(file, ",\"args\":{\"bytes\":%.0f,\"flop\":%.0f}}", (double)c->bytes, (double)c->flops);
        kit_profiler__event(p, file, "memory", 'C', 1, c->begin, c->begin);
        fprintf(file, ",\"args\":{\"live bytes\":%llu}}", (unsigned long long)c->live);
    }
    if (file) { kit_profiler__devices(p, file); }
    if (file) { fputs("\n]}\n", file); }
    return kit_file__finish(&whole, 1);
}

#endif

// profiler_tree.h - where profiler.h counts what it hears: the tree of modules and ranges, which of them are
// open, and in which a node was recorded
//
// A part of profiler.h, to copy with it.
#ifndef KIT_PROFILER_TREE_H
#define KIT_PROFILER_TREE_H

#include "profiler.h"

#endif

#if defined(KIT_PROFILER_IMPLEMENTATION) && !defined(KIT_PROFILER_TREE_DONE)
#define KIT_PROFILER_TREE_DONE

// The frame of that name in another; beyond KIT_PROFILER__FRAMES of them, that other.
static int32_t kit_profiler__child(kit_profiler_t *p, int32_t parent, const char *name) {
    const kit_profiler__frame_t *at = &KIT_PROFILER__AT(p, frames, frame, parent);
    for (int32_t k = at->child; k >= 0; k = KIT_PROFILER__AT(p, frames, frame, k).next) {
        if (!strcmp(kit_profiler__text(p, KIT_PROFILER__AT(p, frames, frame, k).name), name)) { return k; }
    }
    char path[512];
    const char *above = parent ? kit_profiler__text(p, at->path) : "";
    snprintf(path, sizeof path, "%.400s%s%.100s", above, *above ? "." : "", name);
    kit_profiler__frame_t f = {-1, -1, parent, -1, at->child, -1, -1, 0};
    f.name = kit_profiler__name(p, name);
    f.path = kit_profiler__name(p, path);
    void *room = p->frames.count < KIT_PROFILER__FRAMES ? kit_profiler__add(&p->frames, sizeof f) : NULL;
    if (!room) { return parent; }
    memcpy(room, &f, sizeof f);
    return KIT_PROFILER__AT(p, frames, frame, parent).child = (int32_t)p->frames.count - 1;
}

// Where the gradient of calls in frame f is counted while a backward pass runs in frame `base`: in the path
// of f below base.backward, without the part that both share.
static int32_t kit_profiler__mirror(kit_profiler_t *p, int32_t f, int32_t base) {
    for (int32_t k = base; k >= 0; k = KIT_PROFILER__AT(p, frames, frame, k).parent) {
        if (k == f) { return kit_profiler__child(p, base, "backward"); }
    }
    kit_profiler__frame_t of = KIT_PROFILER__AT(p, frames, frame, f);
    if (of.base == base) { return of.mirror; }
    int32_t parent = kit_profiler__mirror(p, of.parent, base);
    of.mirror = kit_profiler__child(p, parent, kit_profiler__text(p, of.name));
    KIT_PROFILER__AT(p, frames, frame, f).base = base;
    KIT_PROFILER__AT(p, frames, frame, f).mirror = of.mirror;
    return of.mirror;
}

// The frame that is left, or goes on, has the time since the last such moment.
static void kit_profiler__spend(kit_profiler_t *p, uint64_t now) {
    KIT_PROFILER__AT(p, frames, frame, p->frame).spent += now - p->spent;
    p->spent = now;
}

// The nodes recorded since the last such moment, if there are any, are the frame's.
static void kit_profiler__record(kit_profiler_t *p, int32_t frame) {
    uint64_t node = tensor_profiler_node();
    int64_t n = p->nodes.count;
    if (n && KIT_PROFILER__AT(p, nodes, nodes, n - 1).last >= node) { return; }
    kit_profiler__nodes_t *made = (kit_profiler__nodes_t *)kit_profiler__add(&p->nodes, sizeof *made);
    p->lost += !made;
    if (!made) { return; }
    made->last = node;
    made->frame = frame;
}

// The frame is left, or another node of a backward pass is at its place.
static void kit_profiler__leave(kit_profiler_t *p, uint64_t now) {
    kit_profiler__spend(p, now);
    kit_profiler__record(p, p->frame);
}

// The frame in which a node was recorded.   -> -1: before the profiler, or by another thread
static int32_t kit_profiler__frame_of(const kit_profiler_t *p, uint64_t node) {
    int64_t low = 0, high = p->nodes.count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (KIT_PROFILER__AT(p, nodes, nodes, middle).last < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return node && low < p->nodes.count ? KIT_PROFILER__AT(p, nodes, nodes, low).frame : -1;
}

// A range begins, or a backward pass in frame `base`; base -1: a range.
static void kit_profiler__open(kit_profiler_t *p, int32_t frame, int32_t base, uint64_t now) {
    kit_profiler__span_t *s = (kit_profiler__span_t *)kit_profiler__add(&p->spans, sizeof *s);
    p->lost += !s;
    if (!s) { return; }
    s->begin = now;
    s->frame = p->frame = frame;
    s->outer = p->span;
    s->base = base;
    s->line = p->pass < 0 ? -1 : KIT_PROFILER__AT(p, spans, span, p->pass).line;
    p->span = (int32_t)p->spans.count - 1;
    if (base >= 0) { p->pass = p->span; }
}

// Where the number of the innermost open pass, or range, is kept: p->span, or `outer` of one inside of it.
static int32_t *kit_profiler__innermost(kit_profiler_t *p, int is_pass) {
    int32_t *link = &p->span;
    while (*link >= 0 && (KIT_PROFILER__AT(p, spans, span, *link).base >= 0) != is_pass) {
        link = &KIT_PROFILER__AT(p, spans, span, *link).outer;
    }
    return link;
}

// The innermost pass, or range, ends; if there is none, it began before the profiler. What began inside of it
// and is of the other kind goes on: a hook may leave its range open, or end one from before the pass.
static void kit_profiler__close(kit_profiler_t *p, int is_pass, uint64_t now) {
    int32_t *link = kit_profiler__innermost(p, is_pass);
    if (*link < 0) { return; }
    kit_profiler__span_t *s = &KIT_PROFILER__AT(p, spans, span, *link);
    s->end = now;
    *link = s->outer;
    p->frame = p->span < 0 ? 0 : KIT_PROFILER__AT(p, spans, span, p->span).frame;
    if (is_pass) { p->pass = *kit_profiler__innermost(p, 1); }
}

#endif

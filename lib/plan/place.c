/* Which slices stay on the device. Streamed bytes are spread evenly over the step's compute time, so that a small ring keeps the link busy:
 * each slice's share of time earns streaming credit, and a slice is streamed when the credit has reached half its size. */
#include "plan/plan_state.h"

#include <math.h>

#define SIZE_CLASSES 48u
#define SWAPS 16u
#define MANY_ITEMS 4096u

typedef struct ofl_place_item {
    uint64_t bytes; /* with alignment */
    double credit;  /* when it was decided: high means "almost streamed" or "streamed by far" */
    uint32_t slice;
    bool fixed, odd, resident; /* fixed: stays. odd: stays, but may be exchanged */
} item;

typedef struct placing {
    item *items;
    uint64_t count, resident, room;
} placing;

static void decide(placing *p, item *it, bool resident)
{
    if (it->resident != resident) p->resident = resident ? p->resident + it->bytes : p->resident - it->bytes;
    it->resident = resident;
}

static bool is_free(const item *it) { return !it->fixed && !it->odd; }

/* slice's share of its unit's time, by bytes; by bytes alone where no time is known. */
static double time_share(const ofl_plan_cut *cut, const ofl_slice *slice, double unit_bytes, bool timed)
{
    if (!timed) return (double)slice->bytes;
    return unit_bytes > 0 ? cut->units[slice->unit].compute_seconds * ((double)slice->bytes / unit_bytes) : 0;
}

static double unit_bytes(const ofl_plan_cut *cut, const ofl_unit *unit)
{
    double bytes = 0;
    for (uint32_t i = 0; i < unit->slice_count; i++) bytes += (double)cut->slices[unit->slice_first + i].bytes;
    return bytes;
}

static double total_time(const ofl_plan_cut *cut, bool timed)
{
    double total = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) total += timed ? cut->units[i].compute_seconds : unit_bytes(cut, &cut->units[i]);
    return total;
}

static void spread(const ofl_plan_cut *cut, placing *p, uint64_t streamed, bool timed)
{
    double credit = 0, total = total_time(cut, timed), rate = total > 0 ? (double)streamed / total : 0;
    uint64_t next = 0;
    for (uint64_t u = 0; u < cut->unit_count; u++) {
        double whole = unit_bytes(cut, &cut->units[u]);
        for (uint32_t i = 0; i < cut->units[u].slice_count; i++) {
            uint32_t slice = cut->units[u].slice_first + i;
            credit += rate * time_share(cut, &cut->slices[slice], whole, timed);
            if (next == p->count || p->items[next].slice != slice) continue;
            item *it = &p->items[next++];
            it->credit = credit;
            if (!is_free(it)) continue;
            decide(p, it, credit < 0.5 * (double)it->bytes);
            if (!it->resident) credit -= (double)it->bytes;
        }
    }
}

/* Where compute takes long for few bytes, not all credit can be spent: the rest is taken evenly, by bytes, from what still stays. */
static void shed_evenly(placing *p)
{
    double credit = 0, free_bytes = 0, excess = (double)(p->resident - p->room);
    for (uint64_t i = 0; i < p->count; i++) free_bytes += is_free(&p->items[i]) && p->items[i].resident ? (double)p->items[i].bytes : 0;
    for (uint64_t i = 0; i < p->count && p->resident > p->room; i++) {
        item *it = &p->items[i];
        if (!is_free(it) || !it->resident) continue;
        credit += excess / free_bytes * (double)it->bytes;
        if (credit < 0.5 * (double)it->bytes || it->bytes > p->resident - p->room) continue;
        credit -= (double)it->bytes;
        decide(p, it, false);
    }
}

/* Too much stays: streams the one that fits the excess best; among equals the one that was nearest to be streamed. */
static bool shed_one(placing *p)
{
    uint64_t excess = p->resident - p->room;
    item *best = NULL;
    for (uint64_t i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        if (!it->resident || !is_free(it)) continue;
        bool enough = it->bytes >= excess, best_enough = best != NULL && best->bytes >= excess;
        bool better = best == NULL || (enough && !best_enough) ||
                      (enough == best_enough && (enough ? it->bytes < best->bytes : it->bytes > best->bytes)) ||
                      (it->bytes == best->bytes && it->credit > best->credit);
        if (better) best = it;
    }
    if (best != NULL) decide(p, best, false);
    return best != NULL;
}

/* Room is left: keeps the largest that fits; among equals the one streamed with the least credit. */
static bool keep_one(placing *p)
{
    uint64_t slack = p->room - p->resident;
    item *best = NULL;
    for (uint64_t i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        if (it->resident || it->bytes > slack) continue;
        if (best == NULL || it->bytes > best->bytes || (it->bytes == best->bytes && it->credit < best->credit)) best = it;
    }
    if (best != NULL) decide(p, best, true);
    return best != NULL;
}

typedef struct size_class { uint64_t bytes; item *kept, *streamed; } size_class;

static size_class *class_of(size_class *classes, uint32_t *count, uint64_t bytes)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (classes[i].bytes == bytes) return &classes[i];
    }
    if (*count == SIZE_CLASSES) return NULL;
    classes[*count] = (size_class){.bytes = bytes};
    return &classes[(*count)++];
}

static uint32_t classify(placing *p, size_class *classes)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        size_class *c = it->fixed ? NULL : class_of(classes, &count, it->bytes);
        if (c == NULL) continue;
        if (it->resident && (c->kept == NULL || it->credit > c->kept->credit)) c->kept = it;
        if (!it->resident && (c->streamed == NULL || it->credit < c->streamed->credit)) c->streamed = it;
    }
    return count;
}

/* Exchanges one kept for one a little larger, to fill the room better. */
static bool swap_one(placing *p)
{
    size_class classes[SIZE_CLASSES], *out = NULL, *in = NULL;
    uint32_t count = classify(p, classes);
    uint64_t slack = p->room - p->resident, gain = 0;
    for (uint32_t a = 0; a < count; a++) {
        for (uint32_t b = 0; b < count; b++) {
            if (classes[a].kept == NULL || classes[b].streamed == NULL || classes[b].bytes <= classes[a].bytes) continue;
            uint64_t more = classes[b].bytes - classes[a].bytes;
            if (more > slack || more <= gain) continue;
            gain = more;
            out = &classes[a];
            in = &classes[b];
        }
    }
    if (gain == 0) return false;
    decide(p, out->kept, false);
    decide(p, in->streamed, true);
    return true;
}

static uint64_t largest_slice(const ofl_plan_facts *facts, const ofl_plan_cut *cut)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        if (!facts->tensors[cut->slices[i].tensor].small) largest = ofl_max_u64(largest, cut->slices[i].bytes);
    }
    return largest;
}

static void collect(const ofl_plan_facts *facts, const ofl_plan_cut *cut, ofl_plan_keep keep, placing *p)
{
    uint64_t large = keep == OFL_KEEP_ODD ? largest_slice(facts, cut) / 16 * 15 : 0;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        if (facts->tensors[cut->slices[i].tensor].small) continue;
        bool fixed = keep == OFL_KEEP_HEAD && cut->loads[cut->slices[i].unit].head;
        item *it = &p->items[p->count++];
        *it = (item){.bytes = ofl_plan_align(cut->slices[i].bytes),
                     .slice = i,
                     .fixed = fixed,
                     .odd = cut->slices[i].bytes < large,
                     .resident = true};
        p->resident += it->bytes;
    }
}

ofl_status ofl_plan_place(const ofl_plan_facts *facts, ofl_plan_cut *cut, uint64_t room, ofl_plan_keep keep)
{
    if (cut->items == NULL) cut->items = ofl_alloc(cut->unit_slice_count, sizeof *cut->items);
    if (cut->items == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
    placing p = {.items = cut->items, .room = room};
    collect(facts, cut, keep, &p);
    if (p.resident > room) {
        spread(cut, &p, p.resident - room, total_time(cut, true) > 0);
        if (p.resident > room && p.count > MANY_ITEMS) shed_evenly(&p); /* one by one would take its time */
        while (p.resident > room && shed_one(&p)) continue;
    }
    bool fits = p.resident <= room;
    while (fits && p.resident < room && keep_one(&p)) continue;
    for (uint32_t i = 0; fits && i < SWAPS && swap_one(&p); i++) continue;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) cut->slices[i].tier = OFL_TIER_DEVICE;
    for (uint64_t i = 0; i < p.count; i++) cut->slices[p.items[i].slice].tier = p.items[i].resident ? OFL_TIER_DEVICE : OFL_TIER_PINNED;
    ofl_plan_cut_layout(cut);
    return fits ? OFL_OK : OFL_NOT_READY;
}

static bool streams_with_layers(const ofl_plan_facts *facts, int32_t block, uint32_t resident_layers)
{
    return block >= 0 && (uint32_t)block >= resident_layers && (uint32_t)block < facts->shape.block_count;
}

void ofl_plan_place_layers(const ofl_plan_facts *facts, ofl_plan_cut *cut, uint32_t resident_layers)
{
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        bool streamed = streams_with_layers(facts, facts->tensors[cut->slices[i].tensor].block, resident_layers);
        cut->slices[i].tier = streamed ? OFL_TIER_PINNED : OFL_TIER_DEVICE;
    }
    ofl_plan_cut_layout(cut);
}

ofl_forced_layers ofl_plan_forced_layers(const ofl_plan_facts *facts, uint32_t resident_layers)
{
    ofl_forced_layers forced = {0};
    uint64_t piece = 0, largest = 0;
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        const ofl_plan_tensor *t = &facts->tensors[i];
        if (!ofl_plan_is_dense(t)) continue;
        uint64_t bytes = ofl_plan_align(t->bytes);
        if (i == 0 || t->block != facts->tensors[i - 1].block) piece = 0;
        if (!streams_with_layers(facts, t->block, resident_layers)) {
            forced.needed += bytes;
            continue;
        }
        forced.streamed += bytes;
        piece += bytes;
        largest = ofl_max_u64(largest, piece);
    }
    forced.ring = 2 * largest;
    forced.needed += forced.ring;
    return forced;
}

uint64_t ofl_plan_resident_bytes(const ofl_plan_cut *cut)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        if (cut->slices[i].tier == OFL_TIER_DEVICE) bytes += ofl_plan_align(cut->slices[i].bytes);
    }
    return bytes;
}

/* What a number of sequences leaves for weights, and how it is divided between residents and ring: by formula, each term monotone, so that
 * less memory, more context or more sequences never places more. */
#include "plan/plan_state.h"
#include "plan/ring.h"

#include <math.h>

#define CHUNK_SHARE 16u        /* of the room, what a larger prefill chunk may take from the weights */
#define CHUNK_STEP 16u
#define UNIT_SECONDS 2e-6      /* what a unit costs besides its copy's start: calls, kernels that fill the device less well */
#define UNEVEN_COST 0.08       /* so much more parts of different sizes count where the ring holds two: they pass less evenly */
#define RING_PIECES 3u         /* where much is streamed; and where that is little, … */
#define RING_STREAMED 160u     /* … this fraction of what is streamed: more pieces even out more */
#define PART_COMMON (UINT64_C(8) << 20) /* smaller parts only where the ring would otherwise be more than a … */
#define RING_SHARE 100u                 /* … hundredth of what is streamed */
#define BOUNCE_SHARE 16u       /* of what is streamed: more is not worth a reader that never waits */
#define SHARE_OF_TWO 0.3       /* of the model streamed: below it two pieces do */
#define PART_STEP 8u           /* part sizes are tried that differ by this share */
#define KINDS 64u              /* sizes of matrices told apart */
#define KIND_SHARE 0.1         /* of the model, to have sizes of its own */
#define EVEN_PARTS 16u         /* into more, the last one hardly counts */
#define FINE_UNITS 16384u      /* more are never made by choice, … */
#define MANY_UNITS 8192u       /* … and even parts of the largest size only up to this: the largest models take larger ones */
#define QUANTA 1024u           /* resident bytes are a whole number of such shares of the model, so that odd sizes do not show */
#define QUANTUM_MOST (UINT64_C(1) << 20)

/* The largest part size that is not above. */
static uint64_t part_size_below(const ofl_plan_search *s, uint64_t bytes)
{
    uint32_t i = s->part_count;
    while (i > 1 && s->parts[i - 1].bytes > bytes) i--;
    return s->part_count != 0 ? s->parts[i - 1].bytes : s->smallest_part;
}

uint64_t ofl_plan_larger_part(const ofl_plan_search *s, uint64_t part)
{
    for (uint32_t i = 0; i < s->part_count; i++) {
        if (s->parts[i].bytes >= part + part / PART_STEP) return s->parts[i].bytes;
    }
    return 0;
}

uint64_t ofl_plan_smaller_part(const ofl_plan_search *s, uint64_t part)
{
    for (uint32_t i = s->part_count; i-- > 0;) {
        if (s->parts[i].bytes <= part - part / PART_STEP) return s->parts[i].bytes;
    }
    return 0;
}

static uint64_t smallest_part(const ofl_plan_search *s)
{
    if (s->wish->cut == OFL_CUT_OFF) return 0;
    if (s->wish->cut == OFL_CUT_BYTES) return s->wish->part_bytes;
    uint64_t part = OFL_PART_SMALLEST;
    while (s->facts->dense_bytes / part > (part < OFL_PART_LARGEST ? FINE_UNITS : MANY_UNITS)) part *= 2;
    return part;
}

typedef struct kind { const ofl_plan_tensor *tensor; double count, bytes; } kind; /* matrices of one size and shape */

static uint32_t find_kinds(const ofl_plan_facts *facts, kind *kinds)
{
    uint32_t count = 0, k;
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        const ofl_plan_tensor *t = &facts->tensors[i];
        if (!ofl_plan_is_dense(t) || t->small) continue;
        for (k = 0; k < count && !(kinds[k].tensor->bytes == t->bytes && kinds[k].tensor->row_bytes == t->row_bytes); k++) continue;
        if (k == KINDS) k--; /* a model of very many shapes: counted as one of them */
        if (k == count) kinds[count++] = (kind){.tensor = t};
        kinds[k].count++;
        kinds[k].bytes += (double)t->bytes;
    }
    return count;
}

/* Smaller matrices share a unit. */
static double units_of(const kind *kinds, uint32_t count, uint64_t part)
{
    double units = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = kinds[i].tensor->bytes;
        units += kinds[i].count * (bytes > part ? (double)ofl_plan_parts_of(kinds[i].tensor, part) : 1 / (double)(part / bytes));
    }
    return units;
}

/* The share of the bytes that is cut into parts of different sizes. */
static double uneven_share(const kind *kinds, uint32_t count, uint64_t part)
{
    double uneven = 0, total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += kinds[i].bytes;
        if (kinds[i].tensor->bytes > part && !ofl_plan_parts_equal(kinds[i].tensor, part)) uneven += kinds[i].bytes;
    }
    return total > 0 ? uneven / total : 0;
}

/* Keeps them ascending and apart. */
static void add_part(ofl_plan_search *s, uint64_t bytes)
{
    uint32_t at = s->part_count;
    if (bytes < s->smallest_part || bytes > s->largest_part || s->part_count == OFL_PLAN_PARTS) return;
    while (at > 0 && s->parts[at - 1].bytes > bytes) at--;
    if (at > 0 && s->parts[at - 1].bytes == bytes) return;
    for (uint32_t i = s->part_count++; i > at; i--) s->parts[i] = s->parts[i - 1];
    s->parts[at].bytes = bytes;
}

/* A smaller part whose ring costs more than a larger one's is none: where more is streamed, it might follow that one. */
static void drop_dearer(ofl_plan_search *s)
{
    double least = INFINITY;
    for (uint32_t i = s->part_count; i-- > 0;) {
        double ring = s->parts[i].weight * (double)s->parts[i].bytes;
        if (ring > least) s->parts[i].weight = INFINITY;
        else least = ring;
    }
}

/* Powers of two and three halves of them, and the sizes that cut the matrices which make up most of the model into equal parts: others
 * leave a smaller last part, which costs as much to start. */
static void find_parts(ofl_plan_search *s)
{
    kind kinds[KINDS];
    uint32_t count = find_kinds(s->facts, kinds);
    double total = 0;
    for (uint64_t part = s->largest_part; part >= OFL_PART_SMALLEST; part /= 2) {
        add_part(s, part);
        if (part / 4 * 3 >= OFL_PART_SMALLEST) add_part(s, part / 4 * 3);
    }
    for (uint32_t i = 0; i < count; i++) total += kinds[i].bytes;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t parts = 1; kinds[i].bytes > KIND_SHARE * total && parts <= EVEN_PARTS; parts++)
            add_part(s, ofl_plan_even_part(kinds[i].tensor, parts));
    }
    for (uint32_t i = 0; i < s->part_count; i++) {
        ofl_plan_part *part = &s->parts[i];
        part->units = units_of(kinds, count, part->bytes);
        part->weight = 1 + UNEVEN_COST * uneven_share(kinds, count, part->bytes);
    }
    drop_dearer(s);
}

static void add_load(ofl_unit_load *sum, const ofl_unit_load *load)
{
    sum->bytes += load->bytes;
    sum->elements += load->elements;
    sum->expert_bytes += load->expert_bytes;
    sum->expert_elements += load->expert_elements;
    sum->head = load->head;
}

ofl_status ofl_plan_search_open(const ofl_plan_facts *facts, const ofl_plan_wish *wish, const ofl_plan_settings *settings,
                                ofl_plan_draft *scratch, ofl_plan_search *out)
{
    ofl_plan_search s = {.facts = facts, .wish = wish, .settings = *settings, .scratch = scratch};
    ofl_plan_cut cut = {0};
    s.smallest_part = smallest_part(&s);
    s.largest_part = ofl_max_u64(OFL_PART_LARGEST, s.smallest_part);
    if (wish->cut == OFL_CUT_AUTO) find_parts(&s);
    if (wish->force_layers) s.forced = ofl_plan_forced_layers(facts, wish->resident_layers);
    ofl_status status = ofl_plan_cut_make(facts, s.smallest_part, settings->compute_type, &cut);
    if (status != OFL_OK) return status;
    s.least_ring = cut.largest_unit;
    s.small_bytes = cut.small_bytes;
    for (uint64_t i = 0; i < facts->tensor_count; i++) s.tied |= facts->tensors[i].also_lookup;
    s.movable_bytes = cut.movable_bytes;
    for (uint64_t i = 0; i < cut.unit_count; i++) add_load(cut.loads[i].head ? &s.head : &s.block, &cut.loads[i]);
    if (wish->cut == OFL_CUT_AUTO && s.largest_part != s.smallest_part) { /* the largest parts need the largest workspace */
        ofl_plan_cut_clear(&cut);
        status = ofl_plan_cut_make(facts, s.largest_part, settings->compute_type, &cut);
        if (status != OFL_OK) return status;
    }
    s.workspace_elements = cut.workspace_elements;
    s.movable_bytes = ofl_max_u64(s.movable_bytes, cut.movable_bytes); /* alignment differs a little with the cut */
    s.quantum = ofl_max_u64(1, ofl_min_u64(s.movable_bytes / QUANTA, QUANTUM_MOST));
    scratch->cut = cut;
    *out = s;
    return OFL_OK;
}

static void set_counts(const ofl_plan_search *s, uint32_t sequences, uint32_t chunk, ofl_plan_settings *out)
{
    *out = s->settings;
    out->sequences = sequences;
    out->prefill_chunk_tokens = chunk;
    out->tokens_per_step_cap = s->wish->cap != 0 ? s->wish->cap : sequences + chunk;
}

/* All but movable weights and ring; UINT64_MAX when it overflows. */
static uint64_t fixed_bytes(const ofl_plan_search *s, uint32_t sequences, uint32_t chunk)
{
    ofl_plan_settings settings;
    ofl_budget budget;
    uint64_t total;
    set_counts(s, sequences, chunk, &settings);
    if (ofl_plan_account(s->facts, &settings, s->workspace_elements, &budget) != OFL_OK) return UINT64_MAX;
    return ofl_add_u64(budget.total_bytes, s->small_bytes, &total) ? total : UINT64_MAX;
}

/* The largest chunk that takes no more than `most` bytes in all. */
static uint32_t largest_chunk(const ofl_plan_search *s, uint32_t sequences, uint32_t least, uint64_t most)
{
    uint32_t low = least / CHUNK_STEP, high = OFL_CHUNK_LARGEST / CHUNK_STEP;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (fixed_bytes(s, sequences, middle * CHUNK_STEP) <= most) low = middle;
        else high = middle - 1;
    }
    return low * CHUNK_STEP;
}

uint32_t ofl_plan_least_chunk(const ofl_plan_search *s, uint32_t sequences)
{
    uint32_t cap = s->wish->cap != 0 ? s->wish->cap : UINT32_MAX;
    if (s->wish->prefill_chunk != 0) return s->wish->prefill_chunk;
    if (s->wish->cap != 0) return cap < OFL_CHUNK_LARGEST ? cap : OFL_CHUNK_LARGEST;
    if (sequences >= OFL_CHUNK_LARGEST) return OFL_CHUNK_LARGEST;
    return (sequences + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP; /* prompts keep up with answers */
}

/* Fewer prefill tokens a step leave more room for weights: all of the chunk where there is plenty, else what a share of the room holds. */
static bool choose_chunk(const ofl_plan_search *s, uint32_t sequences, ofl_plan_room *room)
{
    uint64_t vram = (uint64_t)s->facts->figures[OFL_FIGURE_VRAM];
    uint32_t chunk = ofl_plan_least_chunk(s, sequences);
    uint64_t least = fixed_bytes(s, sequences, chunk);
    if (least > vram) return false;
    room->weights = vram - least;
    if (s->wish->prefill_chunk == 0 && s->wish->cap == 0) {
        bool whole = s->movable_bytes <= room->weights;
        uint64_t full = fixed_bytes(s, sequences, OFL_CHUNK_LARGEST),
                 share = whole ? room->weights - s->movable_bytes : room->weights / CHUNK_SHARE;
        chunk = largest_chunk(s, sequences, chunk, least + share);
        room->weights -= ofl_min_u64(share, full - least);
    }
    set_counts(s, sequences, chunk, &room->settings);
    return true;
}

/* A piece is held while it computes too: the smaller the share that is streamed, the shorter that is beside the copies. */
static double ring_pieces(const ofl_plan_search *s, uint64_t streamed)
{
    return (double)streamed < SHARE_OF_TWO * (double)s->movable_bytes ? 2 : RING_PIECES;
}

/* The part size, of those up to `most`, at which starting copies and the room for the ring together cost least. More streamed never takes
 * smaller ones. */
static uint64_t cheapest_part(const ofl_plan_search *s, uint64_t streamed, double pieces, double most)
{
    double start = s->facts->figures[OFL_FIGURE_COPY_START] + UNIT_SECONDS, share = (double)streamed / (double)s->movable_bytes;
    double ring = pieces / s->facts->figures[OFL_FIGURE_LINK], least = INFINITY;
    uint64_t smallest = ofl_max_u64(OFL_PART_FINE, ofl_min_u64(PART_COMMON, streamed / (RING_PIECES * RING_SHARE)));
    uint64_t best = s->parts[s->part_count - 1].bytes;
    for (uint32_t i = 0; i < s->part_count; i++) {
        double cost = ring * (double)s->parts[i].bytes + share * s->parts[i].units * start;
        if (pieces < RING_PIECES) cost *= s->parts[i].weight;
        if (s->parts[i].bytes < smallest || cost >= least || (double)s->parts[i].bytes > most) continue;
        least = cost;
        best = s->parts[i].bytes;
    }
    return best;
}

/* Two pieces take no more room than three would where the one turns into the other. */
static uint64_t best_part(const ofl_plan_search *s, uint64_t streamed)
{
    double pieces = ring_pieces(s, streamed);
    if (pieces >= RING_PIECES) return cheapest_part(s, streamed, pieces, INFINITY);
    uint64_t turn = cheapest_part(s, (uint64_t)(SHARE_OF_TWO * (double)s->movable_bytes), RING_PIECES, INFINITY);
    return cheapest_part(s, streamed, pieces, RING_PIECES * (double)turn / pieces);
}

/* What passes through the bounce buffers is filled into them once it has its place in the ring: with less than this the reader waits. */
static uint64_t bounce_ring(const ofl_plan_search *s, uint64_t streamed)
{
    if ((double)streamed <= ofl_plan_pinnable(s->facts)) return 0;
    return ofl_min_u64(OFL_BOUNCE_RING_BYTES, streamed / BOUNCE_SHARE);
}

static void choose_ring(const ofl_plan_search *s, ofl_plan_room *room)
{
    uint64_t streamed = s->movable_bytes - room->weights, part = s->wish->cut == OFL_CUT_AUTO ? best_part(s, streamed) : s->least_ring;
    double pieces = ring_pieces(s, streamed);
    uint64_t wanted = ofl_max_u64((uint64_t)(pieces * (double)part), ofl_min_u64(streamed / RING_STREAMED, 2 * RING_PIECES * part));
    wanted = ofl_max_u64(wanted, bounce_ring(s, streamed));
    room->ring = ofl_min_u64(ofl_max_u64(ofl_plan_align(wanted), s->least_ring), room->weights) / OFL_ALIGNMENT_BYTES *
                 OFL_ALIGNMENT_BYTES; /* before any resident */
    if (s->wish->ring_bytes != 0) room->ring = ofl_plan_align(s->wish->ring_bytes);
    part = ofl_min_u64(part, (uint64_t)((double)room->ring / pieces));
    room->part = s->wish->cut == OFL_CUT_AUTO ? part_size_below(s, part) : s->smallest_part;
}

/* Whole blocks: what stays of a block makes its piece smaller; two pieces of the share that is streamed. */
static void choose_whole_ring(const ofl_plan_search *s, ofl_plan_room *room)
{
    double streamed = 1 - (double)room->weights / (double)s->movable_bytes;
    room->ring = s->wish->ring_bytes != 0 ? ofl_plan_align(s->wish->ring_bytes)
                                          : ofl_min_u64((uint64_t)(2 * streamed * (double)s->least_ring), room->weights);
}

static bool forced_fits(const ofl_plan_search *s, ofl_plan_room *room)
{
    room->ring = s->forced.ring;
    room->whole = s->forced.streamed == 0;
    room->resident = s->movable_bytes - ofl_min_u64(s->movable_bytes, s->forced.streamed);
    uint64_t most;
    return ofl_add_u64(room->weights, s->small_bytes, &most) && s->forced.needed <= most;
}

bool ofl_plan_room_of(const ofl_plan_search *s, uint32_t sequences, ofl_plan_room *out)
{
    ofl_plan_room room = {0};
    if (!choose_chunk(s, sequences, &room)) return false;
    if (s->wish->force_layers) {
        bool fits = forced_fits(s, &room);
        *out = room;
        return fits;
    }
    room.whole = s->movable_bytes <= room.weights;
    room.part = s->wish->cut == OFL_CUT_AUTO ? s->largest_part : s->smallest_part;
    if (!room.whole) {
        if (ofl_max_u64(s->least_ring, s->wish->ring_bytes) > room.weights) return false;
        if (s->wish->cut == OFL_CUT_OFF) choose_whole_ring(s, &room);
        else choose_ring(s, &room);
        if (room.ring < s->least_ring && s->wish->cut != OFL_CUT_OFF) return false;
        room.resident = room.ring <= room.weights ? (room.weights - room.ring) / s->quantum * s->quantum : 0;
    } else {
        room.resident = s->movable_bytes;
    }
    *out = room;
    return true;
}

static double compute_seconds(const ofl_plan_search *s, uint32_t sequences)
{
    ofl_step_rates rates;
    ofl_step_shape shape = ofl_plan_decode_shape(&s->settings, sequences);
    ofl_plan_rates(s->facts, &shape, &rates);
    return ofl_plan_unit_seconds(&rates, &s->block) + ofl_plan_unit_seconds(&rates, &s->head) +
           rates.attention * s->facts->shape.block_count + ofl_plan_host_seconds(s->facts, sequences);
}

double ofl_plan_coarse_step(const ofl_plan_search *s, uint32_t sequences)
{
    ofl_plan_room room;
    if (!ofl_plan_room_of(s, sequences, &room)) return INFINITY;
    double streamed = (double)(s->movable_bytes - room.resident), part = fmax(1, (double)(room.part != 0 ? room.part : OFL_COPY_BYTES));
    double link = ofl_plan_link_seconds(s->facts, streamed, streamed / part * s->facts->figures[OFL_FIGURE_COPY_START]);
    double calls = (double)s->movable_bytes / part * s->facts->unit_seconds + streamed / part * s->facts->piece_seconds;
    return fmax(link, compute_seconds(s, sequences) + calls);
}

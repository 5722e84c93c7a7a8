/* The times of a plan: of each unit and copy, and of a step, which is played through anew. Nothing here is shared with the timeline. */
#include "plan/check.h"

#include <math.h>
#include <string.h>

#define SAME 1e-9            /* sums of the same figures in another order */
#define REPLAY_TOLERANCE 0.005
#define ROUGHLY 0.02         /* of the first token, whose chunks are sampled */
#define REPLAY_EVENTS 400000u
#define REPLAY_STEPS_LEAST 8u
#define REPLAY_STEPS_MOST 64u
#define CHUNKS_MOST 256 /* of a piece */
#define BUFFERS 5u /* that what is not pinned passes through */

static bool near(double a, double b, double share) { return fabs(a - b) <= share * fmax(fabs(a), fabs(b)) + 1e-15; }

static bool is_vector(const ofl_tensor_info *info) { return info->n_dims < 2 || info->row_count < 2; }

/* What it computes, with the loop's calls for it. */
static double unit_seconds(const ofl_plan *plan, const ofl_unit *unit)
{
    double calls = plan->facts.unit_seconds;
    if (unit->streamed_bytes != 0) calls += plan->facts.piece_seconds;
    return unit->compute_seconds + calls;
}

/* What a unit computes with, from the model's own tensors. */
static ofl_status load_of(const ofl_checking *c, const ofl_unit *unit, ofl_unit_load *out)
{
    ofl_unit_load load = {0};
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &c->plan->draft.cut.slices[unit->slice_first + i];
        ofl_tensor_info info = {.struct_size = sizeof info};
        ofl_status status = ofl_model_tensor_get(c->model, slice->tensor, &info);
        if (status != OFL_OK) return status;
        if (is_vector(&info)) continue;
        double elements = (double)(info.elements / info.row_count) * (double)slice->row_count;
        bool expert = info.tensor_class == OFL_CLASS_EXPERT;
        *(expert ? &load.expert_bytes : &load.bytes) += (double)slice->bytes;
        *(expert ? &load.expert_elements : &load.elements) += elements;
        load.head |= info.also_lookup || info.block >= (int64_t)c->plan->facts.shape.block_count;
    }
    *out = load;
    return OFL_OK;
}

static ofl_status check_load(const ofl_checking *c, uint64_t index)
{
    ofl_unit_load load;
    const ofl_unit_load *mine = &c->plan->draft.cut.loads[index];
    ofl_status status = load_of(c, &c->plan->draft.cut.units[index], &load);
    if (status != OFL_OK) return status;
    if (load.bytes != mine->bytes || load.elements != mine->elements || load.expert_bytes != mine->expert_bytes ||
        load.expert_elements != mine->expert_elements || load.head != mine->head)
        return ofl_check_wrong(c, "what a unit computes with is not what its tensors hold");
    return OFL_OK;
}

/* A block's attention counts in exactly one of its units. */
static ofl_status check_attention(const ofl_checking *c)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    for (uint64_t first = 0, end; first < cut->unit_count; first = end) {
        uint32_t there = 0;
        int32_t block = cut->units[first].block;
        for (end = first; end < cut->unit_count && cut->units[end].block == block; end++) there += cut->loads[end].attention;
        if (there != (block >= 0 && (uint32_t)block < c->plan->facts.shape.block_count))
            return ofl_check_wrong(c, "attention is not counted once in each block");
    }
    return OFL_OK;
}

ofl_status ofl_check_compute(const ofl_checking *c)
{
    const ofl_plan *plan = c->plan;
    const ofl_plan_cut *cut = &plan->draft.cut;
    ofl_step_shape shape = ofl_plan_decode_shape(&plan->draft.settings, plan->draft.settings.sequences);
    ofl_step_rates rates;
    double sum = ofl_plan_host_seconds(&plan->facts, shape.logits_rows);
    ofl_status status = check_attention(c);
    ofl_plan_rates(&plan->facts, &shape, &rates);
    for (uint64_t i = 0; i < cut->unit_count && status == OFL_OK; i++) {
        status = check_load(c, i);
        if (status == OFL_OK && !near(cut->units[i].compute_seconds, ofl_plan_unit_seconds(&rates, &cut->loads[i]), SAME))
            status = ofl_check_wrong(c, "a unit's compute time is not that of its matrices");
        sum += unit_seconds(plan, &cut->units[i]);
    }
    if (status == OFL_OK && !near(sum, plan->forecast.step.compute_seconds, SAME))
        status = ofl_check_wrong(c, "the forecast's compute time is not the sum of the units'");
    return status;
}

static double figure_or(const ofl_plan_facts *facts, ofl_figure figure, double other)
{
    return facts->sources[figure] != OFL_SOURCE_NONE ? facts->figures[figure] : other;
}

/* From pinned memory: as given, else the lower of what was measured alone and while the device computed. */
static double pinned_rate(const ofl_plan_facts *facts)
{
    double link = facts->figures[OFL_FIGURE_LINK], computing = figure_or(facts, OFL_FIGURE_LINK_COMPUTING, link);
    return facts->sources[OFL_FIGURE_LINK] == OFL_SOURCE_GIVEN ? link : fmin(link, computing);
}

/* A unit's way to the device: over the link, copies × start + bytes ÷ its rate; and before that, unless it is pinned, into buffers, at the
 * rate of the host's copying or of the file. */
typedef struct way { double copy, fill, chunks; } way;

static way way_of(const ofl_plan *plan, const ofl_unit *unit, uint64_t pinned_chunk, uint64_t bounced_chunk)
{
    const ofl_plan_facts *facts = &plan->facts;
    double bytes = 0, pageable = figure_or(facts, OFL_FIGURE_LINK_PAGEABLE, facts->figures[OFL_FIGURE_LINK]);
    ofl_tier tier = OFL_TIER_DEVICE;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &plan->draft.cut.slices[unit->slice_first + i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        tier = slice->tier;
        bytes = (double)(slice->piece_offset + slice->bytes);
    }
    if (tier == OFL_TIER_DEVICE) return (way){0, 0, 0};
    way w = {.chunks = (double)ofl_check_copies(plan, unit, pinned_chunk, bounced_chunk)};
    w.copy = w.chunks * facts->figures[OFL_FIGURE_COPY_START] + bytes / pinned_rate(facts);
    if (tier == OFL_TIER_PAGEABLE) w.fill = bytes / pageable;
    if (tier == OFL_TIER_FILE) w.fill = bytes / figure_or(facts, OFL_FIGURE_FILE, pageable);
    return w;
}

/* Of all units; the longer of the two sums is what the way to the device takes at least. */
static double ways_of(const ofl_plan *plan, way *each, double *copies_out)
{
    double copy = 0, fill = 0;
    const uint64_t pinned = ofl_check_chunk(&plan->draft, OFL_TIER_PINNED), bounced = ofl_check_chunk(&plan->draft, OFL_TIER_FILE);
    for (uint64_t i = 0, n = 0; i < plan->draft.cut.unit_count; i++) {
        way w = way_of(plan, &plan->draft.cut.units[i], pinned, bounced);
        copy += w.copy;
        fill += w.fill;
        if (each != NULL && plan->draft.cut.units[i].piece_bytes != 0) each[n++] = w;
    }
    *copies_out = copy;
    return fmax(copy, fill);
}

ofl_status ofl_check_link(const ofl_checking *c)
{
    double copies;
    return near(ways_of(c->plan, NULL, &copies), c->plan->forecast.step.link_seconds, SAME)
               ? OFL_OK
               : ofl_check_wrong(c, "the forecast's link time is not that of the copies at the machine's rates");
}

/* A piece on its way through the ring: where it begins on an endless line, and when it has landed. */
typedef struct passage { uint64_t begin; double landed; } passage;

typedef struct replay {
    const ofl_plan *plan;
    const uint32_t *order; /* streamed units */
    way *ways;             /* one a streamed unit */
    passage *live;         /* circular */
    uint32_t count, next;  /* of order; of it, the next to be copied */
    uint32_t first, flying;
    uint64_t end;          /* of the youngest piece */
    double link_free, read_free;
    double emptied[BUFFERS]; /* when the last copies out of the buffers were done, the oldest first */
} replay;

/* Chunk after chunk: read once the reader is free, the piece has its place and the buffer is empty; then copied. */
static void send_through_buffers(replay *r, const way *w, double now)
{
    double chunks = fmin(w->chunks, CHUNKS_MOST);
    for (double chunk = 0; chunk < chunks; chunk++) {
        r->read_free = fmax(fmax(r->read_free, r->emptied[0]), now) + w->fill / chunks;
        r->link_free = fmax(r->link_free, r->read_free) + w->copy / chunks;
        memmove(r->emptied, r->emptied + 1, (BUFFERS - 1) * sizeof *r->emptied);
        r->emptied[BUFFERS - 1] = r->link_free;
    }
}

/* Contiguous, after the youngest; where the ring's end is too near, at its beginning. An empty ring begins anew. */
static bool send(replay *r, double now)
{
    uint64_t ring = r->plan->draft.budget.ring_bytes, bytes = r->plan->draft.cut.units[r->order[r->next]].piece_bytes;
    uint64_t begin = r->flying != 0 ? r->end : 0, oldest = r->flying != 0 ? r->live[r->first].begin : 0;
    uint64_t left = ring - begin % ring, end = begin + (bytes > left ? left : 0) + bytes;
    if (r->flying > r->count || end - oldest > ring) return false;
    if (r->ways[r->next].fill > 0) send_through_buffers(r, &r->ways[r->next], now);
    else r->link_free = fmax(r->link_free, now) + r->ways[r->next].copy;
    r->live[(r->first + r->flying++) % (r->count + 1)] = (passage){begin, r->link_free};
    r->end = end;
    r->next = (r->next + 1) % r->count;
    return true;
}

static double replay_step(replay *r, double now)
{
    const ofl_plan_cut *cut = &r->plan->draft.cut;
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        if (cut->units[i].piece_bytes == 0) {
            now += unit_seconds(r->plan, &cut->units[i]);
            continue;
        }
        now = fmax(now, r->live[r->first].landed) + unit_seconds(r->plan, &cut->units[i]);
        r->first = (r->first + 1) % (r->count + 1);
        r->flying--;
        while (send(r, now)) {}
    }
    return now + ofl_plan_host_seconds(&r->plan->facts, r->plan->draft.settings.sequences);
}

/* The mean of the later half of some steps. */
static double replay_steps(replay *r)
{
    double now = 0, half = 0;
    uint64_t steps = ofl_min_u64(ofl_max_u64(REPLAY_EVENTS / (r->count + 1), REPLAY_STEPS_LEAST), REPLAY_STEPS_MOST);
    while (send(r, 0)) {}
    for (uint64_t i = 0; i < steps; i++) {
        if (i == steps / 2) half = now;
        now = replay_step(r, now);
    }
    return (now - half) / (double)(steps - steps / 2);
}

ofl_status ofl_check_replay(const ofl_plan *plan, double *step_seconds_out)
{
    const ofl_plan_cut *cut = &plan->draft.cut;
    double compute = ofl_plan_host_seconds(&plan->facts, plan->draft.settings.sequences);
    uint32_t *order = ofl_alloc(cut->unit_count, sizeof *order);
    replay r = {.plan = plan, .order = order};
    r.ways = ofl_alloc(cut->unit_count, sizeof *r.ways);
    r.live = ofl_alloc(cut->unit_count + 1, sizeof *r.live);
    bool good = order != NULL && r.ways != NULL && r.live != NULL;
    for (uint32_t i = 0; good && i < cut->unit_count; i++) {
        compute += unit_seconds(plan, &cut->units[i]);
        if (cut->units[i].piece_bytes == 0) continue;
        order[r.count++] = i;
    }
    double copies, link = good ? ways_of(plan, r.ways, &copies) : 0;
    *step_seconds_out = fmax(fmax(compute, link), good && r.count != 0 ? replay_steps(&r) : 0);
    ofl_free(order);
    ofl_free(r.ways);
    ofl_free(r.live);
    return good ? OFL_OK : ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
}

/* The replay needs a ring that holds every piece. */
ofl_status ofl_check_step(const ofl_checking *c)
{
    double replayed, told = c->plan->forecast.step.step_seconds;
    ofl_status status = ofl_check_pieces(c);
    if (status == OFL_OK) status = ofl_check_replay(c->plan, &replayed);
    if (status != OFL_OK || near(replayed, told, REPLAY_TOLERANCE)) return status;
    return ofl_fail(c->status, "plan: the step takes %.6g s when it is played through anew, the forecast says %.6g s; make the plan anew",
                    replayed, told);
}

static ofl_status estimate(const ofl_checking *c, uint64_t tokens, uint64_t logits, uint64_t kv, ofl_step_estimate *out)
{
    ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = (uint32_t)tokens, .logits_rows = (uint32_t)logits, .kv_tokens = kv};
    out->struct_size = sizeof *out;
    return ofl_plan_estimate_step(c->plan, &shape, out);
}

/* Where compute meets link: not below it, and one token less is. */
static ofl_status check_knee(const ofl_checking *c)
{
    uint64_t knee = c->plan->forecast.knee_tokens, mean = (c->plan->draft.settings.context_tokens + 1) / 2;
    ofl_step_estimate at, below = {0};
    if (knee == 0) return OFL_OK;
    ofl_status status = estimate(c, knee, knee, knee * mean, &at);
    if (status == OFL_OK && knee > 1) status = estimate(c, knee - 1, knee - 1, (knee - 1) * mean, &below);
    if (status != OFL_OK) return status;
    bool met = at.compute_seconds >= at.link_seconds * (1 - SAME), before = below.compute_seconds < below.link_seconds * (1 + SAME);
    return met && (knee == 1 || before) ? OFL_OK : ofl_check_wrong(c, "the knee is not where compute meets link");
}

/* The prompt in chunks: none is faster than the first full one, none slower than the last full one; then the rest. */
static ofl_status check_first_token(const ofl_checking *c)
{
    uint64_t prompt = ofl_max_u64(c->plan->draft.settings.context_tokens, 2) - 1, chunk = c->plan->draft.settings.prefill_chunk_tokens;
    uint64_t full = (prompt - 1) / chunk, rest = prompt - full * chunk, before = full > 0 ? (full - 1) * chunk : 0;
    double told = c->plan->forecast.first_token_seconds;
    ofl_step_estimate first = {0}, slowest = {0}, last;
    ofl_status status = estimate(c, rest, 1, rest * full * chunk + rest * (rest + 1) / 2, &last);
    if (status == OFL_OK && full > 0) status = estimate(c, chunk, 0, chunk * (chunk + 1) / 2, &first);
    if (status == OFL_OK && full > 0) status = estimate(c, chunk, 0, chunk * before + chunk * (chunk + 1) / 2, &slowest);
    if (status != OFL_OK) return status;
    double least = (double)full * first.step_seconds + last.step_seconds, most = (double)full * slowest.step_seconds + last.step_seconds;
    if (told >= least * (1 - ROUGHLY) && told <= most * (1 + ROUGHLY)) return OFL_OK;
    return ofl_check_wrong(c, "the first token is not after the steps of its prompt");
}

static ofl_status check_forecast_rows(const ofl_checking *c)
{
    uint32_t planned = 0;
    for (uint32_t i = 0; i < c->plan->row_count; i++) {
        const ofl_forecast_row *row = &c->plan->rows[i];
        if (i > 0 && row->sequences <= row[-1].sequences) return ofl_check_wrong(c, "the rows by sequences do not ascend");
        if (!near(row->tokens_per_second * row->step_seconds, row->sequences, SAME))
            return ofl_check_wrong(c, "a row's tokens per second are not its sequences by its step");
        if (row->sequences == c->plan->forecast.sequences) planned += row->step_seconds == c->plan->forecast.step.step_seconds;
    }
    return planned == 1 ? OFL_OK : ofl_check_wrong(c, "the planned count is not among the rows by sequences");
}

/* max((W − V) / B, C), at the best rate that there is; and a step well above it says why. */
static ofl_status check_bound(const ofl_checking *c)
{
    const ofl_forecast *f = &c->plan->forecast;
    const ofl_budget *b = &c->plan->draft.budget;
    bool fast = b->pageable_bytes == 0 && b->file_bytes == 0;
    double least = fmax((double)b->lower_bound_bytes_per_step / pinned_rate(&c->plan->facts), f->step.compute_seconds);
    bool good = f->lower_bound_seconds >= least * (1 - SAME);
    if (!good || (fast && !near(f->lower_bound_seconds, least, SAME)) || f->lower_bound_seconds > f->step.step_seconds * (1 + SAME))
        return ofl_check_wrong(c, "the lower bound is not what the link and the compute allow at best");
    if (f->step.step_seconds > 1.011 * f->lower_bound_seconds && *ofl_plan_above_bound_why(c->plan) == '\0')
        return ofl_check_wrong(c, "a step above the bound without a reason");
    return OFL_OK;
}

/* Not before all is page-locked, and not after all is page-locked and read, one after the other, at the slower rate. */
static ofl_status check_load_time(const ofl_checking *c)
{
    const ofl_plan_facts *facts = &c->plan->facts;
    const ofl_budget *b = &c->plan->draft.budget;
    double pageable = figure_or(facts, OFL_FIGURE_LINK_PAGEABLE, facts->figures[OFL_FIGURE_LINK]);
    double file = figure_or(facts, OFL_FIGURE_FILE, pageable), pinning = figure_or(facts, OFL_FIGURE_PINNING, INFINITY);
    double pin = (double)b->pinned_bytes / pinning, bytes = (double)(b->device_bytes + b->pinned_bytes + b->pageable_bytes);
    double least = fmax(pin, bytes / fmax(file, pageable)), most = pin + bytes / fmin(file, pageable);
    double told = c->plan->forecast.load_seconds;
    return told == 0 /* not told: a plan of before */ || (told >= least * (1 - SAME) && told <= most * (1 + SAME))
               ? OFL_OK
               : ofl_check_wrong(c, "the time to load is not that of reading and page-locking");
}

ofl_status ofl_check_forecast(const ofl_checking *c)
{
    const ofl_forecast *f = &c->plan->forecast;
    const ofl_step_estimate *s = &f->step;
    if (f->sequences != c->plan->draft.settings.sequences) return ofl_check_wrong(c, "the forecast is for another number of sequences");
    if (!(s->step_seconds > 0) || s->step_seconds < fmax(s->link_seconds, s->compute_seconds) * (1 - SAME))
        return ofl_check_wrong(c, "the step is shorter than its copies or its compute");
    double copies;
    (void)ways_of(c->plan, NULL, &copies);
    if (!near(s->step_seconds, copies + s->link_idle_seconds, SAME) ||
        !near(s->step_seconds, s->compute_seconds + s->stall_seconds, SAME))
        return ofl_check_wrong(c, "idle and stall times are not what is left of the step");
    if (!near(f->tokens_per_second * s->step_seconds, f->sequences, SAME))
        return ofl_check_wrong(c, "tokens per second are not sequences by step");
    if ((f->link_bound != 0) != (s->link_seconds > s->compute_seconds))
        return ofl_check_wrong(c, "what binds is not the longer of link and compute");
    if (!(f->error_band_percent >= 1)) return ofl_check_wrong(c, "a forecast without an error band");
    ofl_status status = check_bound(c);
    if (status == OFL_OK) status = check_knee(c);
    if (status == OFL_OK) status = check_first_token(c);
    if (status == OFL_OK) status = check_load_time(c);
    return status == OFL_OK ? check_forecast_rows(c) : status;
}

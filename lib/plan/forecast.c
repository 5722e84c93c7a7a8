/* What a plan promises, and how far it may be off. */
#include "plan/plan_state.h"

#include <math.h>

#define KNEE_MOST (UINT64_C(1) << 31)
#define CHUNK_SAMPLES 8u

static double compute_band(const ofl_plan_facts *facts)
{
    if (facts->point_count != 0) return 5;
    double flops = ofl_source_error_percent(facts->sources[OFL_FIGURE_DEVICE_FLOPS]),
           bandwidth = ofl_source_error_percent(facts->sources[OFL_FIGURE_DEVICE_BANDWIDTH]);
    return fmax(flops, bandwidth) + 10; /* a roofline is a bound */
}

static double link_band(const ofl_plan_facts *facts, const ofl_budget *budget)
{
    double band = ofl_source_error_percent(facts->sources[OFL_FIGURE_LINK]);
    if (budget->pageable_bytes != 0) band = fmax(band, ofl_source_error_percent(facts->sources[OFL_FIGURE_LINK_PAGEABLE]) + 5);
    if (budget->file_bytes != 0) band = fmax(band, ofl_source_error_percent(facts->sources[OFL_FIGURE_FILE]) + 10);
    return band;
}

#define BAND_LEAST 3      /* of any forecast: start costs and contention vary, however well the rates are known */
#define BAND_SHARED 5     /* the simulated link's copies and the compute share the processor, … */
#define BAND_COMPUTE 20   /* … its caches and its memory: bench/README.md has what was seen of it where compute binds */
#define NEAR_THE_KNEE 0.9 /* of the bound: which side binds is not known */
/* percent: so much longer the compute may take where its rates are only assumed, before it is said not to matter */
#define REACH_ASSUMED 100

bool ofl_plan_compute_is_assumed(const ofl_plan_facts *facts)
{
    return facts->point_count == 0 && (facts->sources[OFL_FIGURE_DEVICE_FLOPS] <= OFL_SOURCE_ASSUMED ||
                                       facts->sources[OFL_FIGURE_DEVICE_BANDWIDTH] <= OFL_SOURCE_ASSUMED);
}

/* The side that binds counts, near the knee the worse of the two; else the other by as much as it may reach into the step. */
static double error_band(const ofl_plan_facts *facts, const ofl_budget *budget, const ofl_step_estimate *step)
{
    double bound = step->bound_seconds, link = link_band(facts, budget), compute = compute_band(facts);
    if (bound <= 0) return 100;
    bool near_knee = fmin(step->link_seconds, step->compute_seconds) >= NEAR_THE_KNEE * bound;
    bool link_binds = step->link_seconds >= step->compute_seconds;
    double binding = near_knee ? fmax(link, compute) : link_binds ? link : compute;
    double reach = ofl_plan_compute_is_assumed(facts) ? REACH_ASSUMED : compute;
    double link_over = step->link_seconds * (100 + link) / bound - 100,
           compute_over = fmin(step->compute_seconds * (100 + reach) / bound - 100, compute);
    if (facts->simulated && facts->point_count != 0) binding = fmax(binding, link_binds && !near_knee ? BAND_SHARED : BAND_COMPUTE);
    return fmax(fmax(binding, BAND_LEAST), fmax(link_over, compute_over));
}

static double compute_seconds(const ofl_plan_facts *facts, const ofl_plan_draft *draft, uint32_t tokens)
{
    ofl_step_rates rates;
    ofl_step_shape shape = ofl_plan_decode_shape(&draft->settings, tokens);
    double seconds = ofl_plan_host_seconds(facts, tokens);
    ofl_plan_rates(facts, &shape, &rates);
    for (uint64_t i = 0; i < draft->cut.unit_count; i++)
        seconds += ofl_plan_unit_seconds(&rates, &draft->cut.loads[i]) + ofl_plan_call_seconds(facts, &draft->cut.units[i]);
    return seconds;
}

/* The least tokens of a decode step whose compute takes as long as the copies; 0: nothing is streamed, or never. */
static uint64_t knee(const ofl_plan_facts *facts, const ofl_plan_draft *draft)
{
    double link = draft->step.link_seconds;
    if (draft->piece_count == 0 || compute_seconds(facts, draft, (uint32_t)KNEE_MOST) < link) return 0;
    uint64_t low = 1, high = KNEE_MOST;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (compute_seconds(facts, draft, (uint32_t)middle) >= link) high = middle;
        else low = middle + 1;
    }
    return high;
}

/* One sequence's prompt alone: chunk `index` of it attends to all before it. */
static ofl_step_shape chunk_shape(uint64_t prompt, uint64_t chunk, uint64_t index)
{
    uint64_t first = index * chunk, tokens = ofl_min_u64(chunk, prompt - first);
    ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = (uint32_t)tokens, .logits_rows = first + tokens == prompt};
    shape.kv_tokens = tokens * first + tokens * (tokens + 1) / 2;
    return shape;
}

/* Chunks of one size differ by their attention alone, which grows in a straight line: a few of them, the last one by itself. */
static ofl_status first_token(const ofl_plan_facts *facts, const ofl_plan_draft *draft, double *out)
{
    uint64_t prompt = draft->settings.context_tokens > 1 ? draft->settings.context_tokens - 1 : 1,
             chunk = draft->settings.prefill_chunk_tokens;
    uint64_t chunks = prompt / chunk + (prompt % chunk != 0), samples = ofl_min_u64(chunks - 1, CHUNK_SAMPLES);
    double seconds = 0;
    for (uint64_t i = 0; i <= samples; i++) {
        uint64_t from = i * (chunks - 1) / (samples ? samples : 1), to = (i + 1) * (chunks - 1) / (samples ? samples : 1);
        bool last = i == samples;
        ofl_step_shape shape = chunk_shape(prompt, chunk, last ? chunks - 1 : (from + to - 1) / 2);
        ofl_step_estimate step = {.struct_size = sizeof step};
        ofl_status status = ofl_plan_draft_estimate(facts, draft, &shape, &step);
        if (status != OFL_OK) return status;
        seconds += step.step_seconds * (last ? 1 : (double)(to - from));
    }
    *out = seconds;
    return OFL_OK;
}

/* The engine page-locks block after block and reads each into its place meanwhile; residents pass through when that is done. */
static double load_seconds(const ofl_plan_facts *facts, const ofl_budget *b)
{
    double rate = ofl_plan_fill_rate(facts, facts->in_memory ? OFL_TIER_PAGEABLE : OFL_TIER_FILE);
    double resident = (double)b->device_bytes / rate;
    double read = (double)(b->pinned_bytes + b->pageable_bytes) / rate;
    bool known = facts->sources[OFL_FIGURE_PINNING] != OFL_SOURCE_NONE;
    return ofl_larger(read, known ? (double)b->pinned_bytes / facts->figures[OFL_FIGURE_PINNING] : 0) + resident;
}

ofl_status ofl_plan_forecast_make(const ofl_plan_search *search, ofl_plan *plan)
{
    const ofl_plan_draft *draft = &plan->draft;
    ofl_forecast f = {.struct_size = sizeof f, .sequences = draft->settings.sequences, .step = draft->step};
    f.error_band_percent = error_band(&plan->facts, &draft->budget, &draft->step);
    f.tokens_per_second = draft->step.step_seconds > 0 ? f.sequences / draft->step.step_seconds : 0;
    f.knee_tokens = knee(&plan->facts, draft);
    f.link_bound = draft->step.link_seconds > draft->step.compute_seconds;
    f.lower_bound_seconds = ofl_plan_lower_bound(&plan->facts, draft);
    f.load_seconds = load_seconds(&plan->facts, &draft->budget);
    ofl_status status = first_token(&plan->facts, draft, &f.first_token_seconds);
    plan->forecast = f;
    if (status == OFL_OK) status = ofl_plan_tell_bound(plan);
    return status != OFL_OK ? status : ofl_plan_solve_rows(search, plan);
}

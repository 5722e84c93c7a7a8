/* A plan made up by a test: capacity, caps and step times as it likes. Stands in for the planner's own functions, for tests of what only
 * reads a plan. */
#ifndef OFLOAD_TEST_MADE_PLAN_H
#define OFLOAD_TEST_MADE_PLAN_H

#include "support/support.h"

#include "base/base.h"

struct ofl_plan { ofl_plan_settings settings; double link_seconds; uint64_t estimates; };

ofl_status ofl_plan_settings_get(const ofl_plan *plan, ofl_plan_settings *out)
{
    return ofl_struct_out(out, &plan->settings, sizeof plan->settings, "settings");
}

/* A step takes the link's time, or 1 ms a token, 0.1 ms a row of logits and 1 µs a token of context. */
ofl_status ofl_plan_estimate_step(const ofl_plan *plan, const ofl_step_shape *step, ofl_step_estimate *out)
{
    ((ofl_plan *)(uintptr_t)plan)->estimates++;
    double compute = 1e-3 * step->tokens + 1e-4 * step->logits_rows + 1e-6 * (double)step->kv_tokens;
    ofl_step_estimate estimate = {.link_seconds = plan->link_seconds, .compute_seconds = compute};
    estimate.step_seconds = estimate.bound_seconds = compute > plan->link_seconds ? compute : plan->link_seconds;
    estimate.stall_seconds = estimate.step_seconds - compute;
    return ofl_struct_out(out, &estimate, sizeof estimate, "estimate");
}

static ofl_plan made_plan(uint32_t sequences, uint32_t cap, uint32_t chunk, uint32_t block, uint64_t capacity)
{
    return (ofl_plan){{.struct_size = sizeof(ofl_plan_settings),
                       .sequences = sequences,
                       .tokens_per_step_cap = cap,
                       .prefill_chunk_tokens = chunk,
                       .kv_block_tokens = block,
                       .kv_capacity_tokens = capacity},
                      0.05,
                      0};
}

#endif

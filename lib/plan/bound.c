/* How far a step is above what no ring, no start cost and a perfect spread would take, and why: each share computed from the plan. */
#include "plan/plan_state.h"

#include <stdarg.h>
#include <stdio.h>

#define ABOVE_LEAST 0.01   /* of the bound: below it nothing is said */
#define SHARE_LEAST 0.0005 /* of the bound: smaller shares are not named */

typedef struct telling { char text[640]; size_t used; double least; uint32_t shares; } telling;

double ofl_plan_lower_bound(const ofl_plan_facts *facts, const ofl_plan_draft *draft)
{
    return ofl_larger(ofl_plan_link_seconds(facts, (double)draft->budget.lower_bound_bytes_per_step, 0), draft->step.compute_seconds);
}

double ofl_plan_above_bound(const ofl_forecast *f)
{
    return f->lower_bound_seconds > 0 ? f->step.step_seconds / f->lower_bound_seconds - 1 : 0;
}

typedef struct time_text { char text[32]; } time_text;

static time_text seconds_text(double seconds)
{
    time_text t;
    double shown = seconds >= 1 ? seconds : seconds >= 1e-3 ? seconds * 1e3 : seconds * 1e6;
    (void)snprintf(t.text, sizeof t.text, "%.*f %s", shown >= 100 ? 0 : shown >= 10 ? 1 : 2, shown,
                   seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "µs");
    return t;
}

static __attribute__((format(printf, 2, 3))) void tell(telling *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(t->text + t->used, sizeof t->text - t->used, format, arguments);
    va_end(arguments);
    t->used = ofl_min_u64(t->used + (more > 0 ? (uint64_t)more : 0), sizeof t->text - 1);
}

static bool is_told(telling *t, double seconds)
{
    if (seconds < t->least) return false;
    tell(t, t->shares++ == 0 ? ": " : "; ");
    return true;
}

/* What was asked for and may cost it. */
static void tell_wish(telling *t, const ofl_plan_wish *wish)
{
    if (wish->force_layers) tell(t, ", with %u resident layers and whole blocks in two slots as asked", wish->resident_layers);
    else if (wish->cut == OFL_CUT_OFF) tell(t, ", with whole blocks as asked");
    else if (wish->cut == OFL_CUT_BYTES) tell(t, ", with parts of %s as asked", ofl_bytes_text(wish->part_bytes).text);
    if (wish->ring_bytes != 0) tell(t, ", with a ring of %s as asked", ofl_bytes_text(wish->ring_bytes).text);
}

/* The link's share: what is copied because the ring or nothing has its place, what copies cost to start, slower memory for whole units. */
static void tell_link(telling *t, const ofl_plan_facts *facts, const ofl_plan_draft *draft)
{
    const ofl_budget *b = &draft->budget;
    double streamed = (double)b->stream_bytes_per_step, copied = ofl_plan_link_seconds(facts, streamed, 0);
    double more = streamed - (double)b->lower_bound_bytes_per_step;
    double ring = ofl_larger(0, more < (double)b->ring_bytes ? more : (double)b->ring_bytes);
    double by_ring = copied - ofl_plan_link_seconds(facts, streamed - ring, 0);
    double unused = copied - by_ring - ofl_plan_link_seconds(facts, (double)b->lower_bound_bytes_per_step, 0);
    double starts =
        ofl_plan_link_seconds(facts, streamed, (double)b->stream_copies_per_step * facts->figures[OFL_FIGURE_COPY_START]) - copied;
    double slower = draft->step.link_seconds - starts - copied;
    if (is_told(t, by_ring))
        tell(t, "the ring of %s has the place of weights, which are copied in %s", ofl_bytes_text(b->ring_bytes).text,
             seconds_text(by_ring).text);
    if (is_told(t, unused))
        tell(t, "%s of the memory for weights stay unused, and as much is copied in %s", ofl_bytes_text((uint64_t)(more - ring)).text,
             seconds_text(unused).text);
    if (is_told(t, starts))
        tell(t, "the start of %llu copies takes %s", (unsigned long long)b->stream_copies_per_step, seconds_text(starts).text);
    if (is_told(t, slower)) tell(t, "whole units in slower memory than their bytes need take %s", seconds_text(slower).text);
}

/* The longest computation that frees nothing of the ring: a unit with the resident ones before it. */
static double longest_hold(const ofl_plan_facts *facts, const ofl_plan_draft *draft, const ofl_unit **at)
{
    const ofl_plan_cut *cut = &draft->cut;
    double longest = 0, run = ofl_plan_host_seconds(facts, draft->shape.logits_rows);
    for (uint64_t i = cut->unit_count; i-- > 0 && cut->units[i].piece_bytes == 0;)
        run += cut->units[i].compute_seconds + ofl_plan_call_seconds(facts, &cut->units[i]);
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        run += cut->units[i].compute_seconds + ofl_plan_call_seconds(facts, &cut->units[i]);
        if (cut->units[i].piece_bytes == 0) continue;
        if (run > longest) longest = run, *at = &cut->units[i];
        run = 0;
    }
    return longest;
}

static void tell_stalls(telling *t, const ofl_plan_facts *facts, const ofl_plan_draft *draft)
{
    const ofl_step_estimate *step = &draft->step;
    const ofl_unit *unit = NULL;
    uint64_t pieces = 0;
    for (uint64_t i = 0; i < draft->piece_count; i++) pieces += draft->pieces[i].bytes;
    double ring = pieces != 0 ? step->link_seconds * (double)draft->budget.ring_bytes / (double)pieces : 0;
    double hold = longest_hold(facts, draft, &unit);
    if (!is_told(t, step->step_seconds - step->bound_seconds)) return;
    tell(t, "link and compute wait for each other %s", seconds_text(step->step_seconds - step->bound_seconds).text);
    if (unit != NULL && hold > 0.5 * ring)
        tell(t, ", since up to %s computes %s while the ring holds copies of %s", unit->name, seconds_text(hold).text,
             seconds_text(ring).text);
    else tell(t, ", since the pieces come less evenly than the ring of %.1f of them evens out",
              (double)draft->budget.ring_bytes / (double)ofl_max_u64(1, ofl_plan_largest_piece(&draft->cut)));
}

ofl_status ofl_plan_tell_bound(ofl_plan *plan)
{
    const ofl_forecast *f = &plan->forecast;
    double above = ofl_plan_above_bound(f);
    telling t = {.least = SHARE_LEAST * f->lower_bound_seconds};
    if (above > ABOVE_LEAST) {
        tell(&t, "the step of %s is %.1f %% above the bound of %s", seconds_text(f->step.step_seconds).text, above * 100,
             seconds_text(f->lower_bound_seconds).text);
        tell_wish(&t, &plan->wish);
        tell_link(&t, &plan->facts, &plan->draft);
        tell_stalls(&t, &plan->facts, &plan->draft);
    }
    plan->above_bound_why = ofl_copy_string(t.text, t.used);
    return plan->above_bound_why != NULL ? OFL_OK : ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
}

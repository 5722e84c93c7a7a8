/* The whole check of a plan: its parts in order, up to the first contradiction, or all of them with a sentence each. */
#include "plan/check.h"

#include <stdio.h>

enum { SENTENCE = 256 };

static void about_model(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "%s, %u layers, %.12s…", p->facts.model_name, p->facts.shape.block_count, p->facts.model_identity);
}

static void about_shape(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "%s in all, %s read whole in a step, %s looked up by row", ofl_bytes_text(p->facts.stored_bytes).text,
                   ofl_bytes_text(p->facts.dense_bytes).text, ofl_bytes_text(p->facts.lookup_bytes).text);
}

static void about_tensors(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "each of %llu once and whole, in execution order, %llu slices in %llu units",
                   (unsigned long long)p->facts.tensor_count, (unsigned long long)p->draft.cut.slice_count,
                   (unsigned long long)p->draft.cut.unit_count);
}

static void about_pieces(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "the largest is %s, the ring %s", ofl_bytes_text(ofl_plan_largest_piece(&p->draft.cut)).text,
                   ofl_bytes_text(p->draft.budget.ring_bytes).text);
}

static void about_weights(const ofl_plan *p, char *to)
{
    const ofl_budget *b = &p->draft.budget;
    (void)snprintf(to, SENTENCE, "%s resident, %s streamed in %llu copies", ofl_bytes_text(b->resident_bytes).text,
                   ofl_bytes_text(b->stream_bytes_per_step).text, (unsigned long long)b->stream_copies_per_step);
}

static void about_kv(const ofl_plan *p, char *to)
{
    const ofl_plan_settings *s = &p->draft.settings;
    (void)snprintf(to, SENTENCE, "%s: %u × %s, for %llu tokens each in blocks of %u, at %llu B a token",
                   ofl_bytes_text(p->draft.budget.kv_bytes).text, s->sequences, ofl_bytes_text(s->kv_bytes_per_sequence).text,
                   (unsigned long long)s->context_tokens, s->kv_block_tokens, (unsigned long long)s->kv_bytes_per_token);
}

static void about_activations(const ofl_plan *p, char *to)
{
    const ofl_budget *b = &p->draft.budget;
    (void)snprintf(to, SENTENCE, "%s for %u tokens in a step, of it logits %s, workspace %s", ofl_bytes_text(b->activation_bytes).text,
                   p->draft.settings.tokens_per_step_cap, ofl_bytes_text(b->logits_bytes).text, ofl_bytes_text(b->workspace_bytes).text);
}

static void about_budget(const ofl_plan *p, char *to)
{
    const ofl_budget *b = &p->draft.budget;
    (void)snprintf(to, SENTENCE, "%s of %s: weights, ring, KV, activations, runtime %s, headroom %s", ofl_bytes_text(b->total_bytes).text,
                   ofl_bytes_text(b->vram_bytes).text, ofl_bytes_text(b->runtime_bytes).text, ofl_bytes_text(b->headroom_bytes).text);
}

static void about_host(const ofl_plan *p, char *to)
{
    const ofl_budget *b = &p->draft.budget;
    (void)snprintf(to, SENTENCE, "%s pinned, %s pageable, %s in the file", ofl_bytes_text(b->pinned_bytes).text,
                   ofl_bytes_text(b->pageable_bytes).text, ofl_bytes_text(b->file_bytes).text);
}

static void about_compute(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "%.6g s a step, the sum of its units", p->forecast.step.compute_seconds);
}

static void about_link(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "%.6g s a step, the sum of its copies", p->forecast.step.link_seconds);
}

static void about_step(const ofl_plan *p, char *to)
{
    double replayed = 0;
    (void)ofl_check_replay(p, &replayed);
    (void)snprintf(to, SENTENCE, "%.6g s, played through anew %.6g s", p->forecast.step.step_seconds, replayed);
}

static void about_forecast(const ofl_plan *p, char *to)
{
    (void)snprintf(to, SENTENCE, "%.4g tokens/s with %u at once, %s-bound; %u rows by sequences", p->forecast.tokens_per_second,
                   p->forecast.sequences, p->forecast.link_bound ? "link" : "compute", p->row_count);
}

static const struct part {
    const char *name;
    ofl_status (*check)(const ofl_checking *c);
    void (*about)(const ofl_plan *plan, char *to);
    bool model; /* needs the right one */
} parts[] = {
    {"model", ofl_check_identity, about_model, false},
    {"sizes", ofl_check_shape, about_shape, true},
    {"tensors", ofl_check_tensors, about_tensors, true},
    {"pieces", ofl_check_pieces, about_pieces, false},
    {"weights", ofl_check_weights, about_weights, false},
    {"KV", ofl_check_kv, about_kv, true},
    {"activations", ofl_check_workspace, about_activations, true},
    {"budget", ofl_check_budget, about_budget, false},
    {"host memory", ofl_check_host, about_host, false},
    {"compute", ofl_check_compute, about_compute, true},
    {"link", ofl_check_link, about_link, false},
    {"step", ofl_check_step, about_step, false},
    {"forecast", ofl_check_forecast, about_forecast, false},
};
enum { PLACEMENT = 9 }; /* of the parts: all that memory depends on */

static ofl_status nothing_given(void) { return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no plan or no model to check it against"); }

ofl_status ofl_plan_check(const ofl_plan *plan, const ofl_model *model)
{
    if (plan == NULL || model == NULL) return nothing_given();
    const ofl_checking c = {plan, model, OFL_ERROR_MISMATCH};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < PLACEMENT && status == OFL_OK; i++) status = parts[i].check(&c);
    return status;
}

ofl_status ofl_plan_verify(const ofl_plan *plan, const ofl_model *model, ofl_plan_verdict each, void *context)
{
    if (plan == NULL || model == NULL || each == NULL) return nothing_given();
    const ofl_checking c = {plan, model, OFL_ERROR_MISMATCH};
    char sentence[SENTENCE];
    bool another = false;
    uint32_t wrong = 0;
    for (size_t i = 0; i < OFL_COUNT_OF(parts); i++) {
        if (another && parts[i].model) {
            each(context, parts[i].name, OFL_NOT_READY, "not looked at, since the model is another");
            continue;
        }
        ofl_status status = parts[i].check(&c);
        if (status != OFL_OK && status != OFL_ERROR_MISMATCH) return status;
        if (status == OFL_OK) parts[i].about(plan, sentence);
        another |= i == 0 && status != OFL_OK;
        wrong += status != OFL_OK;
        each(context, parts[i].name, status, status == OFL_OK ? sentence : ofl_error_message());
    }
    if (wrong == 0) return OFL_OK;
    return ofl_fail(OFL_ERROR_MISMATCH, "plan: %u of the parts looked at %s wrong; make the plan anew", wrong, wrong == 1 ? "is" : "are");
}

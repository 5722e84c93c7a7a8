/* Short sentences about what would help, each computed. */
#include "plan/plan_state.h"

#include <stdio.h>

static ofl_status say(ofl_plan *plan, char *sentence)
{
    if (sentence == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
    if (plan->advice_count == OFL_PLAN_ADVICE) ofl_free(sentence);
    else plan->advice[plan->advice_count++] = sentence;
    return OFL_OK;
}

/* Bytes of all that a step reads, with its matrices stored as `dtype` where their rows are whole blocks of it and it is smaller. */
static uint64_t bytes_stored_as(const ofl_plan_facts *facts, ofl_dtype dtype)
{
    uint64_t total = 0, block = ofl_dtype_block_elements(dtype), bits = ofl_dtype_block_bits(dtype);
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        const ofl_plan_tensor *t = &facts->tensors[i];
        if (!ofl_plan_is_dense(t)) continue;
        uint64_t columns = t->elements / t->rows, row = columns / block * (bits / 8);
        bool smaller = !t->vector && ofl_dtype_holds_weights((ofl_dtype)t->dtype) && columns % block == 0 && row < t->row_bytes;
        total += smaller ? row * t->rows : t->bytes;
    }
    return total;
}

/* The most bits a weight at which nothing would have to be streamed. */
static ofl_status advise_bits(ofl_plan *plan)
{
#define TYPE(name) OFL_DTYPE_##name,
    static const ofl_dtype types[] = {OFL_FEWER_BITS_LIST(TYPE)};
#undef TYPE
    const ofl_budget *b = &plan->draft.budget;
    uint64_t room = b->vram_bytes - (b->total_bytes - b->resident_bytes - b->ring_bytes);
    if (plan->wish.force_layers && plan->draft.piece_count != 0 && plan->facts.dense_bytes <= room)
        return say(plan, ofl_format("without a forced number of resident layers all weights fit: %s in %s; nothing would be streamed",
                                    ofl_bytes_text(plan->facts.dense_bytes).text, ofl_bytes_text(room).text));
    for (size_t i = 0; plan->draft.piece_count != 0 && i < OFL_COUNT_OF(types); i++) {
        uint64_t bytes = bytes_stored_as(&plan->facts, types[i]);
        if (bytes > room || bytes == plan->facts.dense_bytes) continue;
        double bits = (double)ofl_dtype_block_bits(types[i]) / ofl_dtype_block_elements(types[i]);
        return say(plan, ofl_format("weights at %.3g bits (%s) fit whole: %s in %s; nothing would be streamed", bits,
                                    ofl_dtype_name(types[i]), ofl_bytes_text(bytes).text, ofl_bytes_text(room).text));
    }
    return OFL_OK;
}

static ofl_status advise_batch(const ofl_plan_search *search, ofl_plan *plan)
{
    uint32_t sequences = 0;
    double rate = 0;
    if (plan->draft.settings.objective == OFL_THROUGHPUT || !plan->forecast.link_bound) return OFL_OK;
    ofl_status status = ofl_plan_solve_throughput(search, &sequences, &rate);
    if (status != OFL_OK || rate < 1.1 * plan->forecast.tokens_per_second) return status;
    return say(plan, ofl_format("for a long queue: the throughput objective reaches %.*f tokens/s with %u sequences of %llu tokens at once",
                                rate >= 99.95 ? 0 : rate >= 9.995 ? 1 : 2, rate, sequences,
                                (unsigned long long)plan->draft.settings.context_tokens));
}

static ofl_status advise_context(ofl_plan *plan)
{
    uint64_t trained = plan->facts.shape.trained_context_tokens, asked = plan->draft.settings.context_tokens;
    if (trained == 0 || asked <= trained) return OFL_OK;
    return say(plan, ofl_format("a context of %llu tokens is beyond the %llu that the model was trained for", (unsigned long long)asked,
                                (unsigned long long)trained));
}

static ofl_status advise_host(ofl_plan *plan)
{
    const ofl_budget *b = &plan->draft.budget;
    if (b->pageable_bytes + b->file_bytes == 0) return OFL_OK;
    return say(plan,
               ofl_format("%s are streamed from slower memory (%s pageable, %s from the file), because no more host memory can be pinned",
                          ofl_bytes_text(b->pageable_bytes + b->file_bytes).text, ofl_bytes_text(b->pageable_bytes).text,
                          ofl_bytes_text(b->file_bytes).text));
}

static ofl_status advise_sources(ofl_plan *plan)
{
    const ofl_source *s = plan->facts.sources;
    bool link = s[OFL_FIGURE_LINK] == OFL_SOURCE_ASSUMED && plan->draft.piece_count != 0;
    bool compute = ofl_plan_compute_is_assumed(&plan->facts);
    if (!link && !compute) return OFL_OK;
    const char *what = link && compute ? "link and compute rates are" : link ? "the link's rate is" : "compute rates are";
    if (plan->forecast.error_band_percent >= ofl_source_error_percent(OFL_SOURCE_ASSUMED))
        return say(plan, ofl_format("%s assumed, not measured: the forecast may be far off; probe the device or give the figures", what));
    return say(plan, ofl_format("%s assumed, not measured: this step hardly depends on that, the knee and larger batches do; "
                                "probe the device or give the figures", what));
}

/* What changes most comes first; how far the figures are to be trusted, last. */
ofl_status ofl_plan_advise(const ofl_plan_search *search, ofl_plan *plan)
{
    ofl_status status = advise_bits(plan);
    if (status == OFL_OK) status = advise_batch(search, plan);
    if (status == OFL_OK) status = advise_context(plan);
    if (status == OFL_OK) status = advise_host(plan);
    return status == OFL_OK ? advise_sources(plan) : status;
}

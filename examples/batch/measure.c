/* How long each request is, found before anything runs: the plan's context and the front's admission go by it. */
#include "batch/job.h"

/* Of its log-probabilities, at most. */
static uint64_t record_bytes(const request *r, uint64_t tokens)
{
    return tokens * r->choices * (1 + (uint64_t)r->top_logprobs) * LOGPROBS_RECORD_BYTES;
}

/* Encodes a parsed request and settles its most new tokens. *good_out false with *error set: it becomes an error line. */
static ofl_status settle(const backend *model, const request *r, uint32_t max_tokens_default, token_list *tokens, uint32_t *max_tokens_out,
                         line_error *error, bool *good_out)
{
    tokens->count = 0;
    *good_out = false;
    ofl_status status = model->encode(model->context, r, tokens);
    if (status == OFL_ERROR_ARGUMENT) request_refuse(error, "invalid_request", r->chat ? "body.messages" : "body.prompt", "%s", app_error());
    if (status != OFL_OK) return status == OFL_ERROR_ARGUMENT ? OFL_OK : status;
    uint64_t limit = model->context_given != 0 ? model->context_given : model->context_limit, prompt = tokens->count;
    uint64_t wanted = r->max_tokens != 0 ? r->max_tokens : max_tokens_default;
    /* A default is cut to what is left; a wish that does not fit is told. */
    if (limit != 0 && r->max_tokens == 0 && prompt < limit && prompt + wanted > limit) wanted = limit - prompt;
    if (prompt == 0) request_refuse(error, "invalid_request", r->chat ? "body.messages" : "body.prompt", "the prompt has no tokens");
    else if (limit != 0 && prompt + wanted > limit)
        request_refuse(error, "context_length_exceeded", r->chat ? "body.messages" : "body.prompt",
                       "%llu prompt tokens and up to %llu new ones are more than the context of %llu", (unsigned long long)prompt,
                       (unsigned long long)wanted, (unsigned long long)limit);
    else if (r->logprobs && record_bytes(r, wanted) > JSONL_MAX_LINE_BYTES)
        request_refuse(error, "invalid_request", r->top_logprobs > 0 && r->chat ? "body.top_logprobs" : "body.logprobs",
                       "log-probabilities of %llu tokens with %u others each make a line of about %llu MiB; one holds up to %u",
                       (unsigned long long)(wanted * r->choices), r->top_logprobs, (unsigned long long)(record_bytes(r, wanted) >> 20),
                       JSONL_MAX_LINE_BYTES >> 20);
    else if (prompt + wanted > UINT32_MAX) request_refuse(error, "context_length_exceeded", "body.max_tokens", "more tokens than can be counted");
    else {
        *max_tokens_out = (uint32_t)wanted;
        *good_out = true;
    }
    return OFL_OK;
}

/* Parses and settles; good: the entry's figures are set. The request is left for its custom_id. */
static ofl_status measure_entry(const backend *model, input *in, input_entry *entry, uint32_t max_tokens_default, token_list *tokens, request *r,
                                line_error *error)
{
    bool good;
    uint32_t max_tokens = 0;
    entry->prompt_tokens = 0;
    ofl_status status = input_parse(in, entry, r, error, &good);
    if (status == OFL_OK && good) status = settle(model, r, max_tokens_default, tokens, &max_tokens, error, &good);
    if (status != OFL_OK || !good) return status;
    entry->prompt_tokens = (uint32_t)tokens->count;
    entry->max_tokens = max_tokens;
    entry->choices = (uint8_t)r->choices;
    entry->greedy = r->temperature == 0 && !r->logprobs; /* log-probabilities cost what a draw does: a softmax over all ids */
    return OFL_OK;
}

ofl_status job_measure(const backend *model, input *in, uint32_t max_tokens_default, int (*stop)(void), uint64_t *longest_out)
{
    token_list tokens = {0};
    ofl_status status = OFL_OK;
    *longest_out = 0;
    for (size_t i = 0; i < in->count && status == OFL_OK; i++) {
        input_entry *entry = &in->entries[i];
        line_error error;
        request r = {0};
        if (entry->state != ENTRY_WAITING) continue;
        status = stop() ? OFL_END : measure_entry(model, in, entry, max_tokens_default, &tokens, &r, &error);
        request_free(&r);
        uint64_t longest = (uint64_t)entry->prompt_tokens + entry->max_tokens;
        if (entry->prompt_tokens != 0 && longest > *longest_out) *longest_out = longest;
    }
    tokens_free(&tokens);
    return status;
}

static ofl_status write_error(job *j, input_entry *entry, uint32_t max_tokens_default, token_list *tokens)
{
    line_error error = {0};
    request r = {0};
    ofl_status status = measure_entry(j->model, j->in, entry, max_tokens_default, tokens, &r, &error);
    if (status == OFL_OK) status = record_error(j->maker, r.custom_id, entry->line, &error, &j->record);
    request_free(&r);
    uint64_t offset = j->out->bytes;
    if (status == OFL_OK) status = output_append(j->out, j->record.data, j->record.bytes);
    if (status != OFL_OK) return status;
    entry->state = ENTRY_FAILED;
    entry->written_offset = offset;
    entry->written_bytes = (uint32_t)j->record.bytes;
    j->totals.failed++;
    return OFL_OK;
}

ofl_status job_write_errors(job *j, uint32_t max_tokens_default)
{
    token_list tokens = {0};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < j->in->count && status == OFL_OK; i++) {
        input_entry *entry = &j->in->entries[i];
        if (entry->state != ENTRY_WAITING || entry->prompt_tokens != 0) continue;
        status = j->stop() ? OFL_END : write_error(j, entry, max_tokens_default, &tokens);
    }
    tokens_free(&tokens);
    return status;
}

#include "batch/step_check.h"

#include "common/app_error.h"

static ofl_status check_item(const step_limits *l, const ofl_step_item *item, uint32_t *tokens, uint32_t *logits)
{
    uint64_t end = (uint64_t)item->first_position + item->token_count;
    if (item->token_count == 0 || end > (uint64_t)item->block_count * l->kv_block_tokens)
        return app_fail(OFL_ERROR_ARGUMENT, "step: %llu positions do not fit the request's %u KV blocks", (unsigned long long)end,
                        item->block_count);
    for (uint32_t b = 0; b < item->block_count; b++) {
        if (item->blocks[b] >= l->kv_blocks)
            return app_fail(OFL_ERROR_ARGUMENT, "step: KV block %u of %u", item->blocks[b], l->kv_blocks);
    }
    *tokens += item->token_count;
    *logits += item->wants_logits != 0;
    return OFL_OK;
}

ofl_status step_check(const step_limits *l, const ofl_step *given, const int32_t *ids)
{
    uint32_t tokens = 0, logits = 0;
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < given->item_count && status == OFL_OK; i++) {
        if (given->items[i].token_count > l->tokens - tokens)
            return app_fail(OFL_ERROR_ARGUMENT, "step: more than the plan's %u tokens", l->tokens);
        status = check_item(l, &given->items[i], &tokens, &logits);
    }
    if (status != OFL_OK) return status;
    if (tokens == 0 || tokens != given->shape.tokens)
        return app_fail(OFL_ERROR_ARGUMENT, "step: %u tokens in its shares, %u announced", tokens, given->shape.tokens);
    if (logits > l->logits_rows)
        return app_fail(OFL_ERROR_ARGUMENT, "step: logits of %u rows, room for %llu", logits, (unsigned long long)l->logits_rows);
    for (uint32_t t = 0; t < tokens; t++) {
        if (ids[t] < 0 || (uint32_t)ids[t] >= l->vocabulary)
            return app_fail(OFL_ERROR_ARGUMENT, "step: token id %d of %u", (int)ids[t], l->vocabulary);
    }
    return OFL_OK;
}

#include "batch/choose.h"

void choose_rows(row_choice *rows, uint32_t count, const float *logits, uint64_t stride, uint32_t usable, void *scratch)
{
    for (uint32_t i = 0; i < count; i++, logits += stride) {
        row_choice *r = &rows[i];
        r->token = sampling_pick(&r->how, logits, usable, scratch);
        if (r->token >= 0 && r->logprobs > 0) logprobs_of(logits, usable, r->token, r->logprobs - 1, r->entries);
    }
}

#include "batch/attention.h"

#include "batch/threads.h"
#include "batch/vector.h"

#define ROWS_AT_ONCE 4u /* divides ATTENTION_ROWS */

typedef struct rows { /* query rows of one KV head that are worked on together */
    uint32_t count, dim;
    uint32_t position[ATTENTION_ROWS];
    float most[ATTENTION_ROWS], sum[ATTENTION_ROWS];
    float query[ATTENTION_ROWS][KV_MAX_DIM] __attribute__((aligned(64)));
    float output[ATTENTION_ROWS][KV_MAX_DIM] __attribute__((aligned(64)));
} rows;

/* Four rows at once share a load. Always four, so that one piece of machine code makes every sum; rows beyond the last are not looked at. */
VECTOR_INLINE void score_rows(const rows *r, uint32_t first, const float *restrict keys, float scores[ROWS_AT_ONCE][KV_SPAN])
{
    for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
        for (uint32_t t = 0; t < KV_SPAN; t++) scores[i][t] = 0;
    }
    for (uint32_t e = 0; e < r->dim; e++) {
        for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) {
            for (uint32_t t = 0; t < KV_SPAN; t++) scores[i][t] += r->query[first + i][e] * keys[e * KV_SPAN + t];
        }
    }
}

/* Takes a span's scores of a row into its running softmax; visible: how many positions of the span the row may see. */
VECTOR_INLINE void take_span(rows *r, uint32_t row, float *restrict scores, uint32_t visible, const float *restrict values)
{
    float most = r->most[row], sum = 0;
    float *restrict output = r->output[row];
    for (uint32_t t = 0; t < visible; t++) most = scores[t] > most ? scores[t] : most;
    if (most > r->most[row]) {
        float shrink = float_exp(r->most[row] - most);
        for (uint32_t e = 0; e < r->dim; e++) output[e] *= shrink;
        r->sum[row] *= shrink;
        r->most[row] = most;
    }
    for (uint32_t t = 0; t < KV_SPAN; t++) scores[t] = float_exp(scores[t] - most);
    for (uint32_t t = 0; t < visible; t++) sum += scores[t];
    r->sum[row] += sum;
    for (uint32_t e = 0; e < r->dim; e += KV_SPAN) { /* the last step may run over the row's end, into room that is not read */
        float part[KV_SPAN];
        for (uint32_t i = 0; i < KV_SPAN; i++) part[i] = output[e + i];
        for (uint32_t t = 0; t < visible; t++) {
            for (uint32_t i = 0; i < KV_SPAN; i++) part[i] += scores[t] * values[t * r->dim + e + i];
        }
        for (uint32_t i = 0; i < KV_SPAN; i++) output[e + i] = part[i];
    }
}

VECTOR_CLONES static void attend_span(rows *r, uint32_t span, const float *restrict keys, const float *restrict values)
{
    float scores[ROWS_AT_ONCE][KV_SPAN] __attribute__((aligned(64)));
    for (uint32_t first = 0; first < r->count; first += ROWS_AT_ONCE) {
        uint32_t count = r->count - first < ROWS_AT_ONCE ? r->count - first : ROWS_AT_ONCE;
        score_rows(r, first, keys, scores);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t position = r->position[first + i], start = span * KV_SPAN;
            if (position < start) continue;
            take_span(r, first + i, scores[i], position - start < KV_SPAN ? position - start + 1 : KV_SPAN, values);
        }
    }
}

typedef struct work { const attention *a; uint32_t group, group_part, token_part; } work;

static void load_queries(const work *w, rows *r, const ofl_step_item *item, uint32_t token_first, uint32_t share_first, uint32_t tokens, uint32_t head)
{
    const attention *a = w->a;
    uint32_t part = w->group - head % w->group < w->group_part ? w->group - head % w->group : w->group_part;
    r->count = 0;
    r->dim = a->cache->dim;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t h = 0; h < part; h++, r->count++) {
            const float *from = a->queries + (share_first + token_first + t) * a->query_stride + (head + h) * r->dim;
            for (uint32_t e = 0; e < r->dim; e++) r->query[r->count][e] = from[e] * a->scale;
            memset(r->output[r->count], 0, r->dim * sizeof(float));
            r->position[r->count] = item->first_position + token_first + t;
            r->most[r->count] = -1e30f;
            r->sum[r->count] = 0;
        }
    }
    uint32_t padded = (r->count + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE;
    memset(r->query[r->count], 0, (padded - r->count) * sizeof r->query[0]);
}

static void save_outputs(const work *w, const rows *r, uint32_t token, uint32_t tokens, uint32_t head)
{
    const attention *a = w->a;
    uint32_t part = r->count / tokens;
    for (uint32_t i = 0; i < r->count; i++) {
        float *to = a->outputs + ((uint64_t)(token + i / part) * a->heads + head + i % part) * r->dim, inverse = 1.0f / r->sum[i];
        for (uint32_t e = 0; e < r->dim; e++) to[e] = r->output[i][e] * inverse;
    }
}

static void attend(const work *w, const ofl_step_item *item, uint32_t share_first, uint32_t token_first, uint32_t tokens, uint32_t head)
{
    const attention *a = w->a;
    float keys[KV_MAX_DIM * KV_SPAN] __attribute__((aligned(64))), values[KV_MAX_DIM * KV_SPAN + KV_SPAN] __attribute__((aligned(64)));
    rows r; /* not cleared: only what is used is set */
    load_queries(w, &r, item, token_first, share_first, tokens, head);
    uint32_t last = item->first_position + token_first + tokens - 1, kv_head = head / w->group;
    for (uint32_t span = 0; span <= last / KV_SPAN; span++) {
        uint32_t held = last - span * KV_SPAN < KV_SPAN ? last - span * KV_SPAN + 1 : KV_SPAN;
        kv_load_keys(a->cache, a->layer, item->blocks, kv_head, span, keys);
        kv_load_values(a->cache, a->layer, item->blocks, kv_head, span, held, values);
        memset(values + held * r.dim, 0, KV_SPAN * sizeof values[0]);
        attend_span(&r, span, keys, values);
    }
    save_outputs(w, &r, share_first + token_first, tokens, head);
}

/* index: a share and in it a KV head, or a part of one with very many query heads. */
static ofl_status attend_share(void *context, uint32_t thread, uint64_t index)
{
    const work *w = context;
    uint64_t parts = (w->group + w->group_part - 1) / w->group_part, heads = parts * w->a->cache->heads, which = index % heads;
    uint32_t head = (uint32_t)(which / parts) * w->group + (uint32_t)(which % parts) * w->group_part, share_first = 0;
    const ofl_step_item *item = &w->a->items[index / heads];
    (void)thread;
    for (uint64_t i = 0; i < index / heads; i++) share_first += w->a->items[i].token_count;
    for (uint32_t t = 0; t < item->token_count; t += w->token_part)
        attend(w, item, share_first, t, item->token_count - t < w->token_part ? item->token_count - t : w->token_part, head);
    return OFL_OK;
}

ofl_status attention_run(const attention *a, uint32_t threads)
{
    uint32_t group = a->heads / a->cache->heads, group_part = group < ATTENTION_ROWS ? group : ATTENTION_ROWS;
    work w = {.a = a, .group = group, .group_part = group_part, .token_part = ATTENTION_ROWS / group_part};
    return threads_each(threads, (uint64_t)a->item_count * a->cache->heads * ((group + group_part - 1) / group_part), attend_share, &w);
}

#include "batch/cpu/attention.h"

#include "batch/cpu/threads.h"
#include "batch/cpu/vector.h"

#define ROWS_AT_ONCE 4u /* divides ATTENTION_ROWS */

typedef struct rows { /* query rows of one KV head that are worked on together */
    uint32_t count, dim;
    uint32_t position[ATTENTION_ROWS];
    float most[ATTENTION_ROWS], sum[ATTENTION_ROWS];
    float query[ATTENTION_ROWS][KV_MAX_DIM] __attribute__((aligned(64)));
    float output[ATTENTION_ROWS][KV_MAX_DIM] __attribute__((aligned(64)));
} rows;

/* Four rows at once share a load. Always four, so that one piece of machine code makes every sum; rows beyond the last are not looked at.
 */
VECTOR_INLINE void score_rows(const rows *r, uint32_t first, const float16v *restrict keys, float16v scores[ROWS_AT_ONCE])
{
    const float *a = r->query[first], *b = r->query[first + 1], *c = r->query[first + 2], *d = r->query[first + 3];
    float16v sum_a = {0}, sum_b = {0}, sum_c = {0}, sum_d = {0};
    for (uint32_t e = 0; e < r->dim; e++) {
        float16v key = keys[e];
        sum_a += key * a[e];
        sum_b += key * b[e];
        sum_c += key * c[e];
        sum_d += key * d[e];
    }
    scores[0] = sum_a;
    scores[1] = sum_b;
    scores[2] = sum_c;
    scores[3] = sum_d;
}

/* The largest of what the row has seen and of the span's first `visible` scores. */
VECTOR_INLINE float largest(float most, const float *scores, uint32_t visible)
{
    for (uint32_t t = 0; t < visible; t++) most = scores[t] > most ? scores[t] : most;
    return most;
}

/* Takes a span's scores of a row into its running softmax; visible: how many positions of the span the row may see. */
VECTOR_INLINE void take_span(rows *r, uint32_t row, float16v *scores, uint32_t visible, const float *restrict values)
{
    float most = largest(r->most[row], (const float *)scores, visible), sum = 0, shrink = 1;
    float *restrict output = r->output[row];
    const float *weights = (const float *)scores;
    if (most > r->most[row]) shrink = float_exp(r->most[row] - most);
    *scores -= most;
    float_exp_sixteen(scores);
    for (uint32_t t = 0; t < visible; t++) sum += weights[t];
    r->sum[row] = r->sum[row] * shrink + sum;
    r->most[row] = most;
    for (uint32_t e = 0; e < r->dim; e += KV_SPAN) { /* the last step may run over the row's end, into room that is not read */
        float16v part = *(const float16v *)(const void *)(output + e) * shrink;
        for (uint32_t t = 0; t < visible; t++) {
            float16v value;
            memcpy(&value, values + t * r->dim + e, sizeof value);
            part += value * weights[t];
        }
        *(float16v *)(void *)(output + e) = part;
    }
}

VECTOR_CLONES static void attend_span(rows *r, uint32_t span, const float16v *restrict keys, const float *restrict values)
{
    float16v scores[ROWS_AT_ONCE];
    for (uint32_t first = 0; first < r->count; first += ROWS_AT_ONCE) {
        uint32_t count = r->count - first < ROWS_AT_ONCE ? r->count - first : ROWS_AT_ONCE;
        score_rows(r, first, keys, scores);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t position = r->position[first + i], start = span * KV_SPAN;
            if (position < start) continue;
            take_span(r, first + i, &scores[i], position - start < KV_SPAN ? position - start + 1 : KV_SPAN, values);
        }
    }
}

typedef struct work {
    const attention *a;
    uint32_t group, group_part, token_part;
} work;

static void load_queries(const work *w, rows *r, const ofl_step_item *item, uint32_t token_first, uint32_t share_first, uint32_t tokens,
                         uint32_t head)
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
    float16v keys[KV_MAX_DIM];
    float values[KV_MAX_DIM * KV_SPAN + KV_SPAN] __attribute__((aligned(64)));
    rows r; /* not cleared: only what is used is set */
    load_queries(w, &r, item, token_first, share_first, tokens, head);
    uint32_t last = item->first_position + token_first + tokens - 1, kv_head = head / w->group;
    for (uint32_t span = 0; span <= last / KV_SPAN; span++) {
        uint32_t held = last - span * KV_SPAN < KV_SPAN ? last - span * KV_SPAN + 1 : KV_SPAN;
        kv_load_keys(a->cache, a->layer, item->blocks, kv_head, span, (float *)keys);
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

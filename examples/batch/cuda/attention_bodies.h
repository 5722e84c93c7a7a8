/* Causal grouped-query attention over the paged cache, with a running softmax in float32. A workgroup takes a part (kernels.h) for one KV
 * head, or for sixteen of the query heads of one, and goes through its positions in rounds of one position a thread: scores straight from
 * the keys, which lie so that neighbouring threads read neighbouring words; then the weights; then the outputs, a pair of elements a
 * thread, straight from the values. A row's sums are made in the same order whatever other rows are in the part, and wherever the share
 * begins: equal bits for equal sequences, cut alike. */
#ifndef OFLOAD_BATCH_ATTENTION_BODIES_H
#define OFLOAD_BATCH_ATTENTION_BODIES_H

#include "batch/cuda/cache_bodies.h"

#define ATTENTION_THREADS 128u /* positions of a round */
#define ATTENTION_SPANS (ATTENTION_THREADS / KV_SPAN)
#define ATTENTION_SLICES (ATTENTION_THREADS / KERNEL_ATTENTION_ROWS) /* threads that share a row's softmax */
#define ATTENTION_STRIDE (KERNEL_ATTENTION_ROWS + 4u) /* of weights: neighbours write to different banks */
#define ATTENTION_LEAST (-1e30f)

typedef struct attention_job {
    kernel_attention_args a;
    uint32_t group, head_parts; /* query heads of a KV head; workgroups that they need */
} attention_job;

typedef struct attention_shared {
    float weights[ATTENTION_THREADS * ATTENTION_STRIDE]; /* [position][row]: scores, then weights */
    float part[ATTENTION_THREADS];                       /* [slice][row] */
    float most[KERNEL_ATTENTION_ROWS], sum[KERNEL_ATTENTION_ROWS], shrink[KERNEL_ATTENTION_ROWS];
    float rows[KERNEL_ATTENTION_ROWS * KV_MAX_DIM];      /* as many as dim needs: queries [pair][row][2], then outputs [row][dim] */
} attention_shared;

typedef struct attention_work { /* of a workgroup */
    kernel_part part;
    uint32_t kv_head, head, heads; /* the query heads, consecutive */
    uint32_t rows;                 /* tokens × heads */
    const uint32_t *blocks;
} attention_work;

BODY attention_work attention_work_of(const attention_job *job, uint32_t index)
{
    uint32_t which = index % job->head_parts, first = which * KERNEL_ATTENTION_ROWS;
    index /= job->head_parts;
    attention_work w;
    w.part = job->a.parts[index / job->a.cache.heads];
    w.kv_head = index % job->a.cache.heads;
    w.head = w.kv_head * job->group + first;
    w.heads = job->group - first < KERNEL_ATTENTION_ROWS ? job->group - first : KERNEL_ATTENTION_ROWS;
    w.rows = w.part.tokens * w.heads;
    w.blocks = job->a.blocks + w.part.blocks;
    return w;
}

BODY void attention_begin(const attention_job *job, const attention_work *w, body_group g, attention_shared *s)
{
    const kernel_attention_args *a = &job->a;
    uint32_t dim = a->cache.dim;
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        for (uint32_t i = t; i < dim * KERNEL_ATTENTION_ROWS; i += ATTENTION_THREADS) {
            uint32_t row = i / 2 % KERNEL_ATTENTION_ROWS, element = i / (2 * KERNEL_ATTENTION_ROWS) * 2 + i % 2;
            uint64_t token = w->part.token + row / w->heads, head = w->head + row % w->heads;
            s->rows[i] = row < w->rows ? a->queries[token * a->query_stride + head * dim + element] * a->scale : 0;
        }
        if (t >= KERNEL_ATTENTION_ROWS) continue;
        s->most[t] = ATTENTION_LEAST;
        s->sum[t] = 0;
    }
    BARRIER(g);
}

/* Four rows' scores take one pair of a key in; queries: (x, y) of two rows in each four. */
BODY void score_four(const body_four *queries, cache_pair key, float *scores)
{
    body_four low = queries[0], high = queries[1];
    scores[0] += low.x * key.x + low.y * key.y;
    scores[1] += low.z * key.x + low.w * key.y;
    scores[2] += high.x * key.x + high.y * key.y;
    scores[3] += high.z * key.x + high.w * key.y;
}

/* All rows' scores of one position. */
BODY void score_position(ofl_kv_type type, const attention_job *job, const attention_work *w, uint32_t position, const float *queries,
                         float *to)
{
    const kv_cache *c = &job->a.cache;
    uint32_t at = position % KV_SPAN, pairs = c->dim / 2;
    const uint8_t *span = cache_span(c, job->a.layer, w->blocks, w->kv_head, position / KV_SPAN, false);
    const uint8_t *keys = span + pairs_offset(type, c->dim);
    float scores[KERNEL_ATTENTION_ROWS], scale = 1;
    UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r++) scores[r] = 0;
    for (uint32_t p = 0; p < pairs; p++) {
        cache_pair key = load_pair(type, keys, key_pair_at(p, at));
        if (type == OFL_KV_Q8_0) {
            if (p % (CACHE_GROUP / 2) == 0) scale = load_scale(span, key_scale_at(p / (CACHE_GROUP / 2), at));
            key.x *= scale;
            key.y *= scale;
        }
        const body_four *query = (const body_four *)(const void *)(queries + (uint64_t)p * 2 * KERNEL_ATTENTION_ROWS);
        UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r += 4) {
            if (r < w->rows) score_four(query + r / 2, key, scores + r);
        }
    }
    UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r += 4) {
        body_four four = {scores[r], scores[r + 1], scores[r + 2], scores[r + 3]};
        *(body_four *)(void *)(to + r) = four;
    }
}

/* How many of a round's positions, the first of which is `start`, a row sees. */
BODY uint32_t visible_of(const attention_work *w, uint32_t row, uint32_t start, uint32_t count)
{
    uint32_t end = w->part.position + row / w->heads + 1;
    return end <= start ? 0 : end - start < count ? end - start : count;
}

/* A round's scores become weights under each row's running largest score. Ends with `part` holding the slices' sums. */
BODY void weigh_round(const attention_work *w, body_group g, attention_shared *s, uint32_t start, uint32_t count)
{
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        uint32_t row = t % KERNEL_ATTENTION_ROWS, seen = visible_of(w, row, start, count);
        float most = ATTENTION_LEAST;
        for (uint32_t i = t / KERNEL_ATTENTION_ROWS; i < seen; i += ATTENTION_SLICES) {
            float score = s->weights[i * ATTENTION_STRIDE + row];
            most = score > most ? score : most;
        }
        s->part[t] = most;
    }
    BARRIER(g);
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        if (t >= KERNEL_ATTENTION_ROWS) continue;
        float most = s->most[t];
        for (uint32_t i = t; i < ATTENTION_THREADS; i += KERNEL_ATTENTION_ROWS) most = s->part[i] > most ? s->part[i] : most;
        s->shrink[t] = most > s->most[t] ? float_exp(s->most[t] - most) : 1;
        s->most[t] = most;
    }
    BARRIER(g);
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        uint32_t row = t % KERNEL_ATTENTION_ROWS, seen = visible_of(w, row, start, count);
        float sum = 0;
        for (uint32_t i = t / KERNEL_ATTENTION_ROWS; i < count; i += ATTENTION_SLICES) {
            float *weight = &s->weights[i * ATTENTION_STRIDE + row];
            *weight = i < seen ? float_exp(*weight - s->most[row]) : 0;
            sum += *weight;
        }
        s->part[t] = sum;
    }
    BARRIER(g);
}

/* Four rows' outputs take one pair of a value in. */
BODY void output_four(body_four weights, cache_pair value, float *outputs)
{
    outputs[0] += weights.x * value.x;
    outputs[1] += weights.x * value.y;
    outputs[2] += weights.y * value.x;
    outputs[3] += weights.y * value.y;
    outputs[4] += weights.z * value.x;
    outputs[5] += weights.z * value.y;
    outputs[6] += weights.w * value.x;
    outputs[7] += weights.w * value.y;
}

/* Threads beyond one for each pair take every second, fourth or eighth position of a span. */
BODY uint32_t position_groups(uint32_t pairs)
{
    uint32_t groups = 1;
    while (groups < 8 && 2 * groups * pairs <= ATTENTION_THREADS) groups *= 2;
    return groups;
}

/* A thread's pair of all rows' outputs over a round. */
BODY void take_values(ofl_kv_type type, const attention_job *job, const attention_work *w, const attention_shared *s, uint32_t t,
                      uint32_t start, uint32_t count, float *outputs)
{
    const kv_cache *c = &job->a.cache;
    uint32_t pairs = c->dim / 2, pair = t % pairs, groups = position_groups(pairs), group = t / pairs;
    UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r++) {
        outputs[2 * r] *= s->shrink[r];
        outputs[2 * r + 1] *= s->shrink[r];
    }
    for (uint32_t first = 0; first < count; first += KV_SPAN) {
        const uint8_t *span = cache_span(c, job->a.layer, w->blocks, w->kv_head, (start + first) / KV_SPAN, true);
        const uint8_t *values = span + pairs_offset(type, c->dim);
        uint32_t held = count - first < KV_SPAN ? count - first : KV_SPAN;
        for (uint32_t i = group; i < held; i += groups) {
            cache_pair value = load_pair(type, values, value_pair_at(pair, i, c->dim));
            if (type == OFL_KV_Q8_0) {
                float scale = load_scale(span, value_scale_at(2 * pair / CACHE_GROUP, i, c->dim));
                value.x *= scale;
                value.y *= scale;
            }
            const body_four *weights = (const body_four *)(const void *)&s->weights[(first + i) * ATTENTION_STRIDE];
            UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r += 4) {
                if (r < w->rows) output_four(weights[r / 4], value, outputs + 2 * r);
            }
        }
    }
}

/* Result `row` of the part: normalised to where the next product reads it, or as it is, with its largest score and its sum. */
BODY void attention_store(const attention_job *job, const attention_work *w, const attention_shared *s, uint32_t row, uint32_t element)
{
    const kernel_attention_args *a = &job->a;
    uint32_t dim = a->cache.dim, token = row / w->heads, head = w->head + row % w->heads;
    float value = s->rows[row * dim + element];
    if (w->part.partial == KERNEL_WHOLE) {
        store_number(a->to, (w->part.token + token) * a->to_stride + head * dim + element, a->to_type, value * (1.0f / s->sum[row]));
        return;
    }
    float *to = a->partials + ((uint64_t)w->part.partial + token * a->heads + head) * (dim + 2);
    to[element] = value;
    if (element != 0) return;
    to[dim] = s->most[row];
    to[dim + 1] = s->sum[row];
}

BODY void body_attention(ofl_kv_type type, const attention_job *job, body_group g, attention_shared *s)
{
    PER_THREAD(float, outputs, ATTENTION_THREADS, 2 * KERNEL_ATTENTION_ROWS);
    const uint32_t dim = job->a.cache.dim, pairs = dim / 2, groups = position_groups(pairs);
    if (!is_live(g.block / (job->head_parts * job->a.cache.heads), job->a.live)) return;
    attention_work w = attention_work_of(job, g.block);
    attention_begin(job, &w, g, s);
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        UNROLL for (uint32_t i = 0; i < 2 * KERNEL_ATTENTION_ROWS; i++) OF_THREAD(outputs, t)[i] = 0;
    }
    BARRIER(g);
    for (uint32_t start = w.part.from; start < w.part.to; start += ATTENTION_THREADS) {
        uint32_t count = w.part.to - start < ATTENTION_THREADS ? w.part.to - start : ATTENTION_THREADS;
        EACH_THREAD(g, t, ATTENTION_THREADS) {
            if (t < count) score_position(type, job, &w, start + t, s->rows, &s->weights[t * ATTENTION_STRIDE]);
        }
        BARRIER(g);
        weigh_round(&w, g, s, start, count);
        EACH_THREAD(g, t, ATTENTION_THREADS) {
            if (t < groups * pairs) take_values(type, job, &w, s, t, start, count, OF_THREAD(outputs, t));
            if (t >= KERNEL_ATTENTION_ROWS) continue;
            float sum = 0;
            for (uint32_t i = t; i < ATTENTION_THREADS; i += KERNEL_ATTENTION_ROWS) sum += s->part[i];
            s->sum[t] = s->sum[t] * s->shrink[t] + sum;
        }
        BARRIER(g);
    }
    for (uint32_t group = 0; group < groups; group++) {
        EACH_THREAD(g, t, ATTENTION_THREADS) {
            if (t / pairs != group) continue;
            UNROLL for (uint32_t r = 0; r < KERNEL_ATTENTION_ROWS; r++) {
                float *to = &s->rows[r * dim + 2 * (t % pairs)];
                to[0] = (group == 0 ? 0 : to[0]) + OF_THREAD(outputs, t)[2 * r];
                to[1] = (group == 0 ? 0 : to[1]) + OF_THREAD(outputs, t)[2 * r + 1];
            }
        }
        BARRIER(g);
    }
    EACH_THREAD(g, t, ATTENTION_THREADS) {
        for (uint32_t i = t; i < w.rows * dim; i += ATTENTION_THREADS) attention_store(job, &w, s, i / dim, i % dim);
    }
}

#define ATTENTION_BODY(name, type) \
    BODY void body_attention_##name(const attention_job *job, body_group g, attention_shared *s) { body_attention(type, job, g, s); }
ATTENTION_BODY(f32, OFL_KV_F32)
ATTENTION_BODY(f16, OFL_KV_F16)
ATTENTION_BODY(bf16, OFL_KV_BF16)
ATTENTION_BODY(q8_0, OFL_KV_Q8_0)

#define MERGE_THREADS 64u
typedef struct merge_job { kernel_merge_args a; } merge_job;
typedef struct merge_shared { uint32_t unused; } merge_shared;

/* A workgroup takes one head of a token whose context was cut. */
BODY void body_merge(const merge_job *job, body_group g, merge_shared *s)
{
    const kernel_merge_args *a = &job->a;
    uint32_t dim = a->dim, head = g.block % a->heads;
    (void)s;
    if (!is_live(g.block / a->heads, a->live)) return;
    kernel_merge merge = a->merges[g.block / a->heads];
    const float *first = a->partials + ((uint64_t)merge.partial + head) * (dim + 2);
    const uint64_t step = (uint64_t)a->heads * (dim + 2);
    float most = ATTENTION_LEAST, sum = 0;
    for (uint32_t i = 0; i < merge.parts; i++) most = first[i * step + dim] > most ? first[i * step + dim] : most;
    for (uint32_t i = 0; i < merge.parts; i++) sum += float_exp(first[i * step + dim] - most) * first[i * step + dim + 1];
    EACH_THREAD(g, t, MERGE_THREADS) {
        for (uint32_t e = t; e < dim; e += MERGE_THREADS) {
            float value = 0;
            for (uint32_t i = 0; i < merge.parts; i++) value += float_exp(first[i * step + dim] - most) * first[i * step + e];
            store_number(a->to, merge.token * a->to_stride + head * dim + e, a->to_type, value * (1.0f / sum));
        }
    }
}

#endif

/* What is done to rows of numbers: norms, the feed-forward's gate, additions; rotary tables, and new queries, keys and values. */
#ifndef OFLOAD_BATCH_ROWS_BODIES_H
#define OFLOAD_BATCH_ROWS_BODIES_H

#include "batch/cuda/bodies.h"
#include "batch/cuda/cache_bodies.h"

#define NORM_THREADS 256u
typedef struct norm_job { kernel_norm_args a; } norm_job;
typedef struct norm_shared { float part[NORM_THREADS], lanes[BODY_LANES]; } norm_shared;

BODY void body_norm(const norm_job *job, body_group g, norm_shared *s)
{
    const kernel_norm_args *a = &job->a;
    uint32_t row = g.block;
    if (!is_live(row, a->live)) return;
    const float *from = a->from + (a->index == NULL ? row : a->index[row]) * a->from_stride;
    EACH_THREAD(g, t, NORM_THREADS) {
        float sum = 0;
        for (uint32_t i = t; i < a->columns; i += NORM_THREADS) sum += from[i] * from[i];
        s->part[t] = sum;
    }
    float factor = 1.0f / sqrtf(sum_parts(g, NORM_THREADS, s->part, s->lanes) / (float)a->columns + a->epsilon);
    EACH_THREAD(g, t, NORM_THREADS) {
        for (uint32_t i = t; i < a->columns; i += NORM_THREADS)
            store_number(a->to, row * a->to_stride + i, a->to_type, from[i] * factor * a->weight[i]);
    }
}

/* Elementwise: a workgroup takes a strip of a row, its threads neighbours. */
#define STRIP_THREADS 256u
#define STRIP_COLUMNS (4u * STRIP_THREADS)
#define GATE_THREADS STRIP_THREADS
#define ADD_THREADS STRIP_THREADS
typedef struct gate_job { kernel_gate_args a; uint32_t strips; } gate_job;
typedef struct add_job { kernel_add_args a; uint32_t strips; } add_job;
typedef struct no_shared { uint32_t unused; } gate_shared, add_shared, rope_shared;

BODY uint32_t strip_end(uint32_t first, uint32_t columns) { return columns - first < STRIP_COLUMNS ? columns : first + STRIP_COLUMNS; }

BODY void body_gate(const gate_job *job, body_group g, gate_shared *s)
{
    const kernel_gate_args *a = &job->a;
    uint32_t row = g.block / job->strips, first = g.block % job->strips * STRIP_COLUMNS, end = strip_end(first, a->columns);
    (void)s;
    if (!is_live(row, a->live)) return;
    const float *gate = a->gate + row * a->stride, *up = a->up + row * a->stride;
    EACH_THREAD(g, t, STRIP_THREADS) {
        for (uint32_t i = first + t; i < end; i += STRIP_THREADS)
            store_number(a->to, row * a->to_stride + i, a->to_type, gate[i] / (1.0f + float_exp(-gate[i])) * up[i]);
    }
}

BODY void body_add(const add_job *job, body_group g, add_shared *s)
{
    const kernel_add_args *a = &job->a;
    uint32_t row = g.block / job->strips, first = g.block % job->strips * STRIP_COLUMNS, end = strip_end(first, a->columns);
    (void)s;
    if (!is_live(row, a->live)) return;
    EACH_THREAD(g, t, STRIP_THREADS) {
        for (uint32_t i = first + t; i < end; i += STRIP_THREADS) a->to[row * a->to_stride + i] += a->from[row * a->from_stride + i];
    }
}

#define ROPE_THREADS 64u
typedef struct rope_job { kernel_rope_args a; } rope_job;

BODY void body_rope(const rope_job *job, body_group g, rope_shared *s)
{
    const kernel_rope_args *a = &job->a;
    uint32_t token = g.block, half = a->dim / 2;
    (void)s;
    if (!is_live(token, a->live)) return;
    float *table = a->tables + (uint64_t)token * a->dim;
    EACH_THREAD(g, t, ROPE_THREADS) {
        for (uint32_t i = t; i < half; i += ROPE_THREADS) {
            double angle = a->places[token].position * a->frequencies[i];
            table[i] = (float)(cos(angle) * a->magnitude);
            table[i + half] = (float)(sin(angle) * a->magnitude);
        }
    }
}

/* A workgroup takes one head of a token: a query's, a key's or a value's. */
#define TURN_THREADS 64u
typedef struct turn_job { kernel_turn_args a; } turn_job;
typedef struct turn_shared { float row[KV_MAX_DIM], part[TURN_THREADS], lanes[BODY_LANES], scales[KV_MAX_DIM / CACHE_GROUP]; } turn_shared;

typedef enum turn_kind { TURN_QUERY, TURN_KEY, TURN_VALUE } turn_kind;
typedef struct turn_head { /* which one */
    float *row;
    const float *bias, *norm;
    uint32_t head;
    turn_kind what;
} turn_head;

BODY turn_head turn_head_of(const kernel_turn_args *a, uint32_t token, uint32_t slot)
{
    uint32_t dim = a->cache.dim, kv_heads = a->cache.heads;
    turn_head h = {a->queries, a->q_bias, a->q_norm, slot, TURN_QUERY};
    if (slot >= a->heads + kv_heads) {
        turn_head value = {a->values, a->v_bias, NULL, slot - a->heads - kv_heads, TURN_VALUE};
        h = value;
    } else if (slot >= a->heads) {
        turn_head key = {a->keys, a->k_bias, a->k_norm, slot - a->heads, TURN_KEY};
        h = key;
    }
    h.row += token * a->stride + h.head * dim;
    if (h.bias != NULL) h.bias += h.head * dim;
    return h;
}

BODY void turn_load(const kernel_turn_args *a, body_group g, turn_shared *s, const turn_head *h)
{
    uint32_t dim = a->cache.dim;
    EACH_THREAD(g, t, TURN_THREADS) {
        float sum = 0;
        for (uint32_t i = t; i < dim; i += TURN_THREADS) {
            float value = h->bias == NULL ? h->row[i] : h->row[i] + h->bias[i];
            s->row[i] = value;
            sum += value * value;
        }
        s->part[t] = sum;
    }
    BARRIER(g);
    if (h->norm == NULL) return;
    float factor = 1.0f / sqrtf(sum_parts(g, TURN_THREADS, s->part, s->lanes) / (float)dim + a->epsilon);
    EACH_THREAD(g, t, TURN_THREADS) {
        for (uint32_t i = t; i < dim; i += TURN_THREADS) s->row[i] = s->row[i] * factor * h->norm[i];
    }
    BARRIER(g);
}

BODY void turn_rotate(const kernel_turn_args *a, body_group g, turn_shared *s, const float *table)
{
    uint32_t half = a->rope_dim / 2, step = a->pairing == OFL_ROPE_HALF ? 1 : 2, other = a->pairing == OFL_ROPE_HALF ? half : 1;
    EACH_THREAD(g, t, TURN_THREADS) {
        for (uint32_t i = t; i < half; i += TURN_THREADS) {
            float x = s->row[i * step], y = s->row[i * step + other];
            s->row[i * step] = x * table[i] - y * table[i + half];
            s->row[i * step + other] = y * table[i] + x * table[i + half];
        }
    }
    BARRIER(g);
}

BODY void body_turn(const turn_job *job, body_group g, turn_shared *s)
{
    const kernel_turn_args *a = &job->a;
    uint32_t slots = a->heads + 2 * a->cache.heads, token = g.block / slots;
    if (!is_live(token, a->live)) return;
    turn_head h = turn_head_of(a, token, g.block % slots);
    turn_load(a, g, s, &h);
    if (h.what != TURN_VALUE) turn_rotate(a, g, s, a->tables + (uint64_t)token * a->rope_dim);
    if (h.what == TURN_QUERY) {
        EACH_THREAD(g, t, TURN_THREADS) {
            for (uint32_t i = t; i < a->cache.dim; i += TURN_THREADS) h.row[i] = s->row[i];
        }
        return;
    }
    uint32_t position = a->places[token].position;
    uint8_t *span = cache_span(&a->cache, a->layer, a->blocks + a->places[token].blocks, h.head, position / KV_SPAN, h.what == TURN_VALUE);
    cache_store(&a->cache, g, TURN_THREADS, s->row, s->scales, position % KV_SPAN, h.what == TURN_VALUE, span);
}

#endif

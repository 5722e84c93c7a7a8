/* Choosing a row's token, and its likeliest ids. Candidates stand in one order: likelier first, the lower id among equals. A token, or the
 * border of top_k and top_p, is where the measures of the candidates before it add up to a target: it is searched for digit by digit of the
 * logit, in passes over the row, without sorting. Weights are whole numbers of 2⁻⁴⁰, so that sums are exact in any order. */
#ifndef OFLOAD_BATCH_SAMPLE_BODIES_H
#define OFLOAD_BATCH_SAMPLE_BODIES_H

#include "batch/cuda/bodies.h"

#define SAMPLE_THREADS 512u
#define SAMPLE_DIGITS 7u /* thresholds that one pass tries: three bits */
#define SAMPLE_ONE 0x1p40f
#define SAMPLE_ONE_INVERSE 0x1p-40

typedef struct sample_job { kernel_sample_args a; } sample_job;
typedef struct sample_shared {
    uint64_t part[SAMPLE_DIGITS][SAMPLE_THREADS];
    uint64_t lanes[SAMPLE_DIGITS][BODY_LANES];
    uint64_t sums[SAMPLE_DIGITS];
} sample_shared;

typedef struct sample_row {
    const float *logits;
    uint32_t usable;
    float best, temperature;
} sample_row;

/* Larger for larger numbers; 0: not a number. −0 is 0. */
BODY uint32_t key_of(float logit)
{
    uint32_t bits = float_bits(logit + 0.0f);
    return logit != logit ? 0 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

BODY float logit_of(uint32_t key) { return float_from_bits((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key); }

BODY uint64_t weight_of(float logit, float best, float temperature)
{
    if (logit >= best) return (uint64_t)SAMPLE_ONE; /* also where both are infinite */
    float x = (logit - best) / temperature;
    return x > -87.0f ? (uint64_t)(float_exp(x) * SAMPLE_ONE) : 0;
}

/* What is searched: how an id is ordered, and what it counts. */
typedef enum sample_order {
    SAMPLE_COUNT,     /* by logit; each id counts one */
    SAMPLE_WEIGHT,    /* by logit; its weight */
    SAMPLE_BY_ID,     /* lower ids first; its weight */
    SAMPLE_TIES       /* lower ids first; one for each id of the logit in question */
} sample_order;

typedef struct sample_search {
    sample_order order;
    uint32_t tie; /* SAMPLE_TIES: key of that logit */
} sample_search;

BODY uint32_t searched_key(const sample_search *how, const sample_row *row, uint32_t id, float logit)
{
    return how->order <= SAMPLE_WEIGHT ? key_of(logit) : row->usable - 1 - id;
}

BODY uint64_t searched_measure(const sample_search *how, const sample_row *row, float logit)
{
    if (logit != logit) return 0;
    if (how->order == SAMPLE_COUNT) return 1;
    if (how->order == SAMPLE_TIES) return key_of(logit) == how->tie;
    return weight_of(logit, row->best, row->temperature);
}

/* The sums of the first `rows` rows of part, for all threads, in sums. */
BODY void sum_rows(body_group g, sample_shared *s, uint32_t rows)
{
    BARRIER(g);
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        if (t >= rows * BODY_LANES) continue;
        uint64_t sum = 0;
        for (uint32_t i = t % BODY_LANES; i < SAMPLE_THREADS; i += BODY_LANES) sum += s->part[t / BODY_LANES][i];
        s->lanes[t / BODY_LANES][t % BODY_LANES] = sum;
    }
    BARRIER(g);
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        if (t >= rows) continue;
        uint64_t sum = 0;
        for (uint32_t i = 0; i < BODY_LANES; i++) sum += s->lanes[t][i];
        s->sums[t] = sum;
    }
    BARRIER(g);
}

/* The largest of part's first row, for all threads. */
BODY uint64_t largest_part(body_group g, sample_shared *s)
{
    uint64_t largest = 0;
    BARRIER(g);
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        if (t >= BODY_LANES) continue;
        uint64_t lane = 0;
        for (uint32_t i = t; i < SAMPLE_THREADS; i += BODY_LANES) lane = s->part[0][i] > lane ? s->part[0][i] : lane;
        s->lanes[0][t] = lane;
    }
    BARRIER(g);
    for (uint32_t i = 0; i < BODY_LANES; i++) largest = s->lanes[0][i] > largest ? s->lanes[0][i] : largest;
    return largest;
}

/* Key and id as one number: larger is earlier in the order. 0: not a number. */
BODY uint64_t rank_of(float logit, uint32_t id)
{
    uint64_t key = key_of(logit);
    return key == 0 ? 0 : key << 32 | (UINT32_MAX - id);
}
BODY uint32_t ranked_id(uint64_t rank) { return UINT32_MAX - (uint32_t)rank; }

/* The first candidate of the order that comes after `rank`; 0: there is none. */
BODY uint64_t next_rank(body_group g, sample_shared *s, const sample_row *row, uint64_t rank)
{
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        uint64_t best = 0;
        for (uint32_t id = t; id < row->usable; id += SAMPLE_THREADS) {
            uint64_t other = rank_of(row->logits[id], id);
            if (other < rank && other > best) best = other;
        }
        s->part[0][t] = best;
    }
    return largest_part(g, s);
}

/* How many ids are not a number. */
BODY uint64_t count_nan(body_group g, sample_shared *s, const sample_row *row)
{
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        uint64_t count = 0;
        for (uint32_t id = t; id < row->usable; id += SAMPLE_THREADS) count += row->logits[id] != row->logits[id];
        s->part[0][t] = count;
    }
    sum_rows(g, s, 1);
    return s->sums[0];
}

/* The measure of all whose key is `least` or larger. */
BODY uint64_t measure_from(body_group g, sample_shared *s, const sample_row *row, const sample_search *how, uint64_t least)
{
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        uint64_t sum = 0;
        for (uint32_t id = t; id < row->usable; id += SAMPLE_THREADS) {
            float logit = row->logits[id];
            if (searched_key(how, row, id, logit) >= least) sum += searched_measure(how, row, logit);
        }
        s->part[0][t] = sum;
    }
    sum_rows(g, s, 1);
    return s->sums[0];
}

typedef struct sample_found {
    uint32_t key;
    uint64_t above; /* the measure of all larger keys: less than the target */
} sample_found;

/* The largest key so that the measure from it on reaches the target (> 0); 0: not even all do. */
BODY sample_found search_key(body_group g, sample_shared *s, const sample_row *row, const sample_search *how, uint64_t target)
{
    sample_found found = {0, 0};
    uint32_t shift = 33; /* all bits of a logit's key; of an id's as many as there are */
    while (how->order >= SAMPLE_BY_ID && shift > 3 && row->usable <= 1ull << (shift - 3)) shift -= 3;
    while (shift > 0) {
        shift -= 3;
        EACH_THREAD(g, t, SAMPLE_THREADS) {
            uint64_t sums[SAMPLE_DIGITS];
            UNROLL for (uint32_t d = 0; d < SAMPLE_DIGITS; d++) sums[d] = 0;
            for (uint32_t id = t; id < row->usable; id += SAMPLE_THREADS) {
                float logit = row->logits[id];
                uint64_t key = searched_key(how, row, id, logit), measure = searched_measure(how, row, logit);
                UNROLL for (uint32_t d = 0; d < SAMPLE_DIGITS; d++) {
                    if (key >= found.key + ((uint64_t)(d + 1) << shift)) sums[d] += measure;
                }
            }
            UNROLL for (uint32_t d = 0; d < SAMPLE_DIGITS; d++) s->part[d][t] = sums[d];
        }
        sum_rows(g, s, SAMPLE_DIGITS);
        uint32_t digit = 0;
        while (digit < SAMPLE_DIGITS && s->sums[digit] >= target) digit++;
        if (digit < SAMPLE_DIGITS) found.above = s->sums[digit];
        found.key += digit << shift;
    }
    return found;
}

/* A prefix of the order: all larger keys, and the first ties of this one. */
typedef struct sample_prefix {
    uint32_t key;
    uint64_t weight; /* of the whole prefix */
} sample_prefix;

/* The prefix of the top_k likeliest. */
BODY sample_prefix take_count(body_group g, sample_shared *s, const sample_row *row, uint32_t top_k)
{
    const sample_search count = {SAMPLE_COUNT, 0}, weight = {SAMPLE_WEIGHT, 0};
    sample_found found = search_key(g, s, row, &count, top_k);
    sample_prefix prefix = {found.key, measure_from(g, s, row, &weight, (uint64_t)found.key + 1)};
    if (found.key != 0) prefix.weight += (top_k - found.above) * weight_of(logit_of(found.key), row->best, row->temperature);
    return prefix;
}

/* Of the order's first ones, as many as reach the target weight. */
BODY sample_prefix take_weight(body_group g, sample_shared *s, const sample_row *row, uint64_t target)
{
    const sample_search weight = {SAMPLE_WEIGHT, 0};
    sample_found found = search_key(g, s, row, &weight, target);
    uint64_t each = weight_of(logit_of(found.key), row->best, row->temperature), more = target - found.above;
    sample_prefix prefix = {found.key, found.above + (more + each - 1) / each * each};
    return prefix;
}

/* The nth id (from 1) of those whose logit has this key; the last one where there are fewer. 0 if there is none. */
BODY uint32_t tie_at(body_group g, sample_shared *s, const sample_row *row, uint32_t key, uint64_t nth)
{
    const sample_search ties = {SAMPLE_TIES, key};
    uint64_t count = measure_from(g, s, row, &ties, 0);
    return count == 0 ? 0 : row->usable - 1 - search_key(g, s, row, &ties, nth < count ? nth : count).key;
}

/* The id at which the weights, in the order of the candidates, exceed `left`, which is below their sum. The sum is another pass's: should the
 * compiler round a weight otherwise there, the id is still one of the candidates. */
BODY uint32_t draw_ordered(body_group g, sample_shared *s, const sample_row *row, uint64_t left)
{
    const sample_search weight = {SAMPLE_WEIGHT, 0};
    sample_found found = search_key(g, s, row, &weight, left + 1);
    uint64_t each = weight_of(logit_of(found.key), row->best, row->temperature);
    if (each == 0) return ranked_id(next_rank(g, s, row, UINT64_MAX)); /* beyond them all: the likeliest */
    return tie_at(g, s, row, found.key, (left - found.above) / each + 1);
}

/* ⌈share × total⌉, at least 1. */
BODY uint64_t share_of(double share, uint64_t total)
{
    double target = ceil(share * (double)total);
    return target < 1 ? 1 : target >= (double)total ? total : (uint64_t)target;
}

BODY uint32_t draw_token(body_group g, sample_shared *s, const sample_row *row, const kernel_draw *draw)
{
    const sample_search by_id = {SAMPLE_BY_ID, 0};
    bool limited = draw->top_k != 0 && draw->top_k < row->usable, shared = draw->top_p < 1;
    uint64_t total = 0;
    if (limited) total = take_count(g, s, row, draw->top_k).weight;
    else total = measure_from(g, s, row, &by_id, 0);
    if (shared) total = take_weight(g, s, row, share_of(draw->top_p, total)).weight;
    double wanted = draw->random * (double)total;
    uint64_t left = wanted >= (double)total ? total - 1 : (uint64_t)wanted;
    if (limited || shared) return draw_ordered(g, s, row, left);
    return row->usable - 1 - search_key(g, s, row, &by_id, left + 1).key;
}

BODY void list_tops(const sample_job *job, body_group g, sample_shared *s, const sample_row *row, uint32_t wanted)
{
    kernel_top *to = job->a.tops + (uint64_t)g.block * job->a.tops_stride;
    uint64_t rank = UINT64_MAX;
    for (uint32_t i = 0; i < wanted && i < job->a.tops_stride; i++) {
        rank = rank == 0 ? 0 : next_rank(g, s, row, rank);
        kernel_top top = {rank == 0 ? -1 : (int32_t)ranked_id(rank), rank == 0 ? NAN : row->logits[ranked_id(rank)]};
        EACH_THREAD(g, t, SAMPLE_THREADS) {
            if (t == 0) to[i] = top;
        }
        BARRIER(g);
    }
}

BODY void body_sample(const sample_job *job, body_group g, sample_shared *s)
{
    const kernel_sample_args *a = &job->a;
    const sample_search by_id = {SAMPLE_BY_ID, 0};
    if (!is_live(g.block, a->live)) return;
    const kernel_draw draw = a->draws[g.block];
    sample_row row = {a->logits + g.block * a->stride, a->usable, NAN, 1};
    uint64_t first = next_rank(g, s, &row, UINT64_MAX);
    row.best = row.logits[first == 0 ? 0 : ranked_id(first)];
    kernel_choice choice = {-1, count_nan(g, s, &row) != 0 ? KERNEL_NAN : 0, row.best, row.best, NAN};
    if (row.best - row.best == 0) { /* finite */
        choice.log_sum = log((double)measure_from(g, s, &row, &by_id, 0) * SAMPLE_ONE_INVERSE);
        row.temperature = (float)draw.temperature;
        choice.token = (int32_t)(draw.temperature > 0 ? draw_token(g, s, &row, &draw) : ranked_id(first));
        choice.logit = row.logits[choice.token];
    }
    EACH_THREAD(g, t, SAMPLE_THREADS) {
        if (t == 0) a->choices[g.block] = choice;
    }
    BARRIER(g);
    if (a->tops != NULL && draw.tops != 0) list_tops(job, g, s, &row, draw.tops);
}

#endif

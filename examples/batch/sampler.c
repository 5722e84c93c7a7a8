#include "batch/sampler.h"

#include <math.h>
#include <stdbool.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate; /* 8 bytes, the scratch room of one id */

/* Total weight of a draw's candidates, and how a logit weighs: exp((logit − best) / temperature). */
typedef struct softmax {
    double best, temperature;
} softmax;

void sampler_init(sampler *s, double temperature, double top_p, uint32_t top_k, uint64_t seed)
{
    *s = (sampler){temperature, top_p, top_k, seed};
}

void sampler_advance(sampler *s)
{
    if (s->temperature > 0) s->state += UINT64_C(0x9E3779B97F4A7C15);
}

/* splitmix64, as a double in [0, 1). */
static double draw(const sampler *s)
{
    uint64_t z = s->state + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

sampling sampler_next(const sampler *s) { return (sampling){s->temperature, s->top_p, s->top_k, s->temperature > 0 ? draw(s) : 0}; }

/* NaN never wins; 0 when nothing else is there. */
static int32_t greedy(const float *logits, uint32_t usable)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < usable; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    }
    return (int32_t)best;
}

static double weigh(const softmax *how, float logit)
{
    if (isnan(logit)) return 0;
    return exp(((double)logit - how->best) / how->temperature);
}

/* The order of candidates: likelier first, the lower id among equals. */
static bool before(candidate a, candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

static void sift_down(candidate *heap, uint32_t count, uint32_t at)
{
    candidate moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static uint32_t make_heap(candidate *heap, const float *logits, uint32_t usable)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < usable; i++) {
        if (!isnan(logits[i])) heap[count++] = (candidate){logits[i], (int32_t)i};
    }
    for (uint32_t i = count / 2; i-- > 0;) sift_down(heap, count, i);
    return count;
}

/* Moves the best `wanted` candidates to the array's end, best last, or fewer once their weight reaches `enough`. Returns how many. */
static uint32_t pop_best(candidate *heap, uint32_t count, uint32_t wanted, double enough, const softmax *how)
{
    double sum = 0;
    uint32_t taken = 0;
    while (taken < wanted && taken < count && (taken == 0 || sum < enough)) {
        uint32_t last = count - 1 - taken;
        candidate best = heap[0];
        heap[0] = heap[last];
        heap[last] = best;
        sift_down(heap, last, 0);
        sum += weigh(how, best.logit);
        taken++;
    }
    return taken;
}

static double total_weight(const candidate *list, uint32_t count, const softmax *how)
{
    double sum = 0;
    for (uint32_t i = count; i-- > 0;) sum += weigh(how, list[i].logit);
    return sum;
}

/* Of candidates that stand best last, how many the top-p share takes: the smallest set that reaches it, at least one. */
static uint32_t share_count(const candidate *list, uint32_t count, double share, const softmax *how)
{
    double enough = share * total_weight(list, count, how), sum = 0;
    uint32_t taken = 0;
    while (taken < count && (taken == 0 || sum < enough)) sum += weigh(how, list[count - 1 - taken++].logit);
    return taken;
}

static int32_t draw_listed(double random, const candidate *list, uint32_t count, const softmax *how)
{
    double left = random * total_weight(list, count, how);
    int32_t last = list[count - 1].id;
    for (uint32_t i = count; i-- > 0 && left >= 0;) {
        double weight = weigh(how, list[i].logit);
        if (weight > 0) last = list[i].id;
        left -= weight;
    }
    return last;
}

/* All ids count: no order is needed. */
static int32_t draw_any(double random, const float *logits, uint32_t usable, double total, const softmax *how)
{
    double left = random * total;
    int32_t last = 0;
    for (uint32_t i = 0; i < usable && left >= 0; i++) {
        double weight = weigh(how, logits[i]);
        if (weight > 0) last = (int32_t)i;
        left -= weight;
    }
    return last;
}

int32_t sampling_pick(const sampling *s, const float *logits, uint32_t usable, void *scratch)
{
    if (usable == 0) return -1;
    int32_t best = greedy(logits, usable);
    if (!isfinite(logits[best])) return -1;
    if (!(s->temperature > 0)) return best;
    softmax how = {(double)logits[best], s->temperature};
    bool limited = s->top_k != 0 && s->top_k < usable, shared = s->top_p < 1;
    double total = 0;
    if (!limited) {
        for (uint32_t i = 0; i < usable; i++) total += weigh(&how, logits[i]);
        if (!shared) return draw_any(s->random, logits, usable, total, &how);
    }
    candidate *heap = scratch;
    uint32_t count = make_heap(heap, logits, usable);
    uint32_t taken = pop_best(heap, count, limited ? s->top_k : count, limited ? INFINITY : s->top_p * total, &how);
    const candidate *list = heap + (count - taken);
    if (limited && shared) {
        uint32_t kept = share_count(list, taken, s->top_p, &how);
        list += taken - kept;
        taken = kept;
    }
    return draw_listed(s->random, list, taken, &how);
}

/* Plays the rest of the queue in its head: the rules of step.c, but whole runs of like steps at once, each estimated at its middle.
 * Costs a few operations per request and prompt chunk, whatever the lengths. */
#include "front/front_internal.h"

#include <string.h>

#define LONGEST_RUN 256u /* steps estimated as one */

typedef struct play_decode { uint64_t last_step; uint64_t context; uint32_t blocks; } play_decode; /* context: when it ends */
typedef struct play_prefill { uint64_t done, rest, answer; uint32_t blocks; } play_prefill;

typedef struct play {
    ofl_front *front;
    front_queue waiting;
    play_decode *decode;   /* a heap, the first to end on top */
    play_prefill *prefill; /* in order of admission */
    uint32_t decode_count, prefill_count;
    uint64_t kv_tokens;    /* Σ of what the decoding ones attend to in the next step */
    uint64_t step;
    uint64_t blocks_free;
    uint64_t new_tokens;
    double seconds;
} play;

static void decode_push(play *p, play_decode entry)
{
    uint32_t at = p->decode_count++;
    while (at > 0 && entry.last_step < p->decode[(at - 1) / 2].last_step) {
        p->decode[at] = p->decode[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    p->decode[at] = entry;
}

static play_decode decode_pop(play *p)
{
    play_decode top = p->decode[0], last = p->decode[--p->decode_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < p->decode_count; child = 2 * at + 1) {
        if (child + 1 < p->decode_count && p->decode[child + 1].last_step < p->decode[child].last_step) child++;
        if (last.last_step <= p->decode[child].last_step) break;
        p->decode[at] = p->decode[child];
        at = child;
    }
    p->decode[at] = last;
    return top;
}

/* A prompt is in and made its first token in step p->step − 1. */
static void start_decoding(play *p, uint64_t context, uint64_t more_tokens, uint32_t blocks)
{
    if (more_tokens == 0) {
        p->blocks_free += blocks;
        return;
    }
    p->kv_tokens += context - more_tokens;
    decode_push(p, (play_decode){p->step + more_tokens - 1, context, blocks});
}

static ofl_status play_begin(play *p, ofl_front *front)
{
    memset(p, 0, sizeof *p);
    p->front = front;
    p->blocks_free = front->blocks_free;
    p->waiting.count = p->waiting.capacity = front->waiting.count;
    p->waiting.ids = ofl_alloc(front->waiting.count, sizeof *p->waiting.ids);
    p->decode = ofl_alloc(front->max_sequences, sizeof *p->decode);
    p->prefill = ofl_alloc(front->max_sequences, sizeof *p->prefill);
    if (p->waiting.ids == NULL || p->decode == NULL || p->prefill == NULL)
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory for a forecast");
    if (p->waiting.count > 0) memcpy(p->waiting.ids, front->waiting.ids, p->waiting.count * sizeof *p->waiting.ids);
    for (uint32_t i = 0; i < front->running_count; i++) {
        const front_sequence *sequence = &front->sequences[front->order[i]];
        uint64_t left = sequence->max_new_tokens - sequence->made;
        p->new_tokens += left;
        if (sequence->made > 0)
            start_decoding(p, (uint64_t)sequence->prompt_tokens + sequence->max_new_tokens, left, sequence->block_count);
        else
            p->prefill[p->prefill_count++] =
                (play_prefill){sequence->prefilled, sequence->prompt_tokens - sequence->prefilled, left, sequence->block_count};
    }
    return OFL_OK;
}

static void play_end(play *p)
{
    ofl_free(p->waiting.ids);
    ofl_free(p->decode);
    ofl_free(p->prefill);
}

static void admit_waiting(play *p)
{
    const ofl_front *front = p->front;
    while (p->decode_count + p->prefill_count < front->max_sequences) {
        uint64_t id = ofl_front_queue_peek(front, &p->waiting);
        if (id == UINT64_MAX) return;
        const front_request *request = &front->requests[id];
        uint64_t blocks = ofl_front_blocks_needed(front, request->prompt_tokens, request->max_new_tokens);
        if (blocks > p->blocks_free) return;
        p->blocks_free -= blocks;
        p->new_tokens += request->max_new_tokens;
        p->prefill[p->prefill_count++] = (play_prefill){0, request->prompt_tokens, request->max_new_tokens, (uint32_t)blocks};
        ofl_front_queue_pop(front, &p->waiting);
    }
}

/* Keeps the six leading bits: at most 1.6 % from the value, to both sides alike. */
static uint64_t rounded(uint64_t value)
{
    uint32_t shift = 0;
    while ((value >> shift) >= 64) shift++;
    return shift == 0 ? value : ((value + (UINT64_C(1) << (shift - 1))) >> shift) << shift;
}

/* Estimates are costly beside all else here and shapes come again and again: shapes are rounded and their estimates kept. */
static ofl_status step_seconds(play *p, uint64_t tokens, uint32_t logits_rows, uint64_t kv_tokens, double *out)
{
    front_cached key = {(uint32_t)tokens, (uint32_t)rounded(logits_rows), rounded(kv_tokens), 0};
    uint64_t hash = (key.tokens * UINT64_C(0x9E3779B97F4A7C15)) ^ (key.logits_rows * UINT64_C(0xC2B2AE3D27D4EB4F)) ^
                    (key.kv_tokens * UINT64_C(0x165667B19E3779F9));
    front_cached *entry = &p->front->cache[(hash ^ (hash >> 29)) % FRONT_CACHE_ENTRIES];
    if (entry->tokens != key.tokens || entry->logits_rows != key.logits_rows || entry->kv_tokens != key.kv_tokens) {
        ofl_step_shape shape = {sizeof shape, key.tokens, key.logits_rows, key.kv_tokens};
        ofl_step_estimate estimate = {.struct_size = sizeof estimate};
        ofl_status status = ofl_plan_estimate_step(p->front->plan, &shape, &estimate);
        if (status != OFL_OK) return status;
        key.seconds = estimate.step_seconds;
        *entry = key;
    }
    *out = entry->seconds;
    return OFL_OK;
}

static uint64_t prefill_budget(const play *p) { return ofl_min_u64(p->front->prefill_chunk, p->front->step_cap - p->decode_count); }

/* How many steps to come are alike: none ends a request, and the same prompt takes all the room for prompts. */
static uint64_t like_steps(const play *p)
{
    uint64_t run = LONGEST_RUN;
    if (p->decode_count > 0) run = ofl_min_u64(run, p->decode[0].last_step - p->step + 1);
    if (p->prefill_count > 0) run = ofl_min_u64(run, ofl_max_u64(1, (p->prefill[0].rest - 1) / ofl_max_u64(1, prefill_budget(p))));
    return run;
}

typedef struct play_share { uint64_t tokens, kv_tokens; uint32_t done_count; } play_share;

/* Gives one step's prompt tokens out; kv_tokens at the middle of `run` such steps. Finished prompts are the first done_count. */
static play_share share_out(play *p, uint64_t run)
{
    play_share share = {0, 0, 0};
    uint64_t left = prefill_budget(p);
    for (uint32_t i = 0; i < p->prefill_count && left > 0; i++) {
        play_prefill *prompt = &p->prefill[i];
        uint64_t count = ofl_min_u64(prompt->rest, left);
        share.tokens += count;
        share.kv_tokens += ofl_front_context_sum(prompt->done, count) + count * count * (run - 1) / 2;
        prompt->done += count * run;
        prompt->rest -= count * run;
        share.done_count += prompt->rest == 0;
        left -= count;
    }
    return share;
}

static ofl_status play_run(play *p)
{
    uint64_t run = like_steps(p), decoding = p->decode_count;
    play_share share = share_out(p, run);
    double seconds;
    ofl_status status = step_seconds(p, decoding + share.tokens, (uint32_t)decoding + share.done_count,
                                     p->kv_tokens + decoding * (run - 1) / 2 + share.kv_tokens, &seconds);
    if (status != OFL_OK) return status;
    p->seconds += seconds * (double)run;
    p->step += run;
    p->kv_tokens += decoding * run;
    while (p->decode_count > 0 && p->decode[0].last_step < p->step) {
        play_decode ended = decode_pop(p);
        p->kv_tokens -= ended.context;
        p->blocks_free += ended.blocks;
    }
    for (uint32_t i = 0; i < share.done_count; i++)
        start_decoding(p, p->prefill[i].done + p->prefill[i].answer, p->prefill[i].answer - 1, p->prefill[i].blocks);
    p->prefill_count -= share.done_count;
    memmove(p->prefill, p->prefill + share.done_count, p->prefill_count * sizeof *p->prefill);
    return OFL_OK;
}

ofl_status ofl_front_forecast_get(ofl_front *front, ofl_front_forecast *out)
{
    play p;
    if (front == NULL || out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle, or no place for the forecast");
    ofl_status status = play_begin(&p, front);
    if (status == OFL_OK) admit_waiting(&p);
    while (status == OFL_OK && p.decode_count + p.prefill_count > 0) {
        status = play_run(&p);
        admit_waiting(&p);
    }
    play_end(&p);
    if (status != OFL_OK) return status;
    double correction = ofl_front_correction(front), seconds = p.seconds * correction;
    ofl_front_forecast forecast = {
        .steps = p.step,
        .seconds = seconds,
        .tokens_per_second = seconds > 0 ? (double)p.new_tokens / seconds : 0,
        .correction = correction,
        .waiting = front->waiting_count,
        .running = front->running_count,
        .finished = front->finished_count,
        .new_tokens = p.new_tokens,
    };
    return ofl_struct_out(out, &forecast, sizeof forecast, "ofl_front_forecast");
}

/* Times the caller's blocks and head at a few token counts, and attention at two contexts. */
#include <ofload/compute.h>

#include <math.h>

#include "base/base.h"

#define ROUNDS_LEAST 3u
#define ROUNDS_MOST 9u
#define SECONDS 1.5
#define SAMPLE_SECONDS 3e-3  /* a sample is at least this long, … */
#define SAMPLE_RUNS 6u       /* … or so many runs */
#define LONG_RUN 8e-3        /* takes no notice of what ran before it */
#define DECODING_MOST 64u    /* tokens that decode where the number of tokens is looked at, … */
#define SHARE 32u            /* … tokens of the others' sequences, … */
#define SHORT 8u             /* … and the context, which is to matter little */
#define DECODING 16u         /* sequences of the decoding runs */
#define CHUNK 64u            /* tokens of the prefill runs */
#define CONTEXT_LEAST 64u
#define NOTHING 1e-15        /* a figure of 0 would mean: not measured */
#define DOUBLE_FROM 4u       /* after so many steps the counts double */

enum { DECODE_NEAR, DECODE_FAR, PREFILL_NEAR, PREFILL_FAR, ATTENTION_RUNS };

typedef struct sample {
    ofl_compute_run run;
    double seconds; /* the median */
} sample;

typedef struct bench {
    ofl_device *device;
    ofl_compute_probe probe;
    sample blocks[OFL_COMPUTE_POINTS_MOST], heads[OFL_COMPUTE_POINTS_MOST], attention[ATTENTION_RUNS];
    uint32_t block_count, head_count;
    uint32_t rounds;
    double *times; /* of all samples, a round's together */
} bench;

static ofl_status refuse(const char *what, const char *why) { return ofl_fail(OFL_ERROR_ARGUMENT, "measuring compute: %s: %s", what, why); }

static ofl_status check(const ofl_device *device, const ofl_compute_probe *p, const ofl_compute_figures *out)
{
    ofl_status status = ofl_struct_room(out, "ofl_compute_figures");
    if (status != OFL_OK) return status;
    if (device == NULL) return refuse("device", "none given");
    if (p->run == NULL) return refuse("run", "no function that computes");
    if (p->block_count == 0 || p->max_tokens == 0) return refuse("block count and most tokens", "must be above 0");
    if (p->context_tokens < CONTEXT_LEAST) return refuse("context", "must be 64 tokens or more, so that attention shows");
    if (!(isfinite(p->block_elements) && p->block_elements > 0)) return refuse("block elements", "must be above 0");
    if (!(isfinite(p->head_elements) && p->head_elements >= 0)) return refuse("head elements", "no number");
    if ((p->head_elements > 0) != (p->max_rows > 0)) return refuse("head", "elements and most rows: give both, or neither");
    if (!(p->seconds >= 0)) return refuse("seconds", "no time");
    return OFL_OK;
}

/* 1, then both sides of the first steps, then doublings, and the most. */
static uint32_t next_count(uint32_t n, uint32_t step)
{
    if (step <= 1 || n >= DOUBLE_FROM * step) return n > UINT32_MAX / 2 ? UINT32_MAX : 2 * n;
    return n == 1 ? step : n % step == 0 ? n + 1 : n + step - 1;
}

static uint32_t choose_counts(const ofl_compute_probe *p, ofl_compute_part part, sample *out)
{
    uint32_t most = part == OFL_COMPUTE_HEAD ? p->max_rows : p->max_tokens, count = 0;
    if (part == OFL_COMPUTE_HEAD && !(p->head_elements > 0)) return 0;
    for (uint32_t n = 1; count < OFL_COMPUTE_POINTS_MOST; n = next_count(n, p->token_step)) {
        if (n > most || count + 1 == OFL_COMPUTE_POINTS_MOST) n = most;
        out[count++].run = (ofl_compute_run){.struct_size = sizeof(ofl_compute_run), .part = part, .tokens = n};
        if (n == most) break;
    }
    for (uint32_t i = 0; i < count && part == OFL_COMPUTE_BLOCK; i++) {
        out[i].run.decoding = out[i].run.tokens < DECODING_MOST ? out[i].run.tokens : DECODING_MOST;
        out[i].run.share_tokens = SHARE;
        out[i].run.context_tokens = SHORT;
    }
    return count;
}

static void choose_attention(bench *b)
{
    const ofl_compute_probe *p = &b->probe;
    uint32_t decoding = p->max_tokens < DECODING ? p->max_tokens : DECODING, far = p->context_tokens - 1;
    uint32_t half = p->context_tokens / 2, chunk = p->max_tokens < CHUNK ? p->max_tokens : CHUNK;
    if (chunk > half) chunk = half;
    const ofl_compute_run runs[ATTENTION_RUNS] = {
        [DECODE_NEAR] = {.tokens = decoding, .decoding = decoding, .context_tokens = far / 8},
        [DECODE_FAR] = {.tokens = decoding, .decoding = decoding, .context_tokens = far},
        [PREFILL_NEAR] = {.tokens = chunk, .share_tokens = chunk, .context_tokens = 0},
        [PREFILL_FAR] = {.tokens = chunk, .share_tokens = chunk, .context_tokens = p->context_tokens - chunk},
    };
    for (uint32_t i = 0; i < ATTENTION_RUNS; i++) {
        b->attention[i].run = runs[i];
        b->attention[i].run.struct_size = sizeof(ofl_compute_run);
    }
}

static double now(const bench *b) { return (double)ofl_device_now_ns(b->device) * 1e-9; }

/* Of so many runs one after the other, as in a step. */
static ofl_status time_runs(const bench *b, const ofl_compute_run *run, uint32_t runs, double *seconds_out)
{
    const ofl_compute_probe *p = &b->probe;
    double began = now(b);
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < runs && status == OFL_OK; i++) status = p->run(p->context, run);
    if (status == OFL_OK && p->stream != NULL) status = ofl_stream_wait(b->device, p->stream);
    *seconds_out = (now(b) - began) / runs;
    return status;
}

/* The first run finds caches, buffers and code as another kind of run left them: it only tells how many follow. */
static ofl_status time_sample(const bench *b, const ofl_compute_run *run, double *seconds_out)
{
    ofl_status status = time_runs(b, run, 1, seconds_out);
    if (status != OFL_OK || *seconds_out > LONG_RUN) return status;
    uint32_t runs = *seconds_out > SAMPLE_SECONDS / SAMPLE_RUNS ? (uint32_t)(SAMPLE_SECONDS / *seconds_out) + 1 : SAMPLE_RUNS;
    return time_runs(b, run, runs, seconds_out);
}

static ofl_status time_samples(const bench *b, const sample *samples, uint32_t count, double **at)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) status = time_sample(b, &samples[i].run, (*at)++);
    return status;
}

/* column: of the table of rounds × count. */
static double median(const double *table, uint32_t rounds, uint32_t count, uint32_t column)
{
    double values[ROUNDS_MOST];
    for (uint32_t i = 0; i < rounds; i++) values[i] = table[(uint64_t)i * count + column];
    return ofl_median(values, rounds);
}

static ofl_status take_medians(bench *b)
{
    uint32_t count = b->block_count + b->head_count + ATTENTION_RUNS, column = 0;
    sample *groups[] = {b->blocks, b->heads, b->attention};
    const uint32_t counts[] = {b->block_count, b->head_count, ATTENTION_RUNS};
    for (int g = 0; g < 3; g++) {
        for (uint32_t i = 0; i < counts[g]; i++) {
            groups[g][i].seconds = median(b->times, b->rounds, count, column++);
            if (!(groups[g][i].seconds > 0))
                return ofl_fail(OFL_ERROR_STATE, "measuring compute: a run of %u tokens took no time on the device's clock; "
                                "on a virtual clock, let it pass (ofl_sim_elapse, ofl_sim_launch)", groups[g][i].run.tokens);
        }
    }
    return OFL_OK;
}

static ofl_status time_round(const bench *b, double *at)
{
    ofl_status status = time_samples(b, b->blocks, b->block_count, &at);
    if (status == OFL_OK) status = time_samples(b, b->heads, b->head_count, &at);
    return status == OFL_OK ? time_samples(b, b->attention, ATTENTION_RUNS, &at) : status;
}

/* One round after the other over all, so that a disturbance does not hit one count alone. The first one warms up, the second one tells how
 * many there is time for. */
static ofl_status time_all(bench *b)
{
    uint32_t count = b->block_count + b->head_count + ATTENTION_RUNS;
    double wanted = b->probe.seconds > 0 ? b->probe.seconds : SECONDS;
    b->times = ofl_alloc((uint64_t)ROUNDS_MOST * count, sizeof *b->times);
    if (b->times == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "measuring compute: out of host memory");
    ofl_status status = time_round(b, b->times);
    double began = now(b), round;
    if (status == OFL_OK) status = time_round(b, b->times);
    round = now(b) - began;
    for (b->rounds = 1; b->rounds < ROUNDS_MOST && status == OFL_OK; b->rounds++) {
        if (b->rounds >= ROUNDS_LEAST && (b->rounds + 2) * round > wanted) break;
        status = time_round(b, b->times + (uint64_t)b->rounds * count);
    }
    return status == OFL_OK ? take_medians(b) : status;
}

/* Σ over the tokens of the context that each attends to, itself among it. */
static double pairs_of_prompts(const ofl_compute_run *run)
{
    double left = run->tokens - run->decoding, sum = left * run->context_tokens;
    for (double share; left > 0; left -= share) {
        share = fmin(left, run->share_tokens);
        sum += share * (share + 1) / 2;
    }
    return sum;
}

static double pairs_of_decoding(const ofl_compute_run *run) { return (double)run->decoding * (run->context_tokens + 1.0); }
static double pairs(const ofl_compute_run *run) { return pairs_of_decoding(run) + pairs_of_prompts(run); }

/* Seconds per pair of a block. */
static double per_pair(const sample *near, const sample *far)
{
    return fmax(0, (far->seconds - near->seconds) / (pairs(&far->run) - pairs(&near->run)));
}

static void fill(const bench *b, ofl_compute_figures *f)
{
    const ofl_compute_probe *p = &b->probe;
    double decoding = per_pair(&b->attention[DECODE_NEAR], &b->attention[DECODE_FAR]),
           prompts = per_pair(&b->attention[PREFILL_NEAR], &b->attention[PREFILL_FAR]);
    f->attention_seconds_per_kv_token = fmax(NOTHING, decoding * p->block_count);
    f->prefill_attention_seconds_per_kv_token = fmax(NOTHING, prompts * p->block_count);
    f->point_count = b->block_count;
    for (uint32_t i = 0; i < b->block_count; i++) {
        const sample *s = &b->blocks[i];
        double attention = decoding * pairs_of_decoding(&s->run) + prompts * pairs_of_prompts(&s->run);
        double seconds = fmax(s->seconds - attention, s->seconds / 16); /* noise must leave something of it */
        f->points[i] = (ofl_compute_point){.tokens = s->run.tokens, .seconds_per_element = seconds / p->block_elements};
    }
    f->head_point_count = b->head_count;
    for (uint32_t i = 0; i < b->head_count; i++)
        f->head_points[i] = (ofl_compute_point){b->heads[i].run.tokens, b->heads[i].seconds / p->head_elements};
}

ofl_status ofl_compute_measure(ofl_device *device, const ofl_compute_probe *probe, ofl_compute_figures *out)
{
    bench *b = ofl_alloc(1, sizeof *b);
    if (b == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "measuring compute: out of host memory");
    b->device = device;
    ofl_status status = ofl_struct_in(&b->probe, sizeof b->probe, probe, "ofl_compute_probe");
    if (status == OFL_OK) status = check(device, &b->probe, out);
    if (status == OFL_OK) {
        b->block_count = choose_counts(&b->probe, OFL_COMPUTE_BLOCK, b->blocks);
        b->head_count = choose_counts(&b->probe, OFL_COMPUTE_HEAD, b->heads);
        choose_attention(b);
        status = time_all(b);
    }
    ofl_compute_figures figures = {.struct_size = sizeof figures};
    if (status == OFL_OK) {
        fill(b, &figures);
        status = ofl_struct_out(out, &figures, sizeof figures, "ofl_compute_figures");
    }
    ofl_free(b->times);
    ofl_free(b);
    return status;
}

/* Points are borrowed from where the caller has them; what an older caller's structs do not hold is left out. */
ofl_status ofl_compute_use(const ofl_compute_figures *figures, ofl_workload *workload)
{
    ofl_compute_figures f;
    ofl_workload full;
    ofl_status status = ofl_struct_in(&f, sizeof f, figures, "ofl_compute_figures");
    if (status == OFL_OK) status = ofl_struct_in(&full, sizeof full, workload, "ofl_workload");
    if (status != OFL_OK) return status;
    full.compute_point_count = f.point_count;
    full.compute_points = figures->points;
    full.head_point_count = f.head_point_count;
    full.head_points = figures->head_points;
    full.attention_seconds_per_kv_token = f.attention_seconds_per_kv_token;
    full.prefill_attention_seconds_per_kv_token = f.prefill_attention_seconds_per_kv_token;
    full.host_seconds_per_unit = f.host_seconds_per_unit;
    full.host_seconds_per_piece = f.host_seconds_per_piece;
    return ofl_struct_out(workload, &full, sizeof full, "ofl_workload");
}

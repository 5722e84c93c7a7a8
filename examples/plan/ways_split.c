/* Split over several GPUs like this one: by layers, each card the next ones, or by rows, each card a share of every matrix. */
#include <math.h>
#include <stdio.h>

#include "common/app_error.h"
#include "plan/ways.h"

#define NOT_SPLIT UINT32_MAX

/* Device memory of a card beside weights and KV, for a number of sequences. */
typedef struct card {
    uint64_t room, logits;
} card;

static ofl_status card_for(const ways_job *job, uint32_t sequences, card *out)
{
    const ofl_budget *b = &job->base.budget;
    uint64_t hidden = 0, logits = 0;
    ofl_status status = ways_activations(job, sequences, &hidden, &logits);
    if (status != OFL_OK) return status;
    uint64_t fixed = b->runtime_bytes + b->headroom_bytes + hidden + job->all.budget.workspace_bytes;
    *out = (card){b->vram_bytes > fixed ? b->vram_bytes - fixed : 0, logits};
    return OFL_OK;
}

typedef struct split {
    uint32_t gpus;
    uint64_t weights, bytes; /* of the fullest card: weights; with KV and logits */
} split;

/* Each card takes the next layers as long as they fit; NOT_SPLIT: one layer alone does not. */
static split fill_cards(const layers *l, uint32_t sequences, uint64_t room, uint64_t logits)
{
    split s = {.gpus = 1};
    uint64_t weights = 0, bytes = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        uint64_t item = l->rows[i].bytes + l->rows[i].kv_bytes * sequences + (i + 1 == l->count ? logits : 0);
        if (item > room) return (split){.gpus = NOT_SPLIT};
        if (item > room - bytes) s.gpus++, weights = bytes = 0;
        bytes += item;
        weights += l->rows[i].bytes;
        if (weights > s.weights) s.weights = weights;
        if (bytes > s.bytes) s.bytes = bytes;
    }
    return s;
}

/* Over so many cards as evenly as whole layers allow. */
static split by_layers(const layers *l, uint32_t sequences, const card *c, uint32_t gpus)
{
    uint64_t low = 0, high = c->room;
    if (fill_cards(l, sequences, high, c->logits).gpus > gpus) return (split){.gpus = NOT_SPLIT};
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (fill_cards(l, sequences, middle, c->logits).gpus <= gpus) high = middle;
        else low = middle + 1;
    }
    return fill_cards(l, sequences, high, c->logits);
}

/* Rows of all matrices and KV heads divided; what cannot be divided is on every card. */
static split by_rows(const ways_job *job, const layers *l, uint32_t sequences, const card *c, uint32_t gpus)
{
    split s = {.gpus = gpus, .weights = (l->bytes + gpus - 1) / gpus};
    uint64_t kv = 0;
    for (uint32_t i = 0; i + 1 < l->count; i++) {
        uint32_t heads = l->rows[i].kv_heads < gpus ? l->rows[i].kv_heads : gpus;
        kv += l->rows[i].kv_by_head && heads > 0 ? l->rows[i].kv_bytes / heads : l->rows[i].kv_bytes;
    }
    s.bytes = s.weights + kv * sequences + c->logits / gpus;
    if (s.bytes > c->room || (job->shape.head_count != 0 && job->shape.head_count % gpus != 0)) s.gpus = NOT_SPLIT;
    return s;
}

typedef struct splitting {
    const ways_job *job;
    const layers *l;
    bool rows;
    uint32_t gpus;
    double peer, start; /* bytes/s between two cards; seconds to start a copy */
    double bytes_per_token;
} splitting;

static ofl_status try_split(const splitting *x, uint32_t sequences, uint32_t gpus, split *out)
{
    card c;
    ofl_status status = card_for(x->job, sequences, &c);
    if (status == OFL_OK) *out = x->rows ? by_rows(x->job, x->l, sequences, &c, gpus) : by_layers(x->l, sequences, &c, gpus);
    return status;
}

/* The fewest cards that hold it whole; NOT_SPLIT: no number does. */
static ofl_status fewest(const splitting *x, uint32_t *out)
{
    split s = {.gpus = NOT_SPLIT};
    ofl_status status = OFL_OK;
    *out = NOT_SPLIT;
    for (uint32_t gpus = 1; status == OFL_OK && gpus <= COMPARE_GPUS_MOST && *out == NOT_SPLIT; gpus++) {
        status = try_split(x, x->job->base.settings.sequences, gpus, &s);
        if (status == OFL_OK && s.gpus != NOT_SPLIT) *out = gpus;
    }
    return status;
}

/* Copies that follow each other, each started anew: from card to card, or the rounds of two sums a layer. */
static double starts(const splitting *x)
{
    if (!x->rows) return x->gpus - 1;
    return 2.0 * x->job->shape.block_count * (x->gpus == 2 ? 1 : 2.0 * (x->gpus - 1));
}

static double between_seconds(const splitting *x, double tokens) { return tokens * x->bytes_per_token / x->peer + starts(x) * x->start; }

static ofl_status step_of(const splitting *x, uint32_t sequences, way_rate *out, double *compute_out)
{
    double compute = 0;
    ofl_status status = ways_compute_seconds(x->job, sequences, &compute);
    if (x->rows) compute /= x->gpus;
    *out = (way_rate){.sequences = sequences, .step_seconds = compute + between_seconds(x, sequences)};
    out->tokens_per_second = sequences / out->step_seconds;
    if (compute_out != NULL) *compute_out = compute;
    return status;
}

/* By layers, the cards work on different groups of sequences at the same time; the fullest one sets the pace. */
static ofl_status pipelined(const splitting *x, uint32_t sequences, const split *s, way_rate *out)
{
    double compute = 0, group = ceil((double)sequences / x->gpus), groups = ceil(sequences / group);
    ofl_status status = ways_compute_seconds(x->job, (uint32_t)group, &compute);
    double stage = compute * (double)s->weights / (double)x->l->bytes + between_seconds(x, group) / (x->gpus - 1);
    *out = (way_rate){.sequences = sequences, .step_seconds = stage * fmax(groups, x->gpus)};
    out->tokens_per_second = sequences / out->step_seconds;
    return status;
}

static ofl_status rate_of(const void *context, uint32_t sequences, bool *fits_out, way_rate *out)
{
    const splitting *x = context;
    split s;
    ofl_status status = try_split(x, sequences, x->gpus, &s);
    *fits_out = status == OFL_OK && s.gpus != NOT_SPLIT;
    if (!*fits_out) return status;
    return x->rows ? step_of(x, sequences, out, NULL) : pipelined(x, sequences, &s, out);
}

static ofl_status forecast(const splitting *x, way *w)
{
    double compute = 0;
    ofl_status status = step_of(x, x->job->base.settings.sequences, &w->job, &compute);
    if (status == OFL_OK) status = ways_queue(x->job, rate_of, x, &w->queue);
    (void)ways_rate(x->job, OFL_FIGURE_PEER, &w->sources[OFL_FIGURE_PEER]);
    (void)ways_rate(x->job, OFL_FIGURE_COPY_START, &w->sources[OFL_FIGURE_COPY_START]);
    ways_note_compute(x->job, w);
    w->error_percent = ways_error(compute, x->job->all.forecast.error_band_percent, w->job.step_seconds - compute,
                                  ofl_source_error_percent(w->sources[OFL_FIGURE_PEER]));
    return status;
}

static void add_details(const splitting *x, const split *s, uint32_t needed, way *w)
{
    cJSON *d = w->details = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(d, "gpus", x->gpus);
    (void)cJSON_AddNumberToObject(d, "gpus_needed", needed);
    if (s->gpus != NOT_SPLIT) (void)cJSON_AddNumberToObject(d, "weight_bytes_per_gpu", (double)s->weights);
    if (s->gpus != NOT_SPLIT && x->rows)
        (void)cJSON_AddNumberToObject(d, "weight_bytes_per_gpu_with_embedding", (double)(s->weights + x->l->lookup_bytes / x->gpus));
    (void)cJSON_AddNumberToObject(d, "bytes_between_per_token", x->bytes_per_token);
    if (x->peer > 0) (void)cJSON_AddNumberToObject(d, "seconds_between_per_token", x->bytes_per_token / x->peer);
    else (void)cJSON_AddNullToObject(d, "seconds_between_per_token");
}

static void say(const splitting *x, const split *s, uint32_t needed, way *w)
{
    char weights[32], between[32], time[32], count[96];
    const char *source = x->job->options->given.gpus ? "given" : "found";
    ofl_source peer = OFL_SOURCE_NONE;
    (void)ways_rate(x->job, OFL_FIGURE_PEER, &peer);
    if (x->job->gpus > 0 && s->gpus != NOT_SPLIT)
        (void)snprintf(count, sizeof count, "%u such GPUs (%u %s, %u would hold it whole)", x->gpus, x->job->gpus, source, needed);
    else (void)snprintf(count, sizeof count, "%u such GPUs (the fewest that hold it whole; say with --gpus N how many are there)", x->gpus);
    if (s->gpus == NOT_SPLIT && needed == NOT_SPLIT) (void)snprintf(w->needs, sizeof w->needs, "cards with more memory");
    else if (s->gpus == NOT_SPLIT) (void)snprintf(w->needs, sizeof w->needs, "%u such GPUs and a program that splits", needed);
    else
        (void)snprintf(w->needs, sizeof w->needs,
                       "%s, %s of weights on %s, and a program that splits%s", count, cli_show_bytes(weights, s->weights, 0),
                       x->rows ? "each" : "the fullest",
                       peer == OFL_SOURCE_MEASURED ? "" : "; first ask how they reach each other: nvidia-smi topo -m");
    (void)cli_show_bytes(between, (uint64_t)x->bytes_per_token, 1);
    (void)snprintf(w->costs, sizeof w->costs, "%s a token between cards%s%s; %s", between, x->peer > 0 ? ", " : "",
                   x->peer > 0 ? cli_show_seconds(time, x->bytes_per_token / x->peer) : "",
                   x->rows ? "two sums a layer that all cards wait for" : "with one sequence one card works at a time");
}

/* Why there is no forecast; "" where there can be one. */
static void say_why(const splitting *x, const split *s, uint32_t needed, way *w)
{
    if (s->gpus == NOT_SPLIT && x->rows && x->job->shape.head_count % x->gpus != 0)
        (void)snprintf(w->why, sizeof w->why, "%u heads cannot be divided by %u", x->job->shape.head_count, x->gpus);
    else if (s->gpus == NOT_SPLIT && needed == NOT_SPLIT) (void)snprintf(w->why, sizeof w->why, "no number of these cards holds it so");
    else if (s->gpus == NOT_SPLIT) (void)snprintf(w->why, sizeof w->why, "%u of these cards do not hold it, %u would", x->gpus, needed);
    else if (!(x->peer > 0))
        (void)snprintf(w->why, sizeof w->why, "no rate between the GPUs is known: measure a copy and give --peer-link RATE");
}

/* What the cards hold, and what passes between them. */
static ofl_status settle(splitting *x, split *s, uint32_t *needed, uint64_t *device_bytes)
{
    card c = {0};
    ofl_source source = OFL_SOURCE_NONE;
    const compare_options *o = x->job->options;
    const ofl_budget *b = &x->job->base.budget;
    uint32_t sequences = x->job->base.settings.sequences;
    x->peer = ways_rate(x->job, OFL_FIGURE_PEER, &source);
    x->start = ofl_machine_get(x->job->given.machine, OFL_FIGURE_COPY_START, NULL);
    ofl_status status = fewest(x, needed);
    x->gpus = o->given.gpus ? x->job->gpus : *needed < 2 || *needed == NOT_SPLIT ? 2 : *needed;
    if (x->job->gpus > 0 && x->gpus > x->job->gpus) x->gpus = x->job->gpus;
    double times = x->rows ? 2.0 * x->job->shape.block_count * 2 * (x->gpus - 1) / x->gpus : x->gpus - 1;
    x->bytes_per_token = times * ways_hidden_bytes(x->job);
    if (status == OFL_OK) status = try_split(x, sequences, x->gpus, s);
    if (status == OFL_OK) status = card_for(x->job, sequences, &c);
    if (status == OFL_OK && s->gpus != NOT_SPLIT) *device_bytes = s->bytes + b->vram_bytes - c.room - b->headroom_bytes;
    return status;
}

static ofl_status add_split(ways *list, const ways_job *job, const layers *l, bool rows)
{
    char title[48];
    uint32_t needed = NOT_SPLIT;
    uint64_t device_bytes = 0;
    split s = {.gpus = NOT_SPLIT};
    splitting x = {.job = job, .l = l, .rows = rows};
    ofl_status status = settle(&x, &s, &needed, &device_bytes);
    if (status != OFL_OK) return status;
    (void)snprintf(title, sizeof title, "split, %u GPUs, by %s", x.gpus, rows ? "rows" : "layers");
    way *w = ways_add(list, rows ? "split-rows" : "split-layers", title);
    w->fits = s.gpus != NOT_SPLIT && job->gpus > 0;
    w->device_bytes = device_bytes;
    w->host_bytes = l->lookup_bytes;
    add_details(&x, &s, needed, w);
    say(&x, &s, needed, w);
    say_why(&x, &s, needed, w);
    return w->why[0] == '\0' ? forecast(&x, w) : OFL_OK;
}

ofl_status ways_add_split(ways *list, const ways_job *job)
{
    layers l = {0};
    ofl_status status = layers_read(job, &l);
    if (status != OFL_OK) return status;
    status = add_split(list, job, &l, false);
    if (status == OFL_OK) status = add_split(list, job, &l, true);
    layers_free(&l);
    return status;
}

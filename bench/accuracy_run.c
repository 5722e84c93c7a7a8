#include "accuracy_run.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "accuracy_device.h"
#include "batch/forward.h"
#include "bench.h"

enum { STEPS_LEAST = 8, STEPS_MOST = 400, WARM_UP = 3 };

typedef struct timed { double step, compute, wait, attention, busy, gap; } timed;

typedef struct running {
    const accuracy_point *point;
    const accuracy_settings *settings;
    ofl_device *device;
    ofl_machine *machine;
    ofl_model *model;
    ofl_plan *plan;
    ofl_engine *engine;
    forward *forward;        /* what computes: this, … */
    accuracy_device kernels; /* … or this */
    ofl_compute_figures figures;
    double measuring_busy;
    ofl_step step;
    ofl_step_item *items;
    uint32_t *blocks;
    int32_t *ids;
    timed *times;
    uint32_t time_count;
} running;

static uint32_t sequences_of(const accuracy_point *p) { return p->decoding + p->prompts; }
static uint32_t tokens_of(const accuracy_point *p) { return p->decoding + p->prompts * p->share; }
static double now(const running *r) { return (double)ofl_device_now_ns(r->device) * 1e-9; }

/* Time of this thread on a core. */
static double core_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const accuracy_shape accuracy_shapes[ACCURACY_SHAPES] = {
    {"deep", {16, 512, 8, 2, 1536, 12288, 0}},
    {"wide", {8, 1024, 16, 4, 3072, 16384, 0}},
    {"head", {5, 896, 14, 2, 4864, 65536, 0}},
};

/* Of the largest tensor. */
static uint64_t weight_bytes(const made_shape *s) { return (uint64_t)(s->ffn > s->vocabulary ? s->ffn : s->vocabulary) * s->hidden * 2; }

ofl_status accuracy_weights_make(void **out)
{
    uint64_t bytes = 0, random = 1;
    for (int i = 0; i < ACCURACY_SHAPES; i++) {
        uint64_t wanted = weight_bytes(&accuracy_shapes[i].shape);
        bytes = wanted > bytes ? wanted : bytes;
    }
    uint64_t *data = malloc(bytes);
    if (data == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint64_t i = 0; i < bytes / 8; i++) data[i] = (bench_random(&random) & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
    *out = data;
    return OFL_OK;
}

/* ---- before the steps ---- */

/* As ofload-batch does before it plans. */
static ofl_status measure_compute(running *r, const ofl_workload *w)
{
    const forward_measure_job job = {
        .model = r->model, .device = r->device, .compute_type = w->compute_type, .kv_type = w->kv_type, .threads = r->settings->threads,
        .max_tokens = w->sequences + w->prefill_chunk_tokens, .max_rows = w->sequences,
    };
    double core = core_seconds(), began = now(r);
    ofl_status status = forward_measure(&job, &r->figures);
    r->measuring_busy = (core_seconds() - core) / (now(r) - began);
    return status;
}

static ofl_status plan_make(running *r, const ofl_workload *w, double vram)
{
    ofl_plan_destroy(r->plan);
    r->plan = NULL;
    ofl_status status = ofl_machine_set(r->machine, OFL_FIGURE_VRAM, floor(vram), OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_plan_make(r->model, r->machine, w, &r->plan);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* All in memory first, which tells what all needs; then with so much less of it for weights. */
static ofl_status plan_share(running *r, const ofl_workload *w)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_status status = plan_make(r, w, 4e9);
    if (status != OFL_OK || r->point->resident >= 1) return status;
    status = ofl_plan_budget_get(r->plan, &budget);
    if (status != OFL_OK) return app_forward(status);
    return plan_make(r, w, (double)budget.total_bytes - (1 - r->point->resident) * (double)budget.resident_bytes);
}

static ofl_status plan(running *r)
{
    const accuracy_point *p = r->point;
    uint32_t prompts = p->prompts * p->share;
    ofl_workload w = {
        .struct_size = sizeof w, .context_tokens = 2 * ACCURACY_CONTEXT, .sequences = sequences_of(p), .force_headroom = 1,
        .prefill_chunk_tokens = prompts > 64 ? prompts : 64, .kv_type = OFL_KV_F16,
    };
    r->figures.struct_size = sizeof r->figures;
    ofl_status status = r->settings->products ? measure_compute(r, &w) : accuracy_device_measure(&r->kernels, &w, &r->figures);
    if (status != OFL_OK) return status;
    status = ofl_compute_use(&r->figures, &w);
    return status == OFL_OK ? plan_share(r, &w) : app_forward(status);
}

static ofl_status open_device(running *r)
{
    char spec[96];
    (void)snprintf(spec, sizeof spec, "sim:vram=4GB,h2d=%.0f,clock=%s", r->point->link, r->settings->clock ? "virtual" : "wall");
    ofl_status status = ofl_device_open(spec, &r->device);
    if (status == OFL_OK) status = ofl_machine_probe(r->device, &r->machine);
    if (status == OFL_OK) status = ofl_machine_assume(r->machine);
    if (status != OFL_OK) return app_forward(status);
    return r->settings->products ? OFL_OK : accuracy_device_open(r->device, r->model, &r->kernels);
}

static ofl_status load(running *r)
{
    ofl_status status = ofl_engine_open(r->plan, r->model, r->device, NULL, &r->engine);
    if (status != OFL_OK) return app_forward(status);
    return r->settings->products ? forward_open(r->model, r->plan, r->engine, r->device, r->settings->threads, &r->forward) : OFL_OK;
}

/* Each sequence has its own blocks of the cache; those that decode stand at the same position in every step. */
static ofl_status make_step(running *r)
{
    const accuracy_point *p = r->point;
    uint32_t sequences = sequences_of(p), tokens = tokens_of(p);
    ofl_plan_settings settled = {.struct_size = sizeof settled};
    if (ofl_plan_settings_get(r->plan, &settled) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    uint32_t each = (2 * ACCURACY_CONTEXT + settled.kv_block_tokens - 1) / settled.kv_block_tokens;
    r->items = calloc(sequences, sizeof *r->items);
    r->blocks = calloc((size_t)sequences * each, sizeof *r->blocks);
    r->ids = calloc(tokens, sizeof *r->ids);
    r->times = calloc(STEPS_MOST, sizeof *r->times);
    if (r->items == NULL || r->blocks == NULL || r->ids == NULL || r->times == NULL)
        return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < sequences * each; i++) r->blocks[i] = i;
    for (uint32_t i = 0; i < tokens; i++) r->ids[i] = (int32_t)((i * 977u + 5) % p->shape.vocabulary);
    r->step = (ofl_step){.struct_size = sizeof r->step, .item_count = sequences, .items = r->items};
    r->step.shape = (ofl_step_shape){.struct_size = sizeof r->step.shape, .tokens = tokens, .logits_rows = sequences};
    for (uint32_t i = 0; i < sequences; i++) {
        bool decodes = i < p->decoding;
        uint32_t first = decodes ? ACCURACY_CONTEXT : 0, count = decodes ? 1 : p->share;
        r->items[i] = (ofl_step_item){.slot = i, .first_position = first, .token_count = count, .prefill = !decodes, .wants_logits = 1,
                                      .block_count = each, .blocks = r->blocks + (size_t)i * each};
        r->step.shape.kv_tokens += (uint64_t)count * first + (uint64_t)count * (count + 1) / 2;
    }
    return OFL_OK;
}

/* ---- the steps ---- */

static ofl_status kernel_step(const running *r, timed *out)
{
    double before = now(r);
    ofl_status status = accuracy_device_step(&r->kernels, r->engine, ofl_plan_unit_count(r->plan));
    out->compute = r->kernels.step_seconds;
    out->wait = fmax(0, now(r) - before - out->compute);
    return status;
}

static ofl_status product_step(running *r, timed *out)
{
    forward_times times;
    ofl_status status = forward_step(r->forward, &r->step, r->ids, r->point->shape.vocabulary, NULL);
    if (status != OFL_OK) return status;
    forward_times_get(r->forward, &times);
    *out = (timed){.compute = times.compute, .wait = times.wait, .attention = times.attention};
    return OFL_OK;
}

/* One behind the other, each from the end of the one before it. */
static ofl_status run_steps(running *r)
{
    double start = now(r), before = start, left_core = core_seconds();
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < STEPS_MOST + WARM_UP && status == OFL_OK; i++) {
        timed t = {0};
        double began = now(r);
        status = r->settings->products ? product_step(r, &t) : kernel_step(r, &t);
        double end = now(r), core = core_seconds();
        t.step = end - before;
        t.gap = began - before;
        t.busy = t.compute > 0 ? (core - left_core) / t.compute : 0;
        before = end;
        left_core = core;
        if (i + 1 == WARM_UP) start = end;
        if (i < WARM_UP) continue;
        r->times[r->time_count++] = t;
        if (r->time_count >= STEPS_LEAST && end - start > r->settings->seconds) break;
    }
    return status;
}

static int by_step(const void *a, const void *b)
{
    double x = ((const timed *)a)->step, y = ((const timed *)b)->step;
    return (x > y) - (x < y);
}

static void take_middle(running *r, accuracy_result *out)
{
    uint32_t first = r->time_count / 4, end = r->time_count - first;
    double share = 1.0 / (end - first);
    qsort(r->times, r->time_count, sizeof *r->times, by_step);
    for (uint32_t i = first; i < end; i++) {
        const timed *t = &r->times[i];
        out->step += t->step * share;
        out->compute += t->compute * share;
        out->wait += t->wait * share;
        out->attention += t->attention * share;
        out->busy += t->busy * share;
        out->gap += t->gap * share;
    }
    out->steps = r->time_count;
}

static ofl_status describe(running *r, accuracy_result *out)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_status status = ofl_plan_budget_get(r->plan, &budget);
    out->units = ofl_plan_unit_count(r->plan);
    for (uint32_t i = 0; i < ofl_plan_unit_count(r->plan) && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        status = ofl_plan_unit_get(r->plan, i, &unit);
        out->streamed_units += unit.piece_bytes != 0;
    }
    out->memory_bytes = (double)(budget.resident_bytes + budget.ring_bytes);
    out->streamed_bytes = (double)budget.stream_bytes_per_step;
    out->probed_rate = ofl_machine_get(r->machine, OFL_FIGURE_LINK, NULL);
    out->measuring_busy = r->measuring_busy;
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status measure(running *r, accuracy_result *out)
{
    out->forecast.struct_size = sizeof out->forecast;
    ofl_status status = ofl_plan_estimate_step(r->plan, &r->step.shape, &out->forecast);
    if (status != OFL_OK) return app_forward(status);
    if (!r->settings->products) status = accuracy_device_prepare(&r->kernels, r->model, r->plan, &r->step.shape);
    if (status == OFL_OK) status = run_steps(r);
    if (status != OFL_OK) return status;
    take_middle(r, out);
    return describe(r, out);
}

static void release(running *r)
{
    forward_close(r->forward);
    ofl_engine_close(r->engine);
    accuracy_device_close(&r->kernels);
    ofl_plan_destroy(r->plan);
    ofl_model_destroy(r->model);
    ofl_machine_destroy(r->machine);
    ofl_device_close(r->device);
    free(r->items);
    free(r->blocks);
    free(r->ids);
    free(r->times);
}

ofl_status accuracy_run(const accuracy_point *point, const accuracy_settings *settings, accuracy_result *out)
{
    running r = {.point = point, .settings = settings};
    *out = (accuracy_result){0};
    ofl_status status = made_model_of(&point->shape, settings->weights, &r.model);
    if (status == OFL_OK) status = open_device(&r);
    if (status == OFL_OK) status = plan(&r);
    if (status == OFL_OK) status = load(&r);
    if (status == OFL_OK) status = make_step(&r);
    if (status == OFL_OK) status = measure(&r, out);
    release(&r);
    return status;
}

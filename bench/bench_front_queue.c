/* front --queue: requests of mixed length to the end, on the simulated device's virtual clock. The engine streams about half of the weights in
 * every step, the compute passes as launches as long as the plan says for what is in the step. Beside the front's two policies the static
 * batch: a group starts together, the next one when its longest has ended. */
#include "bench_front.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "made.h"

enum { SEQUENCES = 64, CHUNK = 512 };
static const double link_rate = 1e9;

typedef struct queue {
    ofl_device *device;
    ofl_machine *machine;
    ofl_model *model;
    void *data; /* behind every tensor */
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_stream *stream;
    uint64_t requests;
} queue;

/* ---- set-up ---- */

/* Compute takes a quarter of the link's time for sequences that decode, and below it too with a whole chunk of prompts: the knee is beyond. */
static ofl_status plan_make(queue *q, uint64_t vram_bytes)
{
    static const ofl_compute_point points[] = {{1, 1e-10}, {SEQUENCES + CHUNK, 7e-10}};
    const ofl_workload work = {
        .struct_size = sizeof work, .objective = OFL_THROUGHPUT, .context_tokens = front_most_tokens(1), .sequences = SEQUENCES,
        .prefill_chunk_tokens = CHUNK, .queue_length = q->requests, .force_headroom = 1, .compute_point_count = 2, .compute_points = points,
        .attention_seconds_per_kv_token = 1e-8,
    };
    ofl_plan_destroy(q->plan);
    q->plan = NULL;
    ofl_status status = ofl_machine_set(q->machine, OFL_FIGURE_VRAM, (double)vram_bytes, OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_plan_make(q->model, q->machine, &work, &q->plan) : status;
}

/* A device with so much less than all resident takes that half of the weights is streamed. */
static ofl_status plan_half(queue *q)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_status status = plan_make(q, UINT64_C(1) << 30);
    if (status == OFL_OK) status = ofl_plan_budget_get(q->plan, &budget);
    return status == OFL_OK ? plan_make(q, budget.total_bytes - budget.resident_bytes / 2) : status;
}

static ofl_status queue_open(queue *q)
{
    char spec[96];
    const made_shape shape = {2, 256, 4, 1, 1024, 512, 0};
    q->data = calloc((uint64_t)shape.hidden * shape.ffn, 2);
    if (q->data == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    (void)snprintf(spec, sizeof spec, "sim:vram=1GiB,h2d=%.0f,start=5us,clock=virtual", link_rate);
    ofl_status status = made_model_of(&shape, q->data, &q->model);
    if (status != OFL_OK) return status;
    status = ofl_device_open(spec, &q->device);
    if (status == OFL_OK) status = ofl_machine_probe(q->device, &q->machine);
    if (status == OFL_OK) status = ofl_machine_assume(q->machine);
    if (status == OFL_OK) status = plan_half(q);
    if (status == OFL_OK) status = ofl_engine_open(q->plan, q->model, q->device, NULL, &q->engine);
    if (status == OFL_OK) status = ofl_stream_create(q->device, &q->stream);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static void queue_close(queue *q)
{
    if (q->stream != NULL) ofl_stream_destroy(q->device, q->stream);
    ofl_engine_close(q->engine);
    ofl_plan_destroy(q->plan);
    ofl_model_destroy(q->model);
    ofl_machine_destroy(q->machine);
    ofl_device_close(q->device);
    free(q->data);
}

/* ---- steps ---- */

/* share: this step's compute in that of the planned one. */
static ofl_status engine_step(const queue *q, double share)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0, units = ofl_plan_unit_count(q->plan); i < units && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        status = ofl_plan_unit_get(q->plan, i, &unit);
        if (status == OFL_OK) status = ofl_engine_acquire(q->engine, i, q->stream, &view);
        if (status == OFL_OK) status = ofl_sim_launch(q->device, q->stream, NULL, NULL, unit.compute_seconds * share);
        if (status == OFL_OK) status = ofl_engine_release(q->engine, i, q->stream);
    }
    return status == OFL_OK ? ofl_stream_wait(q->device, q->stream) : status;
}

typedef struct total {
    double steps, seconds, tokens;
    double slots, busy; /* while requests waited: those there, and those with tokens in the step */
    uint64_t started;
} total;

static ofl_status run_step(const queue *q, ofl_front *front, double planned_compute, total *t)
{
    ofl_step step = {.struct_size = sizeof step};
    ofl_step_estimate plain = {.struct_size = sizeof plain};
    ofl_status status = ofl_front_next_step(front, &step);
    if (status == OFL_OK) status = ofl_plan_estimate_step(q->plan, &step.shape, &plain);
    if (status != OFL_OK) return status;
    for (uint32_t i = 0; i < step.item_count; i++) t->started += step.items[i].prefill && step.items[i].first_position == 0;
    if (t->started < q->requests) {
        t->slots += SEQUENCES;
        t->busy += step.item_count;
    }
    double before = (double)ofl_device_now_ns(q->device);
    status = engine_step(q, plain.compute_seconds / planned_compute);
    double seconds = ((double)ofl_device_now_ns(q->device) - before) * 1e-9;
    t->steps++;
    t->seconds += seconds;
    t->tokens += step.shape.logits_rows;
    return status == OFL_OK ? ofl_front_commit(front, NULL, seconds) : status;
}

/* ---- rows ---- */

typedef struct way { const char *label; ofl_admission admission; uint64_t group; } way; /* group: requests that start together; 0: all */

/* Until the front has nothing left, and then with the next group. */
static ofl_status run_groups(const queue *q, const way *w, ofl_front *front, double planned_compute, ofl_front_forecast *forecast, total *t)
{
    uint64_t random = 1, submitted = 0;
    ofl_status status = OFL_END;
    while (status == OFL_END && submitted < q->requests) {
        uint64_t left = q->requests - submitted, count = w->group != 0 && w->group < left ? w->group : left;
        status = front_submit(front, count, 1, &random);
        submitted += count;
        if (status == OFL_OK && count == q->requests) status = ofl_front_forecast_get(front, forecast);
        while (status == OFL_OK) status = run_step(q, front, planned_compute, t);
    }
    return status == OFL_END ? OFL_OK : status;
}

static void print_row(bench_report *report, const way *w, const total *t, double step_forecast, const ofl_front_forecast *forecast,
                      double static_seconds)
{
    bench_report_row(report, w->label);
    bench_report_number(report, "steps", t->steps);
    if (t->slots > 0) bench_report_number(report, "slots_busy", t->busy / t->slots);
    bench_report_number(report, "step_seconds", t->seconds / t->steps);
    bench_report_number(report, "forecast_step", step_forecast);
    bench_report_number(report, "over_forecast", t->seconds / (t->steps * step_forecast));
    bench_report_number(report, "seconds", t->seconds);
    bench_report_number(report, "tokens_per_second", t->tokens / t->seconds);
    bench_report_number(report, "gain", static_seconds / t->seconds);
    if (forecast->seconds <= 0) return;
    bench_report_number(report, "forecast_seconds", forecast->seconds);
    bench_report_number(report, "error_percent", 100 * (t->seconds / forecast->seconds - 1));
}

static ofl_status add_row(const queue *q, const way *w, double *static_seconds, bench_report *report)
{
    total t = {0};
    ofl_front *front = NULL;
    ofl_forecast planned = {.struct_size = sizeof planned};
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    const ofl_front_options options = {.struct_size = sizeof options, .admission = w->admission};
    ofl_status status = ofl_plan_forecast_get(q->plan, &planned);
    if (status == OFL_OK) status = ofl_front_create(q->plan, &options, &front);
    if (status == OFL_OK) status = run_groups(q, w, front, planned.step.compute_seconds, &forecast, &t);
    ofl_front_destroy(front);
    if (status != OFL_OK) return app_forward(status);
    if (w->group != 0) *static_seconds = t.seconds;
    print_row(report, w, &t, planned.step.step_seconds, &forecast, *static_seconds);
    return OFL_OK;
}

ofl_status front_queue_rows(uint64_t requests, bench_output output, bench_report **out)
{
    static const way ways[] = {
        {"static batch", OFL_FIRST_COME, SEQUENCES},
        {"continuous, first come", OFL_FIRST_COME, 0},
        {"continuous, longest first", OFL_LONGEST_FIRST, 0},
    };
    queue q = {.requests = requests};
    double static_seconds = 0;
    ofl_status status = queue_open(&q);
    if (status == OFL_OK) status = bench_report_open("front", q.device, output, out);
    for (size_t i = 0; status == OFL_OK && i < sizeof ways / sizeof ways[0]; i++) status = add_row(&q, &ways[i], &static_seconds, *out);
    queue_close(&q);
    return status;
}

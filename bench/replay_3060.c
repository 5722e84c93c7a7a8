/* replay 3060: a published experiment of one RTX 3060 with 12.49 GB behind a link of 3.26 GB/s, which streams Qwen2.5-7B at 16 bits (15.23 GB;
 * here without its biases of q, k and v, 9 kB a layer). Real: products of all weights on the CPU while the simulated link carries the real
 * bytes in real time. Modelled: the same bytes on the virtual clock, compute taking what the card's rates say. */
#include "bench_replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "laid.h"
#include "made.h"
#include "products.h"

/* As published, and of the card's data sheet (bf16 products that add up in float32). */
#define VRAM 12.49e9
#define LINK 3.26e9
#define COPY_START 5e-6
#define RUNTIME (768.0 * 1048576)
#define FLOPS 25.5e12
#define BANDWIDTH 360e9
#define RESIDENT_LAYERS 13u
#define PUBLISHED_TOKENS 0.46
#define PUBLISHED_STEP 2.191
#define PUBLISHED_QUESTIONS 57.9
enum { LAYERS = 28, HEADS = 28, KV_HEADS = 4, HIDDEN = 3584, FFN = 18944, VOCABULARY = 152064, QUESTIONS = 60, CHUNK = 512, MATRICES = 7 };

typedef enum layout { LAYOUT_PUBLISHED, LAYOUT_LATENCY, LAYOUT_THROUGHPUT } layout;

typedef struct row_3060 {
    const char *label;
    layout layout;
    uint32_t sequences; /* 0: the planner chooses */
    int modelled;
    double published;   /* tokens a second */
    const char *published_is;
} row_3060;

static const row_3060 rows[] = {
    {"published layout, 1 sequence", LAYOUT_PUBLISHED, 1, 0, PUBLISHED_TOKENS, "measured"},
    {"published layout, 60 questions", LAYOUT_PUBLISHED, QUESTIONS, 0, QUESTIONS / PUBLISHED_STEP, "60 / 2.191 s a step"},
    {"latency plan, 1 sequence", LAYOUT_LATENCY, 1, 0, PUBLISHED_TOKENS, "measured"},
    {"published layout, 1 sequence", LAYOUT_PUBLISHED, 1, 1, PUBLISHED_TOKENS, "measured"},
    {"published layout, 60 questions", LAYOUT_PUBLISHED, QUESTIONS, 1, QUESTIONS / PUBLISHED_STEP, "60 / 2.191 s a step"},
    {"latency plan, 1 sequence", LAYOUT_LATENCY, 1, 1, PUBLISHED_TOKENS, "measured"},
    {"latency plan, 60 sequences", LAYOUT_LATENCY, QUESTIONS, 1, QUESTIONS / PUBLISHED_STEP, "60 / 2.191 s a step"},
    {"throughput plan, long queue", LAYOUT_THROUGHPUT, 0, 1, QUESTIONS / PUBLISHED_STEP, "60 / 2.191 s a step"},
};

typedef struct session {
    const replay_3060 *options;
    bench_report *report;
    made_shape shape;
    double scale;           /* as it came out: of the bytes */
    uint32_t chunk;
    laid *weights;
    ofl_model *model;
    ofl_device *devices[2]; /* on the wall clock, on the virtual one; NULL: not needed */
} session;

/* ---- the model and the devices ---- */

static uint32_t rounded(double value, uint32_t to) { return (uint32_t)fmax(1, round(value / to)) * to; }

/* Bytes go with the square of the widths; what a token of context takes, and a chunk's temporaries, are made to follow. */
static ofl_status scale_model(session *s)
{
    double width = sqrt(s->options->scale);
    const made_shape full = {LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCABULARY, 0};
    made_kind kind = {.dtype = OFL_DTYPE_BF16, .laid = 1};
    s->shape = (made_shape){LAYERS, HEADS * rounded(HIDDEN * width / HEADS, 4), HEADS, KV_HEADS, rounded(FFN * width, 32), rounded(VOCABULARY * width, 64), 0};
    uint64_t bytes = made_bytes(&s->shape, &kind);
    s->scale = (double)bytes / (double)made_bytes(&full, &kind);
    s->chunk = (uint32_t)fmax(1, CHUNK * width);
    kind.kv_elements = (uint64_t)fmax(1, round(s->scale * KV_HEADS * HIDDEN / HEADS));
    ofl_status status = laid_open(bytes, &s->weights);
    if (status != OFL_OK) return status;
    kind.data = laid_data(s->weights);
    return made_model_kind(&s->shape, &kind, &s->model);
}

static int wanted(const session *s, int modelled) { return s->options->compute != (modelled ? REPLAY_REAL : REPLAY_MODELLED); }

/* On the wall clock all streamed and resident weights are memory of their own, each once. */
static ofl_status check_memory(const session *s)
{
    ofl_device *device = NULL;
    ofl_machine *machine = NULL;
    double need = 15.5e9 * s->scale + 1.2e9 * sqrt(s->scale) + 0.3e9, there = 0;
    ofl_status status = ofl_device_open("sim:vram=1MB,h2d=1GB/s,clock=virtual", &device);
    if (status == OFL_OK) status = ofl_machine_probe(device, &machine);
    if (status == OFL_OK) there = ofl_machine_get(machine, OFL_FIGURE_HOST, NULL);
    ofl_machine_destroy(machine);
    ofl_device_close(device);
    if (status != OFL_OK) return app_forward(status);
    if (there >= need) return OFL_OK;
    return app_fail(OFL_ERROR_HOST_MEMORY, "%.1f GB of host memory are needed, %.1f GB are there; free some, or give --scale %.2f", need / 1e9, there / 1e9,
                    floor(fmax(0.01, s->options->scale * there / need * 0.9) * 100) / 100);
}

static ofl_status open_devices(session *s)
{
    ofl_status status = OFL_OK;
    for (int i = 0; i < 2 && status == OFL_OK; i++) {
        char spec[128];
        (void)snprintf(spec, sizeof spec, "sim:vram=%.0f,h2d=%.0f,start=%.0fus,clock=%s", VRAM * s->scale, LINK * s->scale, COPY_START * 1e6,
                       i == 0 ? "wall" : "virtual");
        if (wanted(s, i)) status = ofl_device_open(spec, &s->devices[i]);
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* ---- plans ---- */

static ofl_status machine_make(const session *s, ofl_machine **out)
{
    const struct { ofl_figure figure; double value; } figures[] = {
        {OFL_FIGURE_VRAM, floor(VRAM * s->scale)}, {OFL_FIGURE_LINK, LINK * s->scale}, {OFL_FIGURE_COPY_START, COPY_START},
        {OFL_FIGURE_RUNTIME, floor(RUNTIME * s->scale)}, {OFL_FIGURE_DEVICE_FLOPS, FLOPS * s->scale}, {OFL_FIGURE_DEVICE_BANDWIDTH, BANDWIDTH * s->scale},
    };
    ofl_status status = ofl_machine_create("RTX 3060, simulated", out);
    for (size_t i = 0; status == OFL_OK && i < sizeof figures / sizeof figures[0]; i++)
        status = ofl_machine_set(*out, figures[i].figure, figures[i].value, OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_machine_assume(*out) : status;
}

/* element_seconds: of real products; 0: compute by the card's rates. */
static ofl_status plan_make(const session *s, const row_3060 *row, double element_seconds, ofl_plan **out)
{
    ofl_machine *machine = NULL;
    ofl_compute_point point = {row->sequences, element_seconds};
    ofl_workload work = {.struct_size = sizeof work, .context_tokens = 512, .sequences = row->sequences, .prefill_chunk_tokens = s->chunk,
                         .objective = row->layout == LAYOUT_THROUGHPUT ? OFL_THROUGHPUT : OFL_LATENCY};
    if (row->layout == LAYOUT_PUBLISHED) {
        work.force_layers = 1;
        work.force_resident_layers = RESIDENT_LAYERS;
    }
    if (element_seconds > 0) {
        work.compute_point_count = 1;
        work.compute_points = &point;
        work.attention_seconds_per_kv_token = 1e-15; /* there is none */
    }
    ofl_status status = machine_make(s, &machine);
    if (status == OFL_OK) status = ofl_plan_make(s->model, machine, &work, out);
    ofl_machine_destroy(machine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* What a step streams is memory of its own; what only fills the device once stays the shared block. */
static ofl_status lay_out(const session *s, const ofl_plan *plan)
{
    ofl_status status = laid_share(s->weights);
    for (uint32_t i = 0; i < ofl_plan_slice_count(plan) && status == OFL_OK; i++) {
        ofl_slice slice = {.struct_size = sizeof slice};
        status = ofl_plan_slice_get(plan, i, &slice);
        if (status != OFL_OK || slice.tier == OFL_TIER_DEVICE || slice.unit == UINT32_MAX) continue;
        const char *tensor = ofl_model_tensor_data(s->model, slice.tensor);
        ofl_tensor_info info = {.struct_size = sizeof info};
        status = ofl_model_tensor_get(s->model, slice.tensor, &info);
        if (status == OFL_OK) status = laid_own(s->weights, (uint64_t)(tensor - laid_data(s->weights)) + slice.row_first * info.row_bytes, slice.bytes);
    }
    return status;
}

/* ---- steps ---- */

typedef struct run_3060 {
    const session *s;
    const row_3060 *row;
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_stream *stream;  /* modelled: launches; NULL: products on this thread */
    products *products;
    double *step_seconds; /* measured */
    ofl_forecast forecast;
    ofl_budget budget;
} run_3060;

static ofl_status run_unit(const run_3060 *r, uint32_t index)
{
    ofl_view view = {.struct_size = sizeof view};
    ofl_unit unit = {.struct_size = sizeof unit};
    ofl_status status = ofl_plan_unit_get(r->plan, index, &unit);
    if (status == OFL_OK) status = ofl_engine_acquire(r->engine, index, r->stream, &view);
    if (status != OFL_OK) return app_forward(status);
    status = r->stream == NULL ? products_view(r->products, r->s->model, &view)
                               : ofl_sim_launch(r->s->devices[1], r->stream, NULL, NULL, unit.compute_seconds);
    if (status == OFL_OK) status = ofl_engine_release(r->engine, index, r->stream);
    return status;
}

static ofl_status run_steps(run_3060 *r)
{
    ofl_device *device = r->s->devices[r->row->modelled];
    ofl_status status = OFL_OK;
    for (uint64_t step = 0; step <= r->s->options->steps && status == OFL_OK; step++) {
        uint64_t start = ofl_device_now_ns(device);
        for (uint32_t i = 0; i < ofl_plan_unit_count(r->plan) && status == OFL_OK; i++) status = run_unit(r, i);
        if (status == OFL_OK && r->stream != NULL) status = ofl_stream_wait(device, r->stream);
        if (step > 0) r->step_seconds[step - 1] = (double)(ofl_device_now_ns(device) - start) * 1e-9;
    }
    return status;
}

static double mean(const double *values, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

/* ---- a row ---- */

/* What two whole-layer slots behind contiguous residents take, in closed form: copies of all but two of the streamed layers one after the
 * other, then the compute of what no copy can go beside. Or all copies, or all compute, where that is more. */
static double two_slots_seconds(const run_3060 *r)
{
    double all = r->forecast.step.compute_seconds, copies = r->forecast.step.link_seconds, head = 0;
    uint32_t units = ofl_plan_unit_count(r->plan), streamed = LAYERS - RESIDENT_LAYERS;
    for (uint32_t i = 0; i < units; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        if (ofl_plan_unit_get(r->plan, i, &unit) == OFL_OK && (unit.block < 0 || unit.block >= LAYERS)) head += unit.compute_seconds;
    }
    double uncovered = head + (all - head) * (RESIDENT_LAYERS + 2) / LAYERS;
    return fmax(fmax(copies, all), copies * (streamed - 2) / streamed + uncovered);
}

static void print_times(const run_3060 *r, double seconds)
{
    bench_report *report = r->s->report;
    double streamed = (double)r->budget.stream_bytes_per_step;
    bench_report_text(report, "bound", r->forecast.link_bound ? "link" : "compute");
    bench_report_number(report, "link_share", streamed / seconds / (LINK * r->s->scale));
    bench_report_number(report, "step_seconds", seconds);
    bench_report_number(report, "bound_seconds", r->forecast.lower_bound_seconds);
    bench_report_number(report, "forecast_seconds", r->forecast.step.step_seconds);
    bench_report_number(report, "error_percent", 100 * (seconds / r->forecast.step.step_seconds - 1));
    bench_report_number(report, "tokens_per_second", r->forecast.sequences / seconds);
}

static void print_row(run_3060 *r)
{
    bench_report *report = r->s->report;
    uint64_t steps = r->s->options->steps;
    double seconds = mean(r->step_seconds, steps), rate = r->forecast.sequences / seconds;
    bench_report_row(report, r->row->label);
    bench_report_text(report, "compute", r->row->modelled ? "modelled" : "real");
    bench_report_text(report, "clock", r->row->modelled ? "virtual" : "wall");
    bench_report_number(report, "sequences", r->forecast.sequences);
    print_times(r, seconds);
    bench_report_number(report, "published", r->row->published);
    bench_report_text(report, "published_is", r->row->published_is);
    if (r->row->modelled) bench_report_number(report, "over_published", rate / r->row->published);
    bench_report_number(report, "compute_seconds", r->forecast.step.compute_seconds);
    bench_report_number(report, "streamed_bytes", (double)r->budget.stream_bytes_per_step);
    bench_report_number(report, "resident_bytes", (double)r->budget.resident_bytes);
    bench_report_number(report, "ring_bytes", (double)r->budget.ring_bytes);
    (void)bench_median(r->step_seconds, steps);
    bench_report_number(report, "least_seconds", r->step_seconds[0]);
    bench_report_number(report, "most_seconds", r->step_seconds[steps - 1]);
    if (r->row->layout != LAYOUT_PUBLISHED) return;
    double form = two_slots_seconds(r);
    bench_report_number(report, "closed_form_seconds", form);
    bench_report_number(report, "over_closed_form_percent", 100 * (seconds / form - 1));
    if (r->row->sequences != QUESTIONS) return;
    /* as many steps as theirs were: 57.9 s of 2.191 s each */
    bench_report_number(report, "questions_seconds", seconds * PUBLISHED_QUESTIONS / PUBLISHED_STEP);
    bench_report_number(report, "published_questions_seconds", PUBLISHED_QUESTIONS);
}

/* Measured anew for each row: what a core gives changes. */
static ofl_status open_products(run_3060 *r, double *element_seconds)
{
    const session *s = r->s;
    uint64_t h = s->shape.hidden, kv = h / HEADS * KV_HEADS, f = s->shape.ffn;
    const matrix_size layer[MATRICES] = {{h, h}, {kv, h}, {kv, h}, {h, h}, {f, h}, {f, h}, {h, f}};
    ofl_status status = products_open(r->row->sequences, s->shape.vocabulary, f, &r->products);
    return status == OFL_OK ? products_measure(r->products, s->devices[0], LINK * s->scale, layer, MATRICES, element_seconds) : status;
}

static ofl_status run_open(run_3060 *r)
{
    const session *s = r->s;
    ofl_device *device = s->devices[r->row->modelled];
    r->step_seconds = calloc(s->options->steps, sizeof *r->step_seconds);
    if (r->step_seconds == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory; give fewer --steps");
    r->forecast.struct_size = sizeof r->forecast;
    r->budget.struct_size = sizeof r->budget;
    double element_seconds = 0;
    ofl_status status = r->row->modelled ? OFL_OK : open_products(r, &element_seconds);
    if (status == OFL_OK) status = plan_make(s, r->row, element_seconds, &r->plan);
    if (status == OFL_OK && !r->row->modelled) status = lay_out(s, r->plan);
    if (status != OFL_OK) return status;
    status = ofl_plan_forecast_get(r->plan, &r->forecast);
    if (status == OFL_OK) status = ofl_plan_budget_get(r->plan, &r->budget);
    if (status == OFL_OK) status = ofl_engine_open(r->plan, s->model, device, NULL, &r->engine);
    if (status == OFL_OK && r->row->modelled) status = ofl_stream_create(device, &r->stream);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status add_row(const session *s, const row_3060 *row)
{
    run_3060 r = {.s = s, .row = row};
    ofl_status status = run_open(&r);
    if (status == OFL_OK) status = run_steps(&r);
    if (status == OFL_OK) print_row(&r);
    if (r.stream != NULL) ofl_stream_destroy(s->devices[1], r.stream);
    ofl_engine_close(r.engine);
    ofl_plan_destroy(r.plan);
    products_close(r.products);
    free(r.step_seconds);
    return status;
}

/* ---- all ---- */

static ofl_status run_all(session *s, bench_output output, bench_report **out)
{
    ofl_status status = scale_model(s);
    if (status == OFL_OK && wanted(s, 0)) status = check_memory(s);
    if (status == OFL_OK) status = open_devices(s);
    if (status == OFL_OK) status = bench_report_open("replay 3060", s->devices[wanted(s, 0) ? 0 : 1], output, out);
    s->report = *out;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == OFL_OK; i++) {
        if (wanted(s, rows[i].modelled)) status = add_row(s, &rows[i]);
    }
    return status;
}

ofl_status replay_3060_rows(const replay_3060 *replay, bench_output output, bench_report **out)
{
    session s = {.options = replay};
    ofl_status status = run_all(&s, output, out);
    ofl_model_destroy(s.model);
    for (int i = 0; i < 2; i++) ofl_device_close(s.devices[i]);
    laid_close(s.weights);
    return status;
}

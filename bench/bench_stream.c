/* stream: the engine alone, moving weights that nothing is computed with. designs: the same job by simpler ways of streaming, in one run.
 * The compute is time that passes. */
#include "bench.h"
#include "stream_file.h"
#include "stream_reader.h"
#include "stream_slots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum stream_source { FROM_PINNED, FROM_PAGEABLE, FROM_FILE } stream_source;
enum { MOST_FRACTIONS = 16 };

typedef struct streaming {
    const char *device_spec, *compute;
    double link, resident_percent;
    uint64_t weights, part, ring, steps;
    uint32_t clock;
    int part_given;
    bench_output output;
    double fractions[MOST_FRACTIONS];
    int fraction_count;
    char spec[256];
    ofl_device *device;
    int simulated;
    ofl_machine *machine;
    ofl_model *model;
    uint32_t source;         /* a stream_source */
    const char *folder;      /* for the file */
    char *data;              /* of all tensors, one after the other; NULL: in the file */
    char *path;
    uint64_t placed;         /* bytes of it that have a tensor */
    double file_rate;        /* measured; 0: nothing comes from a file */
    uint64_t layer_bytes, elements;
    double rate;             /* as probed */
} streaming;

/* ---- set-up ---- */

static ofl_status add_matrix(ofl_model_builder *builder, streaming *s, int32_t block, ofl_tensor_role role, uint64_t columns, uint64_t rows)
{
    char name[48];
    (void)snprintf(name, sizeof name, "blk.%d.%d", (int)block, (int)role);
    ofl_tensor_source source = {
        .struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_BF16, .tensor_class = OFL_CLASS_DENSE, .role = role, .block = block,
        .n_dims = 2, .dims = {columns, rows},
    };
    if (s->data != NULL) source.data = s->data + s->placed;
    else source.file = s->path, source.file_offset = s->placed;
    s->placed += columns * rows * 2;
    return ofl_model_builder_add_tensor(builder, &source);
}

static ofl_status add_block(ofl_model_builder *builder, streaming *s, int32_t block, uint64_t h)
{
    static const struct { ofl_tensor_role role; unsigned columns, rows; } parts[] = {
        {OFL_ROLE_ATTN_Q, 1, 1},   {OFL_ROLE_ATTN_K, 1, 1}, {OFL_ROLE_ATTN_V, 1, 1}, {OFL_ROLE_ATTN_OUTPUT, 1, 1},
        {OFL_ROLE_FFN_GATE, 1, 3}, {OFL_ROLE_FFN_UP, 1, 3}, {OFL_ROLE_FFN_DOWN, 3, 1},
    };
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == OFL_OK; i++)
        status = add_matrix(builder, s, block, parts[i].role, parts[i].columns * h, parts[i].rows * h);
    return status;
}

/* The bytes that are streamed: memory that is there, or a file that is on the disk. */
static ofl_status source_open(streaming *s)
{
    uint64_t bytes = STREAM_LAYERS * s->layer_bytes;
    if (s->source == FROM_FILE) return stream_file_make(s->folder, bytes, &s->path);
    s->data = malloc(bytes);
    if (s->data == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory for the weights; give fewer --weights");
    memset(s->data, 1, bytes);
    return OFL_OK;
}

/* 16 blocks of 13 h² elements of 2 bytes. */
static ofl_status model_build(streaming *s)
{
    uint64_t h = (uint64_t)sqrt((double)s->weights / (STREAM_LAYERS * 13 * 2)) / 64 * 64;
    s->layer_bytes = 13 * h * h * 2;
    s->elements = STREAM_LAYERS * 13 * h * h;
    ofl_status status = source_open(s);
    if (status != OFL_OK) return status;
    ofl_model_shape shape = {
        .struct_size = sizeof shape,
        .block_count = STREAM_LAYERS,
        .hidden_size = (uint32_t)h,
        .head_count = (uint32_t)(h / 64),
        .head_count_kv = 1,
        .head_dim_k = 64,
        .head_dim_v = 64,
        .ffn_size = (uint32_t)(3 * h),
        .vocab_size = 256,
        .trained_context_tokens = 64,
    };
    ofl_model_builder *builder;
    status = ofl_model_builder_create("bench", "llama", &shape, &builder);
    for (int32_t b = 0; b < STREAM_LAYERS && status == OFL_OK; b++) status = add_block(builder, s, b, h);
    if (status == OFL_OK) status = ofl_model_builder_finish(builder, &s->model);
    else ofl_model_builder_destroy(builder);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* What may be pinned, and what host memory may be used at all, for the weights to come from where they are to. The file's rate is measured.
 */
static ofl_status host_limit(streaming *s)
{
    double bytes = (double)(STREAM_LAYERS * s->layer_bytes);
    ofl_status status = OFL_OK;
    if (s->source == FROM_PAGEABLE) status = ofl_machine_set(s->machine, OFL_FIGURE_PINNABLE, 1, OFL_SOURCE_GIVEN);
    if (s->source == FROM_FILE) {
        status = stream_file_rate(s->model, &s->file_rate);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_FILE, s->file_rate, OFL_SOURCE_MEASURED);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_HOST, floor(bytes / 3), OFL_SOURCE_GIVEN);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_PINNABLE, floor(bytes / 3), OFL_SOURCE_GIVEN);
    } else if (status == OFL_OK) {
        status = ofl_machine_set(s->machine, OFL_FIGURE_HOST, 2 * bytes, OFL_SOURCE_GIVEN);
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status open_all(streaming *s)
{
    const char *spec = s->device_spec;
    if (spec == NULL) {
        (void)snprintf(s->spec, sizeof s->spec, "sim:vram=%llu,h2d=%.0f,start=5us,clock=%s",
                       (unsigned long long)(2 * s->weights + (64u << 20)), s->link, s->clock ? "virtual" : "wall");
        spec = s->spec;
    }
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_device_open(spec, &s->device);
    if (status == OFL_OK) status = ofl_device_info_get(s->device, &info);
    if (status == OFL_OK) status = ofl_machine_probe(s->device, &s->machine);
    if (status == OFL_OK) status = ofl_machine_assume(s->machine);
    if (status != OFL_OK) return app_forward(status);
    s->simulated = (int)info.simulated;
    s->rate = ofl_machine_get(s->machine, OFL_FIGURE_LINK, NULL);
    status = model_build(s);
    return status == OFL_OK ? host_limit(s) : status;
}

static void close_all(streaming *s)
{
    ofl_model_destroy(s->model);
    ofl_machine_destroy(s->machine);
    ofl_device_close(s->device);
    free(s->data);
    stream_file_drop(s->path);
}

/* ---- this engine ---- */

typedef struct measured {
    double step_seconds, streamed_bytes; /* a step */
    ofl_step_estimate forecast;
    double memory_bytes;                 /* weights and ring */
    double file_bytes;                   /* of the streamed */
    ofl_engine_stats stats;
    double call_seconds;                 /* acquire and release of a unit, on the host; 0: not measured */
    double lower_bound_bytes;
} measured;

static ofl_status plan_make(const streaming *s, double compute_seconds, ofl_plan **out)
{
    ofl_compute_point point = {1, compute_seconds / (double)s->elements};
    ofl_workload work = {
        .struct_size = sizeof work,
        .objective = OFL_LATENCY,
        .context_tokens = 16,
        .sequences = 1,
        .prefill_chunk_tokens = 1,
        .force_headroom = 1,
        .cut = s->part_given ? OFL_CUT_BYTES : OFL_CUT_AUTO,
        .part_bytes = s->part,
        .ring_bytes = s->ring,
        .compute_point_count = 1,
        .compute_points = &point,
        .attention_seconds_per_kv_token = 1e-15,
    };
    double vram = (double)(STREAM_LAYERS * s->layer_bytes) * s->resident_percent / 100;
    vram += ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, NULL);
    ofl_status status = ofl_machine_set(s->machine, OFL_FIGURE_VRAM, floor(vram), OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_plan_make(s->model, s->machine, &work, out) : status;
}

static ofl_status engine_step(ofl_engine *engine, const ofl_plan *plan, const stream_reader *r)
{
    ofl_status status = OFL_OK;
    uint32_t units = ofl_plan_unit_count(plan);
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        status = ofl_plan_unit_get(plan, i, &unit);
        if (status == OFL_OK) status = ofl_engine_acquire(engine, i, r->stream, &view);
        if (status == OFL_OK) status = stream_reader_compute(r, unit.compute_seconds);
        if (status == OFL_OK) status = ofl_engine_release(engine, i, r->stream);
    }
    return status == OFL_OK ? stream_reader_wait(r) : status;
}

static ofl_status engine_steps(const streaming *s, const ofl_plan *plan, ofl_engine *engine, measured *out)
{
    stream_reader r;
    double start = 0;
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    ofl_status status = stream_reader_open(s->device, s->simulated, &r);
    for (uint64_t i = 0; i < STREAM_WARM_UP + s->steps && status == OFL_OK; i++) {
        if (i == STREAM_WARM_UP) {
            start = stream_seconds(s->device);
            ofl_engine_stats_reset(engine);
        }
        status = engine_step(engine, plan, &r);
    }
    out->step_seconds = (stream_seconds(s->device) - start) / (double)s->steps;
    if (status == OFL_OK) status = ofl_engine_stats_get(engine, &stats);
    out->stats = stats;
    out->streamed_bytes = (double)stats.bytes_streamed / (double)s->steps;
    out->file_bytes = (double)stats.from_file_bytes / (double)s->steps;
    stream_reader_close(&r);
    return status;
}

/* What acquire and release of a streamed unit cost the host, on a stream on which nothing is computed: the median of a few steps. */
static ofl_status engine_calls(const streaming *s, const ofl_plan *plan, ofl_engine *engine, double *out)
{
    enum { STEPS = 8 };
    uint32_t units = ofl_plan_unit_count(plan), count = 0;
    ofl_stream *stream = NULL;
    double *seconds = calloc((size_t)units * STEPS, sizeof *seconds);
    ofl_status status = seconds != NULL ? ofl_stream_create(s->device, &stream) : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < units * STEPS && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        status = ofl_plan_unit_get(plan, i % units, &unit);
        double start = bench_seconds();
        if (status == OFL_OK) status = ofl_engine_acquire(engine, i % units, stream, &view);
        if (status == OFL_OK) status = ofl_engine_release(engine, i % units, stream);
        if (unit.piece_bytes != 0) seconds[count++] = bench_seconds() - start;
        if (i % units == units - 1 && status == OFL_OK) status = ofl_stream_wait(s->device, stream);
    }
    *out = count > 0 ? bench_median(seconds, count) : 0;
    if (stream != NULL) (void)ofl_stream_wait(s->device, stream);
    ofl_stream_destroy(s->device, stream);
    free(seconds);
    return status;
}

static ofl_status engine_run(const streaming *s, double compute_seconds, measured *out)
{
    ofl_plan *plan;
    ofl_engine *engine = NULL;
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_status status = plan_make(s, compute_seconds, &plan);
    if (status != OFL_OK) return status;
    status = ofl_plan_budget_get(plan, &budget);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &forecast);
    if (status == OFL_OK) status = ofl_engine_open(plan, s->model, s->device, NULL, &engine);
    if (status == OFL_OK) status = engine_steps(s, plan, engine, out);
    if (status == OFL_OK) status = engine_calls(s, plan, engine, &out->call_seconds);
    out->forecast = forecast.step;
    out->memory_bytes = (double)(budget.resident_bytes + budget.ring_bytes);
    out->lower_bound_bytes = (double)budget.lower_bound_bytes_per_step;
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    return status;
}

/* Seconds that the link alone takes with this memory. */
static ofl_status link_time(const streaming *s, double *out)
{
    ofl_plan *plan;
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_status status = plan_make(s, 1e-9, &plan);
    if (status != OFL_OK) return status;
    status = ofl_plan_forecast_get(plan, &forecast);
    *out = forecast.step.link_seconds;
    ofl_plan_destroy(plan);
    return status;
}

/* ---- rows ---- */

static void row(bench_report *report, const streaming *s, const char *label, double fraction, double compute_seconds, const measured *m)
{
    double link = m->lower_bound_bytes / s->rate;
    if (s->file_rate > 0) link = fmax(link, m->file_bytes / s->file_rate);
    double bound = fmax(link, compute_seconds);
    bench_report_row(report, label);
    bench_report_number(report, "compute_share", fraction);
    bench_report_text(report, "bound", link >= compute_seconds ? "link" : "compute");
    bench_report_number(report, "link_share", m->streamed_bytes / m->step_seconds / s->rate);
    bench_report_number(report, "step_seconds", m->step_seconds);
    bench_report_number(report, "bound_seconds", bound);
    bench_report_number(report, "over_bound", m->step_seconds / bound);
    if (m->forecast.step_seconds <= 0) return;
    bench_report_number(report, "forecast_seconds", m->forecast.step_seconds);
    bench_report_number(report, "error_percent", 100 * (m->step_seconds / m->forecast.step_seconds - 1));
}

/* The engine's own counters, a step. */
static void counters(bench_report *report, const streaming *s, const measured *m)
{
    const ofl_engine_stats *stats = &m->stats;
    double steps = (double)s->steps;
    bench_report_number(report, "copies", (double)stats->copies / steps);
    bench_report_number(report, "stall_seconds", stats->stall_seconds / steps);
    bench_report_number(report, "idle_seconds", stats->link_idle_seconds / steps);
    bench_report_number(report, "ring_high_bytes", (double)stats->ring_high_water_bytes);
    bench_report_number(report, "pinned_bytes", (double)stats->from_pinned_bytes / steps);
    bench_report_number(report, "pageable_bytes", (double)stats->from_pageable_bytes / steps);
    bench_report_number(report, "file_bytes", (double)stats->from_file_bytes / steps);
    if (s->file_rate > 0) bench_report_number(report, "file_bytes_per_second", s->file_rate);
    if (m->call_seconds > 0) bench_report_number(report, "call_seconds", m->call_seconds);
}

static ofl_status run_fraction(const streaming *s, bench_report *report, double fraction, int compare)
{
    double link;
    measured own = {0};
    ofl_status status = link_time(s, &link);
    if (status == OFL_OK) status = engine_run(s, fraction * link, &own);
    for (size_t i = 0; compare && i < stream_design_count && status == OFL_OK; i++) {
        const stream_layers layers = {s->device, s->simulated, s->layer_bytes, s->steps};
        measured m = {.lower_bound_bytes = own.lower_bound_bytes};
        status = stream_slots_run(&layers, &stream_designs[i], own.memory_bytes, fraction * link, &m.step_seconds, &m.streamed_bytes);
        if (status == OFL_OK) row(report, s, stream_designs[i].label, fraction, fraction * link, &m);
    }
    if (status == OFL_OK) row(report, s, "this engine", fraction, fraction * link, &own);
    if (status == OFL_OK && !compare) counters(report, s, &own);
    return status;
}

static ofl_status run_all(const streaming *s, bench_report *report, int compare)
{
    for (int i = 0; i < s->fraction_count; i++) {
        ofl_status status = run_fraction(s, report, s->fractions[i], compare);
        if (status != OFL_OK) return app_forward(status);
    }
    return OFL_OK;
}

/* ---- the two subcommands ---- */

static ofl_status read_fractions(streaming *s)
{
    char text[128], *rest = text, *word;
    if (strlen(s->compute) >= sizeof text) return app_fail(OFL_ERROR_ARGUMENT, "--compute: too long");
    (void)snprintf(text, sizeof text, "%s", s->compute);
    while ((word = strtok_r(rest, ",", &rest)) != NULL) {
        char *end;
        double value = strtod(word, &end);
        if (*end != '\0' || !(value > 0 && value <= 10) || s->fraction_count == MOST_FRACTIONS)
            return app_fail(OFL_ERROR_ARGUMENT, "--compute %s: give up to %d numbers above 0 and up to 10, comma between", s->compute,
                            MOST_FRACTIONS);
        s->fractions[s->fraction_count++] = value;
    }
    return s->fraction_count > 0 ? OFL_OK : app_fail(OFL_ERROR_ARGUMENT, "--compute: no number given");
}

static ofl_status check_options(streaming *s, int link_given, int clock_given)
{
    if (s->device_spec != NULL && (link_given || clock_given))
        return app_fail(OFL_ERROR_ARGUMENT, "--link, --clock: have no effect beside --device; leave them out");
    if (s->weights < (UINT64_C(4) << 20)) return app_fail(OFL_ERROR_ARGUMENT, "--weights: give at least 4MiB");
    if (!(s->resident_percent > 0 && s->resident_percent <= 100))
        return app_fail(OFL_ERROR_ARGUMENT, "--resident: give a percentage above 0, up to 100");
    if (s->steps == 0) return app_fail(OFL_ERROR_ARGUMENT, "--steps: give at least 1");
    return read_fractions(s);
}

static int streaming_main(int argc, char **argv, const char *name, const char *title, const char *summary, int compare)
{
    streaming s = {
        .link = 1e9, .resident_percent = 45, .weights = UINT64_C(256) << 20, .steps = 10, .compute = "0.1,0.5,0.8,0.95", .folder = "."};
    int link_given = 0, clock_given = 0, folder_given = 0, exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--device", CLI_TEXT, &s.device_spec, NULL, "SPEC", NULL,
         "device to run on (default: a simulated one made from --link and --clock)"},
        {"--link", CLI_RATE, &s.link, &link_given, "RATE", NULL, "rate of the simulated link (default 1GB/s)"},
        {"--clock", CLI_CHOICE, &s.clock, &clock_given, "CLOCK", "wall|virtual", "of the simulated device (default wall)"},
        {"--weights", CLI_SIZE, &s.weights, NULL, "SIZE", NULL, "weights of the made-up model (default 256MiB)"},
        {"--resident", CLI_NUMBER, &s.resident_percent, NULL, "PERCENT", NULL, "device memory as a share of the weights (default 45)"},
        {"--part", CLI_SIZE, &s.part, &s.part_given, "SIZE", NULL, "row parts of at most this (default: chosen by the planner)"},
        {"--ring", CLI_SIZE, &s.ring, NULL, "SIZE", NULL, "staging ring (default: chosen by the planner)"},
        {"--from", CLI_CHOICE, &s.source, NULL, "TIER", "pinned|pageable|file",
         "where streamed weights come from; file: of a file three times the host memory (default pinned)"},
        {"--folder", CLI_TEXT, &s.folder, &folder_given, "FOLDER", NULL, "for the file of --from file, deleted afterwards (default .)"},
        {"--compute", CLI_TEXT, &s.compute, NULL, "LIST", NULL, "compute time as shares of the link time (default 0.1,0.5,0.8,0.95)"},
        {"--steps", CLI_COUNT, &s.steps, NULL, "N", NULL, "steps measured, after two that are not (default 10)"},
        BENCH_OUTPUT_OPTIONS(s.output),
    };
    const cli_program program = {title, "[options]", summary, NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = check_options(&s, link_given, clock_given);
    if (status == OFL_OK && folder_given && s.source != FROM_FILE)
        status = app_fail(OFL_ERROR_ARGUMENT, "--folder: has no effect without --from file");
    if (status == OFL_OK) status = open_all(&s);
    if (status == OFL_OK) status = bench_report_open(name, s.device, s.output, &report);
    if (status == OFL_OK) status = run_all(&s, report, compare);
    exit_status = bench_report_close(report, &program, status);
    close_all(&s);
    return exit_status;
}

int bench_stream(int argc, char **argv)
{
    return streaming_main(argc, argv, "stream", "ofload-bench stream", "Runs the copy engine alone and shows how much of the link it uses.",
                          0);
}

int bench_designs(int argc, char **argv)
{
    return streaming_main(argc, argv, "designs", "ofload-bench designs",
                          "Runs the same weights, memory and compute through simpler ways of streaming and through this engine.", 1);
}

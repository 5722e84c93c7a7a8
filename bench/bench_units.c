/* units: what the engine itself costs the host in a step, by the number of units: acquire and release on a stream on which nothing is
 * computed, half of the weights streamed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "made.h"

#define DEVICE "sim:vram=2GB,h2d=100GB/s"
enum { STEPS = 9, WARM_UP = 2 };
static const uint32_t sizes[] = {16, 64, 256, 1024}; /* ascending */

typedef struct engine {
    ofl_device *device;
    ofl_machine *machine;
    ofl_model *model;
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_stream *stream;
} engine;

/* A block is a unit, and the head. */
static ofl_status plan_half(engine *e)
{
    const ofl_workload work = {.struct_size = sizeof work, .context_tokens = 16, .sequences = 1, .prefill_chunk_tokens = 1,
                               .force_headroom = 1, .cut = OFL_CUT_OFF};
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_status status = ofl_plan_make(e->model, e->machine, &work, &e->plan);
    if (status == OFL_OK) status = ofl_plan_budget_get(e->plan, &budget);
    double vram = (double)(budget.total_bytes - budget.resident_bytes / 2);
    if (status == OFL_OK) status = ofl_machine_set(e->machine, OFL_FIGURE_VRAM, floor(vram), OFL_SOURCE_GIVEN);
    ofl_plan_destroy(e->plan);
    e->plan = NULL;
    return status == OFL_OK ? ofl_plan_make(e->model, e->machine, &work, &e->plan) : status;
}

static ofl_status open_engine(engine *e, uint32_t units, const void *data)
{
    const made_shape shape = {units - 1, 128, 2, 1, 512, 512, 0};
    ofl_status status = made_model_of(&shape, data, &e->model);
    if (status != OFL_OK) return status;
    status = ofl_device_open(DEVICE, &e->device);
    if (status == OFL_OK) status = ofl_machine_probe(e->device, &e->machine);
    if (status == OFL_OK) status = ofl_machine_assume(e->machine);
    if (status == OFL_OK) status = plan_half(e);
    if (status == OFL_OK) status = ofl_engine_open(e->plan, e->model, e->device, NULL, &e->engine);
    return status == OFL_OK ? ofl_stream_create(e->device, &e->stream) : status;
}

static void close_engine(engine *e)
{
    if (e->stream != NULL) (void)ofl_stream_wait(e->device, e->stream);
    if (e->stream != NULL) ofl_stream_destroy(e->device, e->stream);
    ofl_engine_close(e->engine);
    ofl_plan_destroy(e->plan);
    ofl_model_destroy(e->model);
    ofl_machine_destroy(e->machine);
    ofl_device_close(e->device);
}

/* Seconds in the engine's calls of one step; the copies go on in another thread. */
static ofl_status time_step(const engine *e, uint32_t units, double *out)
{
    ofl_status status = OFL_OK;
    *out = 0;
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
        ofl_view view = {.struct_size = sizeof view};
        double start = bench_seconds();
        status = ofl_engine_acquire(e->engine, i, e->stream, &view);
        if (status == OFL_OK) status = ofl_engine_release(e->engine, i, e->stream);
        *out += bench_seconds() - start;
    }
    if (status == OFL_OK) status = ofl_engine_step_end(e->engine);
    return status == OFL_OK ? ofl_stream_wait(e->device, e->stream) : status;
}

static ofl_status add_row(bench_report *report, const engine *e)
{
    char label[32];
    double seconds[STEPS] = {0};
    uint32_t units = ofl_plan_unit_count(e->plan), streamed = 0;
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        status = ofl_plan_unit_get(e->plan, i, &unit);
        streamed += unit.piece_bytes != 0;
    }
    for (int i = 0; i < STEPS + WARM_UP && status == OFL_OK; i++) status = time_step(e, units, &seconds[i % STEPS]);
    if (status != OFL_OK) return status;
    (void)snprintf(label, sizeof label, "%u units", units);
    double step = bench_median(seconds, STEPS);
    bench_report_row(report, label);
    bench_report_number(report, "units", units);
    bench_report_number(report, "streamed_units", streamed);
    bench_report_number(report, "seconds_per_step", step);
    bench_report_number(report, "seconds_per_unit", step / units);
    return OFL_OK;
}

static ofl_status run_size(bench_report *report, uint32_t units, const void *data)
{
    engine e = {0};
    ofl_status status = open_engine(&e, units, data);
    if (status == OFL_OK) status = add_row(report, &e);
    close_engine(&e);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

int bench_units(int argc, char **argv)
{
    uint64_t most = UINT64_MAX;
    bench_output out = {0};
    int most_given = 0, exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--most", CLI_COUNT, &most, &most_given, "N", NULL, "leave out more units"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench units", "[options]",
                                 "Times the engine's calls on the host by the number of units, half of the weights streamed, nothing "
                                 "computed: medians of nine steps.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    void *data = calloc(128 * 512, 2);
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_OK) status = bench_check_least("--most", most_given, most, sizes[0]);
    if (status == OFL_OK && data == NULL) status = app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    if (status == OFL_OK) status = bench_report_open("units", NULL, out, &report);
    if (status == OFL_OK) bench_report_simulated(report, DEVICE, 0);
    for (size_t i = 0; status == OFL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] <= most) status = run_size(report, sizes[i], data);
    }
    free(data);
    return status == OFL_END ? exit_status : bench_report_close(report, &program, status);
}

/* plan: what planning costs, by tensors. Each size in a process of its own, so that its peak memory is its own too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "made.h"

#define RUNS 5

typedef struct size { const char *label; made_shape shape; uint64_t vram_bytes; ofl_cut cut; ofl_objective objective; } size;

static const size sizes[] = {
    {"10 layers", {10, 4096, 32, 8, 11008, 32000, 0}, 4000000000u, OFL_CUT_AUTO, OFL_LATENCY},
    {"100 layers", {100, 4096, 32, 8, 11008, 32000, 0}, 20000000000u, OFL_CUT_AUTO, OFL_LATENCY},
    {"1,000 layers", {1000, 1024, 16, 4, 2816, 32000, 0}, 12000000000u, OFL_CUT_AUTO, OFL_LATENCY},
    {"1,000 layers of 461 MB", {1000, 4096, 32, 8, 15360, 128256, 0}, 80000000000u, OFL_CUT_AUTO, OFL_LATENCY},
    {"200 layers, 166 experts", {200, 2048, 16, 4, 512, 32000, 166}, 80000000000u, OFL_CUT_AUTO, OFL_LATENCY},
    {"the same, throughput", {200, 2048, 16, 4, 512, 32000, 166}, 80000000000u, OFL_CUT_AUTO, OFL_THROUGHPUT},
    {"the same, whole blocks", {200, 2048, 16, 4, 512, 32000, 166}, 80000000000u, OFL_CUT_OFF, OFL_LATENCY},
    {"the same, both", {200, 2048, 16, 4, 512, 32000, 166}, 80000000000u, OFL_CUT_OFF, OFL_THROUGHPUT},
};

typedef struct result { /* through a pipe from child to parent */
    uint32_t failed;
    char why[256];
    double tensors, units, model_seconds, plan_seconds;
} result;

static ofl_status plan_once(const size *s, const ofl_model *model, const ofl_machine *machine, result *out, double *seconds_out)
{
    const ofl_workload workload = {.struct_size = sizeof workload, .context_tokens = 2048, .cut = s->cut, .objective = s->objective};
    ofl_plan *plan = NULL;
    double before = bench_seconds();
    ofl_status status = ofl_plan_make(model, machine, &workload, &plan);
    *seconds_out = bench_seconds() - before;
    if (status != OFL_OK) return app_forward(status);
    out->units = ofl_plan_unit_count(plan);
    ofl_plan_destroy(plan);
    return OFL_OK;
}

static ofl_status measure(const size *s, result *out)
{
    ofl_model *model = NULL;
    ofl_machine *machine = NULL;
    double runs[RUNS], before = bench_seconds();
    ofl_status status = made_model(&s->shape, &model);
    out->model_seconds = bench_seconds() - before;
    if (status == OFL_OK) status = made_machine(s->vram_bytes, &machine);
    for (int i = 0; status == OFL_OK && i < RUNS; i++) status = plan_once(s, model, machine, out, &runs[i]);
    if (status == OFL_OK) {
        out->plan_seconds = bench_median(runs, RUNS);
        out->tensors = ofl_model_tensor_count(model);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
    return status;
}

static void child(const size *s, int to)
{
    result r = {0};
    if (measure(s, &r) != OFL_OK) {
        r.failed = 1;
        (void)snprintf(r.why, sizeof r.why, "%s", app_error());
    }
    _exit(write(to, &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}

static ofl_status measure_apart(const size *s, result *out, double *peak_bytes_out)
{
    int ends[2], status = 0;
    struct rusage usage;
    if (pipe(ends) != 0) return app_fail(OFL_ERROR_IO, "a pipe cannot be made: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) child(s, ends[1]);
    (void)close(ends[1]);
    ssize_t got = pid > 0 ? read(ends[0], out, sizeof *out) : -1;
    (void)close(ends[0]);
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || got != (ssize_t)sizeof *out)
        return app_fail(OFL_ERROR_IO, "%s: the measuring process gave no result: %s", s->label, pid < 0 ? strerror(errno) : "it ended early");
    if (out->failed) return app_fail(OFL_ERROR_INTERNAL, "%s: %s", s->label, out->why);
    *peak_bytes_out = (double)usage.ru_maxrss * 1024;
    return OFL_OK;
}

static ofl_status add_row(const size *s, bench_report *report)
{
    result r = {0};
    double peak = 0;
    ofl_status status = measure_apart(s, &r, &peak);
    if (status != OFL_OK) return status;
    bench_report_row(report, s->label);
    bench_report_number(report, "tensors", r.tensors);
    bench_report_number(report, "units", r.units);
    bench_report_number(report, "model_seconds", r.model_seconds);
    bench_report_number(report, "plan_seconds", r.plan_seconds);
    bench_report_number(report, "peak_bytes", peak);
    return OFL_OK;
}

/* The table of the bound: V and link as shares and rates, C a tenth to all of the link time; start cost as assumed. Modelled, nothing runs. */
static const double shares[] = {0.25, 0.5, 0.8}, links[] = {3.3e9, 12e9, 25e9, 55e9};
static const struct { const char *name; made_shape shape; } bounded[] = {
    {"Qwen2.5-7B", {28, 3584, 28, 4, 18944, 152064, 0}},
    {"Llama-3-70B", {80, 8192, 64, 8, 28672, 128256, 0}},
};
#define START_SECONDS 5e-6

static ofl_status table_machine(double vram, double link, double bandwidth, ofl_machine **out)
{
    const struct { ofl_figure figure; double value; } figures[] = {
        {OFL_FIGURE_VRAM, vram}, {OFL_FIGURE_LINK, link}, {OFL_FIGURE_COPY_START, START_SECONDS}, {OFL_FIGURE_DEVICE_BANDWIDTH, bandwidth},
        {OFL_FIGURE_DEVICE_FLOPS, 1e18}, {OFL_FIGURE_RUNTIME, 0},
    };
    ofl_status status = ofl_machine_create("none", out);
    for (size_t i = 0; status == OFL_OK && i < sizeof figures / sizeof figures[0]; i++)
        status = ofl_machine_set(*out, figures[i].figure, figures[i].value, OFL_SOURCE_GIVEN);
    return status;
}

/* The worst over C, which is left in *out. */
static ofl_status worst_step(const ofl_model *model, double dense, double share, double link, ofl_cut cut, ofl_forecast *out, double *at)
{
    double worst = 0;
    ofl_status status = OFL_OK;
    for (int tenths = 1; tenths <= 10 && status == OFL_OK; tenths++) {
        const ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_headroom = 1, .prefill_chunk_tokens = 16, .cut = cut};
        ofl_forecast f = {.struct_size = sizeof f};
        ofl_machine *machine = NULL;
        ofl_plan *plan = NULL;
        status = table_machine((double)(uint64_t)(dense * share), link, link / (1 - share) / (tenths / 10.0), &machine);
        if (status == OFL_OK) status = ofl_plan_make(model, machine, &w, &plan);
        if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &f);
        if (status == OFL_OK && f.step.step_seconds / f.lower_bound_seconds > worst) {
            worst = f.step.step_seconds / f.lower_bound_seconds;
            *out = f;
            *at = tenths / 10.0;
        }
        ofl_plan_destroy(plan);
        ofl_machine_destroy(machine);
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static double dense_bytes(const ofl_model *model)
{
    double sum = 0;
    ofl_tensor_info info = {.struct_size = sizeof info};
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        if (ofl_model_tensor_get(model, i, &info) == OFL_OK && info.tensor_class == OFL_CLASS_DENSE) sum += (double)info.bytes;
    }
    return sum;
}

static ofl_status add_bound_row(const char *name, const ofl_model *model, double share, double link, bench_report *report)
{
    char label[64];
    ofl_forecast parts, whole;
    double dense = dense_bytes(model), parts_at = 0, whole_at = 0;
    ofl_status status = worst_step(model, dense, share, link, OFL_CUT_AUTO, &parts, &parts_at);
    if (status == OFL_OK) status = worst_step(model, dense, share, link, OFL_CUT_OFF, &whole, &whole_at);
    if (status != OFL_OK) return status;
    (void)snprintf(label, sizeof label, "%s, V %.0f %%, %.1f GB/s", name, share * 100, link / 1e9);
    bench_report_row(report, label);
    bench_report_text(report, "source", "modelled");
    bench_report_text(report, "bound", parts.link_bound ? "link" : "compute");
    bench_report_number(report, "compute_share", parts_at);
    bench_report_number(report, "step_seconds", parts.step.step_seconds);
    bench_report_number(report, "bound_seconds", parts.lower_bound_seconds);
    bench_report_number(report, "above_bound", parts.step.step_seconds / parts.lower_bound_seconds);
    bench_report_number(report, "whole_blocks_above_bound", whole.step.step_seconds / whole.lower_bound_seconds);
    return OFL_OK;
}

static ofl_status add_bound_rows(bench_report *report)
{
    ofl_status status = OFL_OK;
    for (size_t m = 0; m < sizeof bounded / sizeof bounded[0] && status == OFL_OK; m++) {
        ofl_model *model = NULL;
        status = made_model(&bounded[m].shape, &model);
        for (int i = 0; i < 12 && status == OFL_OK; i++) status = add_bound_row(bounded[m].name, model, shares[i / 4], links[i % 4], report);
        ofl_model_destroy(model);
    }
    return status;
}

static uint64_t tensors_of(const made_shape *s) { return 3 + (uint64_t)s->layers * (s->experts > 0 ? 6 + 3 * (uint64_t)s->experts : 9); }

int bench_plan(int argc, char **argv)
{
    uint64_t most = UINT64_MAX;
    int bound = 0, most_given = 0;
    bench_output out = {0};
    int exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--bound", CLI_FLAG, &bound, NULL, NULL, NULL,
         "instead: the worst step over the bound without any ring, in parts and in whole blocks (modelled)"},
        {"--most", CLI_COUNT, &most, &most_given, "N", NULL, "leave out models of more tensors"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench plan", "[options]", "Times planning by the number of tensors, models made in memory: medians of five, and the peak memory of the whole process.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK && bound && most_given)
        status = app_fail(OFL_ERROR_ARGUMENT, "--most: it has no effect with --bound; leave one out");
    if (status == OFL_OK) status = bench_check_least("--most", most_given, most, tensors_of(&sizes[0].shape)); /* the fewest */
    if (status == OFL_OK) status = bench_report_open("plan", NULL, out, &report);
    if (status == OFL_OK && bound) status = add_bound_rows(report);
    for (size_t i = 0; !bound && status == OFL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        if (tensors_of(&sizes[i].shape) <= most) status = add_row(&sizes[i], report);
    }
    return bench_report_close(report, &program, status);
}

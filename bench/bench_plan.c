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

typedef struct size { const char *label; made_shape shape; uint64_t vram_bytes; } size;

static const size sizes[] = {
    {"10 layers", {10, 4096, 32, 8, 11008, 32000, 0}, 4000000000u},
    {"100 layers", {100, 4096, 32, 8, 11008, 32000, 0}, 20000000000u},
    {"1,000 layers", {1000, 1024, 16, 4, 2816, 32000, 0}, 12000000000u},
    {"1,000 layers of 461 MB", {1000, 4096, 32, 8, 15360, 128256, 0}, 80000000000u},
    {"200 layers, 160 experts", {200, 2048, 16, 4, 512, 32000, 160}, 80000000000u},
};

typedef struct result { /* through a pipe from child to parent */
    uint32_t failed;
    char why[256];
    double tensors, units, model_seconds, plan_seconds;
} result;

static ofl_status plan_once(const ofl_model *model, const ofl_machine *machine, result *out, double *seconds_out)
{
    const ofl_workload workload = {.struct_size = sizeof workload, .context_tokens = 2048};
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
    for (int i = 0; status == OFL_OK && i < RUNS; i++) status = plan_once(model, machine, out, &runs[i]);
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

static uint64_t tensors_of(const made_shape *s) { return 3 + (uint64_t)s->layers * (s->experts > 0 ? 6 + 3 * (uint64_t)s->experts : 9); }

int bench_plan(int argc, char **argv)
{
    uint64_t most = UINT64_MAX;
    bench_output out = {0};
    int exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--most", CLI_COUNT, &most, NULL, "N", NULL, "leave out models of more tensors"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench plan", "[options]", "Times planning by the number of tensors, models made in memory: medians of five, and the peak memory of the whole process.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = bench_report_open("plan", NULL, out, &report);
    for (size_t i = 0; status == OFL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        if (tensors_of(&sizes[i].shape) <= most) status = add_row(&sizes[i], report);
    }
    return bench_report_close(report, &program, status);
}

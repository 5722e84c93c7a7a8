/* accuracy: a step's forecast beside its measurement, over model shapes, memory, links and sequences; and what explains the difference. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy_run.h"
#include "bench.h"

enum { LABEL_BYTES = 96, REPEATS_MOST = 20, POINTS_MOST = 64, KERNELS = 0, PRODUCTS = 1, BOTH = 2 };

static const double residents[] = {0.25, 0.6}, links[] = {1e9, 3e9};
static const uint32_t counts[] = {1, 24};

typedef struct named_point { char label[LABEL_BYTES]; accuracy_point point; } named_point;

typedef struct table {
    named_point points[POINTS_MOST];
    uint32_t count;
    accuracy_result results[POINTS_MOST][REPEATS_MOST];
} table;

typedef struct accuracy {
    uint64_t repeat, threads;
    uint32_t compute, clock;
    int threads_given;
    double seconds;
    const char *only;
    bench_output output;
} accuracy;

/* ---- the points ---- */

static void add_point(table *t, const accuracy *a, const accuracy_shape *s, accuracy_point p)
{
    named_point *at = &t->points[t->count];
    char memory[48], prompts[48] = "";
    p.shape = s->shape;
    if (p.resident >= 1) (void)snprintf(memory, sizeof memory, "all in memory");
    else (void)snprintf(memory, sizeof memory, "%.0f %% in memory, %.0f GB/s", 100 * p.resident, p.link / 1e9);
    if (p.prompts > 0) (void)snprintf(prompts, sizeof prompts, " + %u × %u prompt tokens", p.prompts, p.share);
    (void)snprintf(at->label, sizeof at->label, "%s, %s, %u decoding%s", s->name, memory, p.decoding, prompts);
    if (a->only != NULL && strstr(at->label, a->only) == NULL) return;
    at->point = p;
    t->count++;
}

static void make_points(table *t, const accuracy *a)
{
    for (int s = 0; s < ACCURACY_SHAPES; s++) {
        for (int i = 0; i < 8; i++)
            add_point(t, a, &accuracy_shapes[s],
                      (accuracy_point){.resident = residents[i / 4], .link = links[i / 2 % 2], .decoding = counts[i % 2]});
        add_point(t, a, &accuracy_shapes[s], (accuracy_point){.resident = 1, .link = 3e9, .decoding = 24});
        add_point(t, a, &accuracy_shapes[s], (accuracy_point){.resident = 1, .link = 3e9, .decoding = 8, .prompts = 12, .share = 40});
        add_point(t, a, &accuracy_shapes[s], (accuracy_point){.resident = 0.25, .link = 1e9, .decoding = 8, .prompts = 4, .share = 40});
    }
}

/* ---- runs ---- */

/* Every point once, then all again: what changes from minute to minute shows as spread. */
static ofl_status run_all(const accuracy *a, uint32_t products, table *t)
{
    void *weights = NULL;
    ofl_status status = accuracy_weights_make(&weights);
    const accuracy_settings settings = {
        .weights = weights, .seconds = a->seconds, .products = products, .threads = (uint32_t)a->threads, .clock = a->clock};
    for (uint64_t r = 0; r < a->repeat && status == OFL_OK; r++) {
        for (uint32_t i = 0; i < t->count && status == OFL_OK; i++)
            status = accuracy_run(&t->points[i].point, &settings, &t->results[i][r]);
    }
    free(weights);
    return status;
}

/* ---- rows ---- */

static double percent(double a, double b) { return b > 0 ? 100 * (a / b - 1) : 0; }

typedef struct errors { double median, least, most; } errors;

static errors errors_of(const table *t, uint32_t point, uint64_t repeat)
{
    double values[REPEATS_MOST];
    for (uint64_t r = 0; r < repeat; r++) values[r] = percent(t->results[point][r].step, t->results[point][r].forecast.step_seconds);
    double middle = bench_median(values, repeat);
    return (errors){middle, values[0], values[repeat - 1]};
}

#define MEAN(field) mean_of(t->results[point], a->repeat, offsetof(accuracy_result, field))
static double mean_of(const accuracy_result *results, uint64_t repeat, size_t offset)
{
    double sum = 0;
    for (uint64_t r = 0; r < repeat; r++) sum += *(const double *)((const char *)&results[r] + offset);
    return sum / (double)repeat;
}

static void row(bench_report *report, const accuracy *a, uint32_t products, const table *t, uint32_t point)
{
    errors e = errors_of(t, point, a->repeat);
    const accuracy_point *p = &t->points[point].point;
    double forecast = MEAN(forecast.step_seconds), link = MEAN(forecast.link_seconds), compute = MEAN(forecast.compute_seconds);
    double step = MEAN(step);
    bench_report_row(report, t->points[point].label);
    bench_report_text(report, "compute", products ? "products" : "kernels");
    bench_report_number(report, "tokens", p->decoding + p->prompts * p->share);
    bench_report_text(report, "bound", link > compute ? "link" : "compute");
    bench_report_number(report, "forecast_seconds", forecast);
    bench_report_number(report, "step_seconds", step);
    bench_report_number(report, "error_percent", e.median);
    bench_report_number(report, "least_error_percent", e.least);
    bench_report_number(report, "most_error_percent", e.most);
    bench_report_number(report, "spread_percent", e.most - e.least);
    bench_report_number(report, "over_bound", step / fmax(link, MEAN(compute)));
    bench_report_number(report, "forecast_over_bound", forecast / fmax(link, compute));
    bench_report_number(report, "forecast_link_seconds", link);
    bench_report_number(report, "link_bytes_per_second", MEAN(streamed_bytes) / step);
    bench_report_number(report, "probed_bytes_per_second", MEAN(probed_rate));
    bench_report_number(report, "forecast_compute_seconds", compute);
    bench_report_number(report, "compute_seconds", MEAN(compute));
    bench_report_number(report, "compute_error_percent", percent(MEAN(compute), compute));
    if (products) bench_report_number(report, "attention_seconds", MEAN(attention));
    bench_report_number(report, "forecast_wait_seconds", MEAN(forecast.stall_seconds));
    bench_report_number(report, "wait_seconds", MEAN(wait));
    bench_report_number(report, "gap_seconds", MEAN(gap));
    bench_report_number(report, "units", MEAN(units));
    bench_report_number(report, "streamed_units", MEAN(streamed_units));
    if (products) bench_report_number(report, "busy_share", MEAN(busy));
    if (products) bench_report_number(report, "measuring_busy_share", MEAN(measuring_busy));
    bench_report_number(report, "steps", MEAN(steps));
}

static void summary(bench_report *report, const accuracy *a, uint32_t products, const table *t)
{
    double sizes[POINTS_MOST], spreads[POINTS_MOST], worst = 0, worst_run = 0;
    char label[LABEL_BYTES];
    for (uint32_t i = 0; i < t->count; i++) {
        errors e = errors_of(t, i, a->repeat);
        sizes[i] = fabs(e.median);
        spreads[i] = e.most - e.least;
        worst = fmax(worst, sizes[i]);
        worst_run = fmax(worst_run, fmax(fabs(e.least), fabs(e.most)));
    }
    (void)snprintf(label, sizeof label, "all %u points, %s, %llu times", t->count, products ? "products" : "kernels",
                   (unsigned long long)a->repeat);
    bench_report_row(report, label);
    bench_report_text(report, "compute", products ? "products" : "kernels");
    bench_report_number(report, "median_error_percent", bench_median(sizes, t->count));
    bench_report_number(report, "worst_error_percent", worst);
    bench_report_number(report, "worst_run_error_percent", worst_run);
    bench_report_number(report, "median_spread_percent", bench_median(spreads, t->count));
}

static ofl_status check(const accuracy *a)
{
    if (a->repeat == 0 || a->repeat > REPEATS_MOST) return app_fail(OFL_ERROR_ARGUMENT, "--repeat: give 1 to %d", REPEATS_MOST);
    if (!(a->seconds > 0 && a->seconds <= 600)) return app_fail(OFL_ERROR_ARGUMENT, "--seconds: give a number above 0, up to 600");
    if (a->threads_given && (a->threads == 0 || a->threads > 256)) return app_fail(OFL_ERROR_ARGUMENT, "--threads: give 1 to 256");
    if (a->clock && a->compute != KERNELS)
        return app_fail(OFL_ERROR_ARGUMENT, "--compute: products take real time; with --clock virtual there are only kernels");
    if (a->compute == KERNELS && a->threads_given)
        return app_fail(OFL_ERROR_ARGUMENT, "--threads: has no effect on kernels; give --compute products as well");
    return OFL_OK;
}

/* One kind of compute after the other. */
static ofl_status run_table(const accuracy *a, uint32_t products, bench_report *report)
{
    table *t = calloc(1, sizeof *t);
    if (t == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    make_points(t, a);
    ofl_status status = t->count > 0 ? run_all(a, products, t) : app_fail(OFL_ERROR_ARGUMENT, "--only %s: no point has that in its label", a->only);
    for (uint32_t i = 0; status == OFL_OK && i < t->count; i++) row(report, a, products, t, i);
    if (status == OFL_OK) summary(report, a, products, t);
    free(t);
    return status;
}

int bench_accuracy(int argc, char **argv)
{
    accuracy a = {.repeat = 2, .seconds = 1.5};
    int exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--repeat", CLI_COUNT, &a.repeat, NULL, "N", NULL,
         "run the table so many times, 1 to 20: a point's error is the median (of two: the mean), the spread its noise (default 2)"},
        {"--seconds", CLI_NUMBER, &a.seconds, NULL, "N", NULL, "about how long the steps of a point are measured, up to 600; 8 to 400 steps in any case (default 1.5)"},
        {"--only", CLI_TEXT, &a.only, NULL, "TEXT", NULL, "points with this in their label, such as \"wide, 25 %\" or \"prompt\""},
        {"--compute", CLI_CHOICE, &a.compute, NULL, "WHAT", "kernels|products|both",
         "the simulated device's own kernels, which take a time and no core; or the example driver's real products on this machine's cores, "
         "which share its memory with the link (default kernels)"},
        {"--threads", CLI_COUNT, &a.threads, &a.threads_given, "N", NULL,
         "that products compute on (default: the cores less one for the link)"},
        {"--clock", CLI_CHOICE, &a.clock, NULL, "CLOCK", "wall|virtual", "of the simulated device; on the virtual one there are only kernels (default wall)"},
        BENCH_OUTPUT_OPTIONS(a.output),
    };
    const cli_program program = {"ofload-bench accuracy", "[options]",
                                 "Measures compute and link, plans made-up models, runs their steps on a simulated device, and shows forecast "
                                 "beside measurement.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_OK) status = check(&a);
    if (status == OFL_OK) status = bench_report_open("accuracy", NULL, a.output, &report);
    if (status == OFL_OK) bench_report_simulated(report, "sim:vram=4GB", (int)a.clock);
    if (status == OFL_OK && a.compute != PRODUCTS) status = run_table(&a, 0, report);
    if (status == OFL_OK && a.compute != KERNELS) status = run_table(&a, 1, report);
    return status == OFL_END ? exit_status : bench_report_close(report, &program, status);
}

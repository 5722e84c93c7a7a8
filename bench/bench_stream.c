/* stream: the engine alone, moving weights that nothing is computed with. designs: the same job by simpler ways of streaming, in one run.
 * The compute is time that passes, or, for designs at numbers of tokens on the wall clock, real products. */
#include "bench.h"
#include "stream_job.h"
#include "stream_slots.h"

#include <math.h>
#include <string.h>

enum { MOST_LOADS = 16, TOKENS_MOST = 4096, TOKENS_PAD = 16, TOKENS_KNEE = 0 };

#define TOKENS_LINK 0.7e9 /* 60 tokens stay below the knee on a core with bf16 products */

/* How much is computed: a share of the link's time, or a number of tokens. */
typedef struct load { double share; uint32_t tokens; } load;

typedef struct request {
    streaming job;
    const char *compute, *tokens; /* lists; NULL: not given */
    load loads[MOST_LOADS];
    int load_count, compare, ring_given;
    bench_output output;
} request;

/* ---- rows ---- */

static void row(bench_report *report, const request *q, const char *label, const load *l, const stream_work *work, const measured *m)
{
    const streaming *s = &q->job;
    double link = m->lower_bound_bytes / s->rate;
    if (s->file_rate > 0) link = fmax(link, m->file_bytes / s->file_rate);
    double bound = fmax(link, work->seconds);
    bench_report_row(report, label);
    if (q->tokens == NULL) bench_report_number(report, "compute_share", l->share);
    else {
        bench_report_number(report, "tokens", l->tokens);
        bench_report_text(report, "compute", work->products != NULL ? "real" : "modelled");
        bench_report_number(report, "compute_share", l->share);
    }
    bench_report_text(report, "bound", link >= work->seconds ? "link" : "compute");
    bench_report_number(report, "link_share", m->streamed_bytes / m->step_seconds / s->rate);
    bench_report_number(report, "step_seconds", m->step_seconds);
    bench_report_number(report, "bound_seconds", bound);
    bench_report_number(report, "over_bound", m->step_seconds / bound);
    if (q->tokens != NULL) bench_report_number(report, "tokens_per_second", l->tokens / m->step_seconds);
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

static ofl_status run_load(const request *q, bench_report *report, const load *l, const stream_work *work)
{
    const streaming *s = &q->job;
    measured own = {0};
    ofl_status status = stream_job_run(s, work, &own);
    for (size_t i = 0; q->compare && i < stream_design_count && status == OFL_OK; i++) {
        measured m = {.lower_bound_bytes = own.lower_bound_bytes};
        status = stream_slots_run(s, &stream_designs[i], own.memory_bytes, work, &m.step_seconds, &m.streamed_bytes);
        if (status == OFL_OK) row(report, q, stream_designs[i].label, l, work, &m);
    }
    if (status == OFL_OK) row(report, q, "this engine", l, work, &own);
    if (status == OFL_OK && !q->compare) counters(report, s, &own);
    return status;
}

/* ---- numbers of tokens ---- */

/* Of all weights, as the machine's rates say. */
static double modelled_seconds(const streaming *s, double tokens)
{
    double read = 2 * (double)s->elements / ofl_machine_get(s->machine, OFL_FIGURE_DEVICE_BANDWIDTH, NULL);
    return fmax(read, 2 * (double)s->elements * tokens / ofl_machine_get(s->machine, OFL_FIGURE_DEVICE_FLOPS, NULL));
}

static ofl_status open_products(const streaming *s, uint32_t tokens, stream_work *out)
{
    uint64_t widest = s->matrices[STREAM_MATRICES - 1].columns; /* of the one that leads down */
    double element = 0;
    ofl_status status = products_open(tokens, widest, widest, &out->products);
    if (status == OFL_OK) status = products_measure(out->products, s->device, s->rate, s->matrices, STREAM_MATRICES, &element);
    out->seconds = element * (double)s->elements;
    return status;
}

/* The most tokens whose compute takes no longer than the copies; of products, which take 16 tokens at a time, by the time of 64. */
static ofl_status knee(const streaming *s, int real, double link_seconds, uint32_t *out)
{
    stream_work work = {0};
    ofl_status status = real ? open_products(s, 4 * TOKENS_PAD, &work) : OFL_OK;
    double most = real ? floor(4 * link_seconds / work.seconds) * TOKENS_PAD : floor(link_seconds / (modelled_seconds(s, 1e6) / 1e6));
    products_close(work.products);
    *out = (uint32_t)fmin(fmax(most, real ? TOKENS_PAD : 1), TOKENS_MOST);
    return status;
}

static ofl_status run_tokens(const request *q, bench_report *report, const load *wanted)
{
    const streaming *s = &q->job;
    stream_work work = {0};
    double link = 0;
    load l = *wanted;
    ofl_status status = stream_job_link_seconds(s, &link);
    if (status == OFL_OK && l.tokens == TOKENS_KNEE) status = knee(s, !s->clock, link, &l.tokens);
    if (status == OFL_OK && s->clock) work.seconds = modelled_seconds(s, l.tokens);
    else if (status == OFL_OK) status = open_products(s, l.tokens, &work);
    l.share = work.seconds / link;
    if (status == OFL_OK) status = run_load(q, report, &l, &work);
    products_close(work.products);
    return status;
}

static ofl_status run_all(const request *q, bench_report *report)
{
    ofl_status status = OFL_OK;
    for (int i = 0; i < q->load_count && status == OFL_OK; i++) {
        double link = 0;
        if (q->tokens != NULL) status = run_tokens(q, report, &q->loads[i]);
        else status = stream_job_link_seconds(&q->job, &link);
        if (q->tokens == NULL && status == OFL_OK) status = run_load(q, report, &q->loads[i], &(stream_work){.seconds = q->loads[i].share * link});
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* ---- the two subcommands ---- */

static int read_share(const char *word, load *out)
{
    return cli_parse_number(word, &out->share) == OFL_OK && out->share > 0 && out->share <= 10;
}

static int read_tokens(const char *word, load *out)
{
    uint64_t tokens = TOKENS_KNEE;
    if (strcmp(word, "knee") != 0 && (cli_parse_count(word, &tokens) != OFL_OK || tokens == 0 || tokens > TOKENS_MOST)) return 0;
    out->tokens = (uint32_t)tokens;
    return 1;
}

static ofl_status read_loads(request *q)
{
    char text[128], *rest = text, *word;
    const char *list = q->tokens != NULL ? q->tokens : q->compute, *option = q->tokens != NULL ? "--tokens" : "--compute";
    size_t length = strlen(list);
    if (length >= sizeof text) return app_fail(OFL_ERROR_ARGUMENT, "%s: the list is too long", option);
    memcpy(text, list, length + 1);
    while ((word = strtok_r(rest, ",", &rest)) != NULL) {
        load *l = &q->loads[q->load_count];
        if (q->load_count < MOST_LOADS && (q->tokens != NULL ? read_tokens(word, l) : read_share(word, l))) q->load_count++;
        else if (q->tokens != NULL)
            return app_fail(OFL_ERROR_ARGUMENT, "--tokens %s: give up to %d numbers from 1 to %d, or knee, comma between", list, MOST_LOADS, TOKENS_MOST);
        else return app_fail(OFL_ERROR_ARGUMENT, "--compute %s: give up to %d numbers above 0 and up to 10, comma between", list, MOST_LOADS);
    }
    return q->load_count > 0 ? OFL_OK : app_fail(OFL_ERROR_ARGUMENT, "%s: no number given", option);
}

static ofl_status check_options(request *q, int link_given, int clock_given, int folder_given)
{
    const streaming *s = &q->job;
    if (s->device_spec != NULL && (link_given || clock_given))
        return app_fail(OFL_ERROR_ARGUMENT, "%s: has no effect beside --device; leave it out", link_given ? "--link" : "--clock");
    if (q->tokens != NULL && q->compute != NULL) return app_fail(OFL_ERROR_ARGUMENT, "--compute: has no effect beside --tokens; leave one out");
    if (q->tokens != NULL && s->device_spec != NULL)
        return app_fail(OFL_ERROR_ARGUMENT, "--device: products run on the simulated device of --link and --clock alone; leave it or --tokens out");
    if (s->weights < (UINT64_C(4) << 20)) return app_fail(OFL_ERROR_ARGUMENT, "--weights: give at least 4MiB");
    if (!(s->resident_percent > 0 && s->resident_percent <= 100))
        return app_fail(OFL_ERROR_ARGUMENT, "--resident: give a percentage above 0, up to 100");
    if (s->steps == 0) return app_fail(OFL_ERROR_ARGUMENT, "--steps: give at least 1");
    if (s->part_given && s->part == 0) return app_fail(OFL_ERROR_ARGUMENT, "--part: a part of 0 bytes holds nothing; give more");
    if (q->ring_given && s->ring == 0) return app_fail(OFL_ERROR_ARGUMENT, "--ring: a ring of 0 bytes holds nothing; give more");
    if (folder_given && s->source != FROM_FILE) return app_fail(OFL_ERROR_ARGUMENT, "--folder: has no effect without --from file");
    if (q->compute == NULL) q->compute = "0.1,0.5,0.8,0.95";
    if (q->tokens != NULL && !link_given) q->job.link = TOKENS_LINK;
    return read_loads(q);
}

static int streaming_main(int argc, char **argv, const char *name, const char *title, const char *summary, int compare)
{
    request q = {.job = {.link = 1e9, .resident_percent = 45, .weights = UINT64_C(256) << 20, .steps = 10, .folder = "."}, .compare = compare};
    streaming *s = &q.job;
    int link_given = 0, clock_given = 0, folder_given = 0, exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--device", CLI_TEXT, &s->device_spec, NULL, "SPEC", NULL,
         "device to run on (default: a simulated one made from --link and --clock)"},
        {"--link", CLI_RATE, &s->link, &link_given, "RATE", NULL, compare ? "rate of the simulated link (default 1GB/s; with --tokens 700MB/s)"
                                                                     : "rate of the simulated link (default 1GB/s)"},
        {"--clock", CLI_CHOICE, &s->clock, &clock_given, "CLOCK", "wall|virtual", "of the simulated device (default wall)"},
        {"--weights", CLI_SIZE, &s->weights, NULL, "SIZE", NULL, "weights of the made-up model (default 256MiB)"},
        {"--resident", CLI_NUMBER, &s->resident_percent, NULL, "PERCENT", NULL, "device memory as a share of the weights (default 45)"},
        {"--part", CLI_SIZE, &s->part, &s->part_given, "SIZE", NULL, "row parts of at most this (default: chosen by the planner)"},
        {"--ring", CLI_SIZE, &s->ring, &q.ring_given, "SIZE", NULL, "staging ring (default: chosen by the planner)"},
        {"--from", CLI_CHOICE, &s->source, NULL, "TIER", "pinned|pageable|file",
         "where streamed weights come from; file: of a file three times the host memory (default pinned)"},
        {"--folder", CLI_TEXT, &s->folder, &folder_given, "FOLDER", NULL, "for the file of --from file, deleted afterwards (default .)"},
        {"--steps", CLI_COUNT, &s->steps, NULL, "N", NULL, "steps measured, after two that are not (default 10)"},
        BENCH_OUTPUT_OPTIONS(q.output),
        {"--compute", CLI_TEXT, &q.compute, NULL, "LIST", NULL, "compute time as shares of the link time (default 0.1,0.5,0.8,0.95)"},
        {"--tokens", CLI_TEXT, &q.tokens, NULL, "LIST", NULL,
         "instead: numbers of tokens a step, e.g. 1,60,knee; real bf16 products on the wall clock, modelled ones on the virtual clock"},
    };
    const size_t option_count = sizeof options / sizeof options[0] - (compare ? 0 : 1);
    const cli_program program = {title, "[options]", summary, NULL, options, option_count};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = check_options(&q, link_given, clock_given, folder_given);
    if (status == OFL_OK) status = stream_job_open(s);
    if (status == OFL_OK) status = bench_report_open(name, s->device, q.output, &report);
    if (status == OFL_OK) status = run_all(&q, report);
    exit_status = bench_report_close(report, &program, status);
    stream_job_close(s);
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

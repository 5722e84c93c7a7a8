/* The ways that are planned like any other job, and what all ways share. */
#include "plan/ways.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app_error.h"

#define WHOLE_BYTES 0x1p50 /* device memory for any model */
#define CONTEXT_LEAST 256u /* below it a shorter context is no way out */
#define CONTEXT_STEP 16u
#define HARDLY 1.01
#define HELPS 1.05 /* another count of sequences is shown when it is better by this */

void ways_free(ways *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->rows[i].command);
        cJSON_Delete(list->rows[i].details);
    }
    list->count = 0;
}

way *ways_add(ways *list, const char *name, const char *title)
{
    way *w = &list->rows[list->count < WAYS_MOST ? list->count++ : WAYS_MOST - 1];
    *w = (way){.fits = true, .kept = true};
    (void)snprintf(w->name, sizeof w->name, "%s", name);
    (void)snprintf(w->title, sizeof w->title, "%s", title);
    return w;
}

ofl_status ways_read(const ofl_plan *plan, planned *out)
{
    planned p = {.fits = true,
                 .budget.struct_size = sizeof p.budget,
                 .settings.struct_size = sizeof p.settings,
                 .forecast.struct_size = sizeof p.forecast};
    ofl_status status = ofl_plan_budget_get(plan, &p.budget);
    if (status == OFL_OK) status = ofl_plan_settings_get(plan, &p.settings);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &p.forecast);
    if (status != OFL_OK) return app_forward(status);
    *out = p;
    return OFL_OK;
}

ofl_status ways_plan(const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload, planned *out)
{
    ofl_plan *plan = NULL;
    *out = (planned){0};
    ofl_status status = ofl_plan_make(model, machine, workload, &plan);
    if (status == OFL_ERROR_NO_FIT) return OFL_OK;
    status = status == OFL_OK ? ways_read(plan, out) : app_forward(status);
    ofl_plan_destroy(plan);
    return status;
}

ofl_status ways_machine_with(const ofl_machine *machine, ofl_figure figure, double value, ofl_machine **out)
{
    char *json = NULL;
    *out = NULL;
    ofl_status status = ofl_machine_to_json(machine, &json);
    if (status == OFL_OK) status = ofl_machine_from_json(json, strlen(json), out);
    if (status == OFL_OK) status = ofl_machine_set(*out, figure, value, OFL_SOURCE_GIVEN);
    ofl_string_free(json);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

double ways_rate(const ways_job *job, ofl_figure figure, ofl_source *source_out)
{
    const compare_options *o = job->options;
    const struct {
        int given;
        ofl_figure figure;
        double value;
    } by_hand[] = {{o->given.peer_link, OFL_FIGURE_PEER, o->peer_link},
                   {o->given.host_bandwidth, OFL_FIGURE_HOST_BANDWIDTH, o->host_bandwidth},
                   {o->given.host_flops, OFL_FIGURE_HOST_FLOPS, o->host_flops}};
    for (size_t i = 0; i < sizeof by_hand / sizeof by_hand[0]; i++) {
        if (!by_hand[i].given || by_hand[i].figure != figure) continue;
        *source_out = OFL_SOURCE_GIVEN;
        return by_hand[i].value;
    }
    if (figure == OFL_FIGURE_PEER && job->peer_measured > 0) {
        *source_out = OFL_SOURCE_MEASURED;
        return job->peer_measured;
    }
    return ofl_machine_get(job->given.machine, figure, source_out);
}

ofl_status ways_compute_seconds(const ways_job *job, uint32_t sequences, double *out)
{
    ofl_step_shape shape = {.struct_size = sizeof shape};
    ofl_step_estimate step = {.struct_size = sizeof step};
    ofl_status status = ofl_plan_decode_step(job->whole, sequences, &shape);
    if (status == OFL_OK) status = ofl_plan_estimate_step(job->whole, &shape, &step);
    *out = step.compute_seconds;
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

ofl_status ways_queue(const ways_job *job, ways_rate_of rate_of, const void *context, way_rate *best)
{
    uint64_t queue = job->given.workload->queue_length, most = queue != 0 && queue < WAYS_QUEUE_MOST ? queue : WAYS_QUEUE_MOST;
    ofl_status status = OFL_OK;
    bool fits = true;
    for (uint32_t n = 1, last = 0; status == OFL_OK && last < most; last = n, n = n * 2 < most ? n * 2 : (uint32_t)most) {
        way_rate rate = {0};
        status = rate_of(context, n, &fits, &rate);
        if (!fits) return status;
        if (rate.tokens_per_second > 1.01 * best->tokens_per_second) *best = rate;
    }
    return status;
}

ofl_status ways_activations(const ways_job *job, uint32_t sequences, uint64_t *hidden_out, uint64_t *logits_out)
{
    const ofl_plan_settings *s = &job->base.settings;
    uint64_t workspace = 0, cap = job->given.workload->tokens_per_step_cap;
    uint64_t tokens = cap != 0 ? cap : (uint64_t)sequences + s->prefill_chunk_tokens;
    return app_forward(
        ofl_activation_bytes(&job->shape, s->compute_type, tokens, sequences, 0, hidden_out, logits_out, &workspace));
}

double ways_hidden_bytes(const ways_job *job)
{
    return (double)job->shape.hidden_size * (job->base.settings.compute_type == OFL_COMPUTE_F32 ? 4 : 2);
}

static void note(const ways_job *job, way *w, ofl_figure figure) { (void)ways_rate(job, figure, &w->sources[figure]); }

void ways_note_compute(const ways_job *job, way *w)
{
    note(job, w, OFL_FIGURE_DEVICE_BANDWIDTH);
    note(job, w, OFL_FIGURE_DEVICE_FLOPS);
}

double ways_error(double seconds_a, double percent_a, double seconds_b, double percent_b)
{
    double all = seconds_a + seconds_b;
    return all > 0 ? (seconds_a * percent_a + seconds_b * percent_b) / all : fmax(percent_a, percent_b);
}

static way_rate rate_of(const planned *p)
{
    return (way_rate){p->forecast.sequences, p->forecast.step.step_seconds, p->forecast.tokens_per_second};
}

ofl_workload ways_for_queue(const ofl_workload *workload)
{
    ofl_workload w = *workload;
    if (w.objective != OFL_THROUGHPUT) w.queue_length = 0;
    w.objective = OFL_THROUGHPUT;
    w.sequences = 0;
    return w;
}

static void take_plan(const ways_job *job, const planned *p, way *w)
{
    const ofl_budget *b = &p->budget;
    w->job = rate_of(p);
    w->error_percent = p->forecast.error_band_percent;
    w->device_bytes = b->total_bytes - b->headroom_bytes;
    w->host_bytes = b->pinned_bytes + b->pageable_bytes + b->file_bytes;
    ways_note_compute(job, w);
    if (b->stream_bytes_per_step == 0) return;
    note(job, w, OFL_FIGURE_LINK);
    note(job, w, OFL_FIGURE_COPY_START);
    if (b->pageable_bytes > 0) note(job, w, OFL_FIGURE_LINK_PAGEABLE);
    if (b->file_bytes > 0) note(job, w, OFL_FIGURE_FILE);
}

ofl_status ways_fill(way *out, const ways_job *job, const ofl_model *model, const ofl_workload *workload)
{
    planned p, queue;
    ofl_workload longer = ways_for_queue(workload);
    ofl_status status = ways_plan(model, job->given.machine, workload, &p);
    if (status != OFL_OK) return status;
    if (!p.fits) {
        out->fits = false;
        (void)snprintf(out->why, sizeof out->why, "%s", ofl_error_message());
        return OFL_OK;
    }
    take_plan(job, &p, out);
    status = ways_plan(model, job->given.machine, &longer, &queue);
    if (status == OFL_OK && queue.fits) out->queue = rate_of(&queue);
    return status;
}

static void say_streamed(char *words, size_t room, const planned *p)
{
    char bytes[32];
    if (p->budget.stream_bytes_per_step == 0) (void)snprintf(words, room, "nothing: all weights are on the device");
    else (void)snprintf(words, room, "copies %s over the link in every step", cli_show_bytes(bytes, p->budget.stream_bytes_per_step, 0));
}

static ofl_status add_offload(ways *list, const ways_job *job)
{
    way *w = ways_add(list, "offload", job->base.budget.stream_bytes_per_step > 0 ? "offload (this plan)" : "whole on device (this plan)");
    ofl_status status = ways_fill(w, job, job->given.model, job->given.workload);
    (void)snprintf(w->needs, sizeof w->needs, "nothing more");
    say_streamed(w->costs, sizeof w->costs, &job->base);
    w->command = command_with(job->options, NULL, NULL, NULL, NULL);
    return status;
}

/* The layers were forced: what the planner would have chosen. */
static ofl_status add_unforced(ways *list, const ways_job *job)
{
    ofl_workload w = *job->given.workload;
    if (!w.force_layers) return OFL_OK;
    w.force_layers = w.force_resident_layers = 0;
    way *row = ways_add(list, "offload-chosen", "offload, layout chosen");
    ofl_status status = ways_fill(row, job, job->given.model, &w);
    (void)snprintf(row->needs, sizeof row->needs, "leave --resident-layers out");
    (void)snprintf(row->costs, sizeof row->costs, "nothing");
    row->command = command_with(job->options, NULL, NULL, "--resident-layers", NULL);
    return status;
}

/* All at once, layout and sequences chosen for tokens/s: what a queue gets that nobody waits for. */
static ofl_status add_throughput(ways *list, const ways_job *job)
{
    const ofl_workload *given = job->given.workload;
    planned p;
    ofl_workload w = ways_for_queue(given);
    bool latency = given->objective != OFL_THROUGHPUT;
    w.force_layers = w.force_resident_layers = 0;
    ofl_status status = ways_plan(job->given.model, job->given.machine, &w, &p);
    if (status != OFL_OK || !p.fits) return status;
    if (p.forecast.tokens_per_second < HELPS * job->base.forecast.tokens_per_second) return OFL_OK;
    way *row = ways_add(list, latency ? "throughput" : "sequences", latency ? "offload for throughput" : "sequences chosen");
    take_plan(job, &p, row);
    row->queue = row->job;
    char each[32];
    (void)snprintf(row->needs, sizeof row->needs, "%u requests at once", p.forecast.sequences);
    (void)snprintf(row->costs, sizeof row->costs, "each sequence waits %s for its next token",
                   cli_show_seconds(each, p.forecast.step.step_seconds));
    row->command = latency ? command_with(job->options, "--objective", "throughput", "--sequences", "--resident-layers")
                           : command_with(job->options, "--sequences", "auto", "--resident-layers", NULL);
    return OFL_OK;
}

/* Where nobody asked for throughput, fewer at once may be faster for each. */
static ofl_status add_single(ways *list, const ways_job *job)
{
    ofl_workload w = *job->given.workload;
    planned p;
    if (w.objective == OFL_THROUGHPUT || job->base.forecast.sequences == 1) return OFL_OK;
    w.sequences = 1; /* the layout still forced, if it is */
    ofl_status status = ways_plan(job->given.model, job->given.machine, &w, &p);
    if (status != OFL_OK || !p.fits || p.forecast.step.step_seconds * HELPS > job->base.forecast.step.step_seconds) return status;
    way *row = ways_add(list, "sequences", "one sequence at once");
    take_plan(job, &p, row);
    (void)snprintf(row->needs, sizeof row->needs, "nothing more");
    (void)snprintf(row->costs, sizeof row->costs, "the others wait until it is done");
    row->command = command_with(job->options, "--sequences", "1", NULL, NULL);
    return OFL_OK;
}

static ofl_status streamed_at(const ways_job *job, uint64_t context, bool *streamed)
{
    planned p;
    ofl_workload w = *job->given.workload;
    w.context_tokens = context;
    w.force_layers = w.force_resident_layers = 0;
    ofl_status status = ways_plan(job->given.model, job->given.machine, &w, &p);
    *streamed = !p.fits || p.budget.stream_bytes_per_step > 0;
    return status;
}

/* The largest context at which nothing is streamed; 0: none from the least up. */
static ofl_status whole_context(const ways_job *job, uint64_t *out)
{
    uint64_t low = CONTEXT_LEAST / CONTEXT_STEP, high = job->base.settings.context_tokens / CONTEXT_STEP;
    bool streamed = true;
    ofl_status status = high > low ? streamed_at(job, CONTEXT_LEAST, &streamed) : OFL_OK;
    *out = 0;
    if (status != OFL_OK || streamed) return status;
    while (status == OFL_OK && low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        status = streamed_at(job, middle * CONTEXT_STEP, &streamed);
        if (streamed) high = middle;
        else low = middle;
    }
    *out = low * CONTEXT_STEP;
    return status;
}

static ofl_status add_context(ways *list, const ways_job *job)
{
    char number[32], title[48];
    uint64_t now = job->base.settings.context_tokens, context = 0;
    bool chosen = job->given.workload->objective == OFL_THROUGHPUT && job->given.workload->sequences == 0;
    ofl_status status = chosen ? OFL_OK : whole_context(job, &context); /* sequences that are chosen take what the context leaves */
    if (status != OFL_OK || (context == 0 && now < 2 * CONTEXT_LEAST)) return status;
    bool whole = context != 0;
    if (!whole) context = now / 2 / CONTEXT_STEP * CONTEXT_STEP;
    (void)snprintf(title, sizeof title, "context of %s%s", cli_show_count(number, context), whole ? "" : " (half)");
    way *w = ways_add(list, "context", title);
    ofl_workload smaller = *job->given.workload;
    smaller.context_tokens = context;
    smaller.force_layers = smaller.force_resident_layers = 0;
    status = ways_fill(w, job, job->given.model, &smaller);
    (void)snprintf(w->needs, sizeof w->needs, "prompts that short");
    (void)snprintf(w->costs, sizeof w->costs, "prompt and answer together at most %s tokens%s", number,
                   whole ? "; the most at which nothing is streamed" : "");
    (void)snprintf(title, sizeof title, "%" PRIu64, context);
    w->command = command_with(job->options, "--context", title, "--resident-layers", NULL);
    return status;
}

static ofl_status add_kv(ways *list, const ways_job *job)
{
    ofl_workload w = *job->given.workload;
    uint64_t now = 0, then = 0;
    char a[32], b[32];
    ofl_status status = ofl_model_kv_bytes_per_token(job->given.model, w.kv_type, &now);
    w.kv_type = OFL_KV_Q8_0;
    w.force_layers = w.force_resident_layers = 0;
    if (status == OFL_OK) status = ofl_model_kv_bytes_per_token(job->given.model, w.kv_type, &then);
    if (status != OFL_OK) return app_forward(status);
    if (then >= now) return OFL_OK;
    way *row = ways_add(list, "kv", "8-bit KV (q8_0)");
    status = ways_fill(row, job, job->given.model, &w);
    row->kept = false;
    (void)snprintf(row->needs, sizeof row->needs, "nothing more");
    (void)snprintf(row->costs, sizeof row->costs,
                   "keys and values are rounded: answers differ; measure it (KV of a token %s instead of %s)", cli_show_bytes(a, then, 0),
                   cli_show_bytes(b, now, 0));
    row->command = command_with(job->options, "--kv-type", "q8_0", "--resident-layers", NULL);
    return status;
}

/* Latency: the speed of each sequence. Throughput: tokens/s of all. */
static double speed(const ways_job *job, double step_seconds, double tokens_per_second)
{
    return job->given.workload->objective == OFL_THROUGHPUT ? tokens_per_second : 1 / step_seconds;
}

/* What is hardly better than the plan stands below it; then what is not there; then what has no forecast. */
static double merit(const ways_job *job, const way *w)
{
    const ofl_forecast *f = &job->base.forecast;
    double plan = speed(job, f->step.step_seconds, f->tokens_per_second), own = speed(job, w->job.step_seconds, w->job.tokens_per_second);
    if (w->job.tokens_per_second <= 0) return -2;
    if (!w->fits) return -1 / (1 + own);
    return own > plan && own < HARDLY * plan ? plan : own;
}

static void sort(const ways_job *job, ways *list)
{
    for (uint32_t i = 1; i < list->count; i++) {
        way w = list->rows[i];
        uint32_t at = i;
        for (; at > 0 && merit(job, &list->rows[at - 1]) < merit(job, &w); at--) list->rows[at] = list->rows[at - 1];
        list->rows[at] = w;
    }
}

static ofl_status open_job(const compare_job *given, const compare_options *options, ways_job *out)
{
    ways_job job = {.given = *given, .options = options, .shape.struct_size = sizeof job.shape};
    ofl_machine *roomy = NULL;
    ofl_workload w = *given->workload;
    ofl_status status = ofl_model_shape_get(given->model, &job.shape);
    status = status == OFL_OK ? ways_read(given->plan, &job.base) : app_forward(status);
    if (status == OFL_OK) status = ways_machine_with(given->machine, OFL_FIGURE_VRAM, WHOLE_BYTES, &roomy);
    w.sequences = job.base.settings.sequences;
    w.force_layers = w.force_resident_layers = 0;
    if (status == OFL_OK && ofl_plan_make(given->model, roomy, &w, &job.whole) != OFL_OK)
        status = app_forward(ofl_diagnostic_get()->status);
    if (status == OFL_OK) status = ways_read(job.whole, &job.all);
    ofl_machine_destroy(roomy);
    if (status == OFL_OK) *out = job;
    else ofl_plan_destroy(job.whole);
    return status;
}

ofl_status ways_collect(const compare_job *given, const compare_options *options, ways *list)
{
    ofl_status (*const always[])(ways *, const ways_job *) = {add_offload, add_unforced, add_throughput, add_single};
    ofl_status (*const beside_streaming[])(ways *, const ways_job *) = {ways_add_quantised, ways_add_split, ways_add_host, add_context,
                                                                        add_kv};
    ways_job job;
    ofl_status status = open_job(given, options, &job);
    if (status != OFL_OK) return status;
    for (size_t i = 0; status == OFL_OK && i < sizeof always / sizeof always[0]; i++) status = always[i](list, &job);
    bool streams = job.base.budget.stream_bytes_per_step > 0;
    if (streams) ways_find_peers(&job);
    for (size_t i = 0; status == OFL_OK && streams && i < sizeof beside_streaming / sizeof beside_streaming[0]; i++)
        status = beside_streaming[i](list, &job);
    if (status == OFL_OK) sort(&job, list);
    ofl_plan_destroy(job.whole);
    return status;
}

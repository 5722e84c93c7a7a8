#include "batch/run.h"

#include <stdio.h>
#include <time.h>

#include "batch/job.h"
#include "batch/report.h"
#include "batch/resume.h"
#include "batch/state.h"
#include "common/cli.h"
#include "common/target.h"
#include "common/whole_file.h"

typedef struct run {
    const run_settings *settings;
    const backend *model;
    input in;
    output out;
    char *output_path, *state_path;
    batch_state state;
    record_maker maker;
    char fingerprint[80];
    progress progress;
    job job;
    report report;
    uint64_t failed_before;
} run;

/* What a run writes must be none of the files that it reads. */
static ofl_status refuse_used(const run_settings *s, const char *option, const char *path)
{
    ofl_status status = target_refuse(option, path, s->input, "the input file itself");
    if (status == OFL_OK) status = target_refuse_weights(option, path, s->model);
    if (status == OFL_OK) status = target_refuse(option, path, s->plan, "the plan in use");
    return status == OFL_OK ? target_refuse(option, path, s->machine, "the machine file in use") : status;
}

static ofl_status make_paths(run *r)
{
    const run_settings *s = r->settings;
    r->output_path = shard_path(s->output, s->shard);
    if (r->output_path == NULL || asprintf(&r->state_path, "%s.state.json", r->output_path) < 0) {
        r->state_path = NULL;
        return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    }
    ofl_status status = refuse_used(s, "--output", r->output_path);
    if (status == OFL_OK) status = refuse_used(s, "--output: the state file", r->state_path);
    if (status == OFL_OK) status = refuse_used(s, "--report", s->report);
    if (status == OFL_OK) status = target_refuse("--report", s->report, r->output_path, "the output");
    if (status == OFL_OK) status = target_refuse("--report", s->report, r->state_path, "the output's state file");
    if (status == OFL_OK && s->report != NULL) status = target_refuse("--output", r->output_path, s->report, "the report");
    if (status == OFL_OK && s->report != NULL) status = whole_file_check(s->report);
    return status;
}

/* Every N-th request, whatever its length: shards come out alike without a look at the tokens. */
static void take_shard(run *r)
{
    for (size_t i = 0; i < r->in.count; i++) {
        if (i % r->settings->shard.count != r->settings->shard.index) r->in.entries[i].state = ENTRY_ELSEWHERE;
        else r->job.totals.requests++;
    }
}

static void fill_state(run *r)
{
    char(*values)[STATE_VALUE_BYTES] = r->state.values;
    const backend *m = r->model;
    (void)hash128_hex(values[STATE_INPUT], r->in.hash);
    (void)snprintf(values[STATE_MODEL], STATE_VALUE_BYTES, "%s", m->model_identity);
    (void)snprintf(values[STATE_WEIGHTS], STATE_VALUE_BYTES, "%s", m->weights_hash);
    (void)snprintf(values[STATE_COMPUTE], STATE_VALUE_BYTES, "%s", m->compute);
    (void)snprintf(values[STATE_KV_TYPE], STATE_VALUE_BYTES, "%s", m->kv_type);
    (void)snprintf(values[STATE_MAX_TOKENS], STATE_VALUE_BYTES, "%u", r->settings->max_tokens_default);
    (void)snprintf(values[STATE_TEMPLATE], STATE_VALUE_BYTES, "%s", m->chat_template);
    (void)snprintf(values[STATE_CONTEXT], STATE_VALUE_BYTES, m->context_given != 0 ? "%llu" : "by the longest request", (unsigned long long)m->context_given);
    (void)snprintf(values[STATE_SHARD], STATE_VALUE_BYTES, "%u/%u", r->settings->shard.index, r->settings->shard.count);
    r->state.total = r->job.totals.requests;
}

/* The time of the answers; a fixed one makes two runs comparable byte by byte. */
static int64_t created_now(void)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    return fixed != NULL && fixed[0] != '\0' ? strtoll(fixed, NULL, 10) : (int64_t)time(NULL);
}

static void fill_maker(run *r)
{
    (void)snprintf(r->fingerprint, sizeof r->fingerprint, "ofl_%.12s_%.16s_%.16s", r->model->weights_hash, r->model->compute, r->model->kv_type);
    r->maker = (record_maker){r->in.hash, r->model->model_name, r->fingerprint, created_now(), {r->model->bytes, r->model->context}};
}

/* What an earlier run left, if it was the same job. */
static ofl_status take_up(run *r)
{
    batch_state before;
    resume_found found;
    ofl_status status = state_read(r->state_path, &before);
    if (status == OFL_END)
        return app_fail(
            OFL_ERROR_MISMATCH,
            "%s: is there already, without a state file that says what it came from; name another output, or give --overwrite to start anew",
            r->output_path);
    if (status == OFL_OK) status = state_compare(&before, &r->state);
    if (status == OFL_OK) status = resume_read(&r->in, &r->out, &found);
    if (status != OFL_OK) return status;
    if (r->settings->retry_errors && found.failed > 0 && !r->out.read_only) {
        status = resume_drop_failed(&r->in, &r->out);
        found.failed = 0;
    }
    r->job.totals.skipped = found.answered + found.failed;
    r->failed_before = found.failed;
    if (!r->settings->quiet && r->job.totals.skipped > 0)
        (void)fprintf(stderr, "%s: %llu requests are done already%s; going on with the rest\n", r->output_path, (unsigned long long)r->job.totals.skipped,
                      found.repaired ? " (a torn last line was repaired)" : "");
    return status;
}

static ofl_status open_output(run *r)
{
    ofl_status status = r->settings->dry_run ? output_open_read(r->output_path, &r->out) : output_open(r->output_path, &r->out);
    if (status == OFL_END) return OFL_OK;
    if (status == OFL_OK && r->out.bytes > 0 && !r->settings->overwrite) status = take_up(r);
    return status;
}

/* What is left: waiting requests that can be answered, choices counted, and lines that become errors. */
static void count_waiting(const run *r, backend_load *load, uint64_t *errors_out)
{
    uint64_t greedy = 0;
    double weight = 0, weighted = 0;
    *errors_out = 0;
    for (size_t i = 0; i < r->in.count; i++) {
        const input_entry *entry = &r->in.entries[i];
        if (entry->state != ENTRY_WAITING) continue;
        if (entry->prompt_tokens == 0) ++*errors_out;
        else {
            load->requests += entry->choices;
            greedy += entry->greedy ? entry->choices : 0;
            double stay = (double)entry->choices * entry->max_tokens;
            weight += stay;
            weighted += stay * ((double)entry->prompt_tokens + entry->max_tokens);
        }
    }
    load->typical_tokens = weight > 0 ? (uint64_t)(weighted / weight) + 1 : 0;
    load->greedy_share = load->requests > 0 ? (double)greedy / (double)load->requests : 1;
}

static ofl_status write_report(run *r)
{
    const run_settings *s = r->settings;
    r->report.totals = r->job.totals;
    r->report.health = r->job.health;
    if (r->report.figures.device == NULL) r->report.figures.device = "";
    ofl_status status = OFL_OK;
    char *json = s->report != NULL || s->json ? report_json(&r->report) : NULL;
    if ((s->report != NULL || s->json) && json == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "report: out of host memory");
    if (s->report != NULL) status = whole_file_write(s->report, json, strlen(json));
    if (s->json) (void)fputs(json, stdout);
    else if (!s->quiet && s->dry_run) report_print_forecast(&r->report);
    else if (!s->quiet) report_print(&r->report);
    free(json);
    if (fflush(stdout) != 0 && status == OFL_OK) status = app_fail(OFL_ERROR_IO, "standard output: writing the summary failed");
    return status;
}

static ofl_status write_state(run *r, const char *status)
{
    const job_totals *t = &r->job.totals;
    r->state.status = status;
    r->state.failed = r->failed_before + t->failed;
    r->state.completed = t->skipped - r->failed_before + t->answered;
    return state_write(r->state_path, &r->state);
}

/* Without --context the longest request sets the context: it may be what does not fit. */
static ofl_status name_longest(const run *r, const backend_load *load, ofl_status status)
{
    char why[800];
    if (status != OFL_ERROR_NO_FIT || r->model->context_given != 0) return status;
    for (size_t i = 0; i < r->in.count; i++) {
        const input_entry *entry = &r->in.entries[i];
        if (entry->prompt_tokens == 0 || (uint64_t)entry->prompt_tokens + entry->max_tokens != load->context_tokens) continue;
        (void)snprintf(why, sizeof why, "%s", app_error());
        return app_fail(status, "%s (the longest request, line %llu, needs a context of %llu tokens; with --context N longer ones become error lines)", why,
                        (unsigned long long)entry->line, (unsigned long long)load->context_tokens);
    }
    return status;
}

/* What plan and front make of the queue. */
static ofl_status look_ahead(run *r)
{
    ofl_forecast planned = {.struct_size = sizeof planned};
    r->report.forecast.struct_size = sizeof r->report.forecast;
    ofl_status status = ofl_front_forecast_get(r->job.front, &r->report.forecast);
    if (status == OFL_OK) status = ofl_plan_forecast_get(r->job.plan, &planned);
    if (status != OFL_OK) return app_forward(status);
    r->report.error_band_percent = r->job.health.band = planned.error_band_percent;
    r->report.load_forecast_seconds = planned.load_seconds;
    return OFL_OK;
}

/* The plan, and its forecast before anything runs. */
static ofl_status forecast(run *r, const backend_load *load)
{
    ofl_status status = name_longest(r, load, r->model->plan(r->model->context, load, &r->job.plan));
    r->job.load = *load;
    if (status == OFL_OK) status = job_begin(&r->job);
    if (status == OFL_OK) status = look_ahead(r);
    if (status != OFL_OK) return status;
    r->model->figures(r->model->context, &r->report.figures);
    r->job.health.simulated = r->report.figures.simulated;
    return OFL_OK;
}

/* Nothing is under way that a signal must not cut short; a probe or a load over a slow link may take very long. */
static void may_leave(const run *r, bool may)
{
    if (r->settings->may_leave != NULL) r->settings->may_leave(may, r->out.created && r->out.bytes == 0 ? r->output_path : NULL);
}

static ofl_status load(run *r)
{
    double began = r->model->now(r->model->context);
    may_leave(r, true);
    ofl_status status = job_load(&r->job);
    may_leave(r, false);
    r->report.load_seconds = r->model->now(r->model->context) - began;
    if (status == OFL_OK && r->job.totals.down_count > 0) status = look_ahead(r); /* by the plan that there is now */
    progress_restart(&r->progress, r->model->now(r->model->context));
    return status;
}

/* Loads, and only then changes the output; OFL_END: stopped. What was written is synced whatever happens. */
static ofl_status work(run *r, bool any_requests)
{
    if (any_requests) progress_begin(&r->progress, r->settings->progress, r->settings->quiet, r->model->now(r->model->context));
    ofl_status status = any_requests ? load(r) : OFL_OK;
    if (status == OFL_OK && r->settings->overwrite) status = output_cut(&r->out, 0);
    if (status == OFL_OK) status = write_state(r, "in_progress");
    if (status == OFL_OK) status = job_write_errors(&r->job, r->settings->max_tokens_default);
    if (status == OFL_OK && any_requests) {
        status = job_run(&r->job);
        progress_end(&r->progress);
        r->model->figures(r->model->context, &r->report.figures);
    }
    char why[1000];
    (void)snprintf(why, sizeof why, "%s", app_error());
    ofl_status synced = output_sync(&r->out, true);
    if (status != OFL_OK && status != OFL_END) return app_fail(status, "%s", why); /* the first failure counts */
    return synced == OFL_OK ? status : synced;
}

/* Stopped or done: order, state, report. Stopped before anything was written: all is left as it was. */
static ofl_status conclude(run *r, bool stopped, int *exit_out)
{
    bool touched = r->state.status != NULL;
    r->report.status = stopped ? "cancelled" : "completed";
    ofl_status status = r->settings->ordered && !stopped ? resume_order(&r->in, &r->out) : OFL_OK;
    if (status == OFL_OK && touched) status = write_state(r, r->report.status);
    if (status == OFL_OK && touched) status = output_close(&r->out);
    if (status == OFL_OK) status = write_report(r);
    *exit_out = stopped ? r->settings->stop() : r->state.failed > 0 ? EXIT_ERROR_LINES : EXIT_DONE;
    return status;
}

static ofl_status run_all(run *r, int *exit_out)
{
    backend_load load = {0};
    uint64_t errors;
    ofl_status status = make_paths(r);
    if (status != OFL_OK) return status;
    take_shard(r);
    fill_state(r);
    fill_maker(r);
    status = open_output(r);
    if (status == OFL_OK) status = job_measure(r->model, &r->in, r->settings->max_tokens_default, r->settings->stop, &load.context_tokens);
    if (status == OFL_END) *exit_out = r->settings->stop();
    if (status != OFL_OK) return status == OFL_END ? OFL_OK : status;
    count_waiting(r, &load, &errors);
    r->report.model = r->model->model_name;
    r->report.output = r->output_path;
    may_leave(r, true);
    if (load.requests > 0) status = forecast(r, &load);
    may_leave(r, false);
    if (status != OFL_OK) return status;
    if (r->settings->dry_run) {
        r->report.status = "dry_run";
        *exit_out = EXIT_DONE;
        return write_report(r);
    }
    status = work(r, load.requests > 0);
    if (status != OFL_OK && status != OFL_END) return status;
    return conclude(r, status == OFL_END, exit_out);
}

ofl_status batch_run(const run_settings *settings, const backend *model, int *exit_out)
{
    run r = {.settings = settings, .model = model, .in = {.fd = -1}, .out = {.fd = -1}};
    ofl_status status = input_open(settings->input, &r.in);
    r.job.model = model;
    r.job.in = &r.in;
    r.job.out = &r.out;
    r.job.maker = &r.maker;
    r.job.progress = &r.progress;
    r.job.stop = settings->stop;
    if (status == OFL_OK) status = run_all(&r, exit_out);
    if (r.job.plan != NULL) job_end(&r.job);
    else buffer_free(&r.job.record);
    if (r.state.status == NULL) output_leave_no_trace(&r.out);
    output_drop(&r.out);
    input_close(&r.in);
    free(r.output_path);
    free(r.state_path);
    return status;
}

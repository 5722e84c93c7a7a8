#include "batch/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "common/cli.h"
#include "common/json_text.h"

double report_error_percent(const report *r)
{
    if (!(r->totals.estimated_seconds > 0)) return 0;
    return 100 * (r->totals.seconds - r->totals.estimated_seconds) / r->totals.estimated_seconds;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* Every value goes through here; the first failure stays. */
typedef struct writer { cJSON *at; bool ok; } writer;
static void number(writer *w, const char *key, double value) { w->ok = w->ok && cJSON_AddNumberToObject(w->at, key, isfinite(value) ? value : 0) != NULL; }
static void text(writer *w, const char *key, const char *value) { w->ok = w->ok && json_add_text(w->at, key, value) != NULL; }
static void group(writer *w, cJSON *root, const char *key)
{
    w->at = w->ok ? cJSON_AddObjectToObject(root, key) : NULL;
    w->ok = w->at != NULL;
}

static void put_counts(writer *w, cJSON *root, const report *r)
{
    const job_totals *t = &r->totals;
    group(w, root, "requests");
    number(w, "total", (double)t->requests);
    number(w, "done", (double)t->answered);
    number(w, "failed", (double)t->failed);
    number(w, "skipped", (double)t->skipped);
    group(w, root, "tokens");
    number(w, "prompt", (double)t->prompt_tokens);
    number(w, "completion", (double)t->completion_tokens);
}

/* Measured, of each kind of step alone; load is in none of them. */
static void put_phases(writer *w, cJSON *root, const report *r)
{
    static const char *const names[] = {"prefill", "decode", "mixed"};
    group(w, root, "phases");
    cJSON *phases = w->at;
    for (int i = 0; i < JOB_PHASES; i++) {
        const job_phase_totals *p = &r->totals.phases[i];
        group(w, phases, names[i]);
        number(w, "steps", (double)p->steps);
        number(w, "seconds", p->seconds);
        number(w, "prompt_tokens", (double)p->prompt_tokens);
        number(w, "new_tokens", (double)p->new_tokens);
        if (i != JOB_DECODE) number(w, "prompt_tokens_per_second", ratio((double)p->prompt_tokens, p->seconds));
        if (i != JOB_PREFILL) number(w, "new_tokens_per_second", ratio((double)p->new_tokens, p->seconds));
    }
}

static void put_times(writer *w, cJSON *root, const report *r)
{
    const job_totals *t = &r->totals;
    group(w, root, "forecast");
    text(w, "made", "before the first step, as if every request makes all its tokens");
    number(w, "steps", (double)r->forecast.steps);
    number(w, "seconds", r->forecast.seconds);
    number(w, "step_seconds", ratio(r->forecast.seconds, (double)r->forecast.steps));
    number(w, "tokens_per_second", r->forecast.tokens_per_second);
    number(w, "error_band_percent", r->error_band_percent);
    number(w, "load_seconds", r->load_forecast_seconds);
    group(w, root, "estimated");
    text(w, "made", "by the plan alone, for the steps that ran");
    number(w, "seconds", t->estimated_seconds);
    number(w, "step_seconds", ratio(t->estimated_seconds, (double)t->steps));
    number(w, "tokens_per_second", ratio((double)t->completion_tokens, t->estimated_seconds));
    group(w, root, "measured");
    number(w, "steps", (double)t->steps);
    number(w, "seconds", t->seconds);
    number(w, "step_seconds", ratio(t->seconds, (double)t->steps));
    number(w, "sync_seconds", t->sync_seconds);
    number(w, "load_seconds", r->load_seconds);
    number(w, "tokens_per_second", ratio((double)t->completion_tokens, t->seconds + t->sync_seconds));
    number(w, "bound_step_seconds", ratio(r->figures.bound_seconds, (double)t->steps));
    number(w, "wait_seconds", r->figures.wait_seconds);
    double rate = ratio((double)r->figures.streamed_bytes, t->seconds);
    number(w, "link_bytes_per_second", rate);
    number(w, "link_utilization", ratio(rate, r->figures.link_bytes_per_second));
}

/* Of the steps that ran, as forecast with what the first ones taught. */
static double learnt_seconds(const job_totals *t)
{
    return t->after.passed + t->after.correction * (t->estimated_seconds - t->after.estimated);
}

/* With what the first steps taught: for the whole run as if every request makes all its tokens, and for the steps that ran. */
static void put_after(writer *w, cJSON *root, const report *r)
{
    const job_totals *t = &r->totals;
    const job_forecast *f = &t->after;
    double whole = f->passed + f->left, ran = learnt_seconds(t);
    if (f->steps == 0) return;
    group(w, root, "forecast_after_20_steps");
    text(w, "made", "after step 20, with the pace measured up to then; seconds: as if every request makes all its tokens");
    number(w, "correction", f->correction);
    number(w, "seconds", whole);
    number(w, "error_percent", 100 * ratio(t->seconds - whole, whole));
    number(w, "steps_that_ran_seconds", ran);
    number(w, "steps_that_ran_error_percent", 100 * ratio(t->seconds - ran, ran));
}

static void put_health(writer *w, cJSON *root, const health *h)
{
    group(w, root, "link_health");
    w->ok = w->ok && cJSON_AddBoolToObject(w->at, "slow", h->found) != NULL;
    if (!h->found) return;
    number(w, "since_step", (double)h->since_step);
    number(w, "since_seconds", h->since_seconds);
    number(w, "slow_steps", (double)h->slow_steps);
    number(w, "planned_bytes_per_second", h->planned_rate);
    number(w, "found_bytes_per_second", h->found_rate);
    number(w, "slow_steps_bytes_per_second", ratio(h->slow_bytes, h->slow_seconds));
}

static const char *const given_up[] = {"tokens per step", "sequences", "residents"};

static void put_downs(writer *w, cJSON *root, const job_totals *t)
{
    cJSON *list = w->ok ? cJSON_AddArrayToObject(root, "steps_down") : NULL;
    w->ok = list != NULL;
    for (uint32_t i = 0; i < t->down_count && w->ok; i++) {
        const job_down *d = &t->downs[i];
        w->at = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, w->at)) {
            cJSON_Delete(w->at);
            w->ok = false;
            return;
        }
        text(w, "fewer", given_up[d->what]);
        number(w, "after_steps", (double)d->steps);
        number(w, "after_seconds", d->seconds);
        number(w, "prefill_chunk", d->prefill_chunk_tokens);
        number(w, "sequences", d->sequences);
        if (d->plan_bytes > 0) number(w, "plan_bytes", (double)d->plan_bytes);
        number(w, "restarted", d->restarted);
        number(w, "tokens_made_again", (double)d->lost_tokens);
    }
}

char *report_json(const report *r)
{
    cJSON *root = cJSON_CreateObject();
    writer w = {root, root != NULL};
    text(&w, "schema", "ofload.report/1");
    text(&w, "status", r->status);
    text(&w, "model", r->model);
    text(&w, "output", r->output);
    text(&w, "device", r->figures.device);
    w.ok = w.ok && cJSON_AddBoolToObject(root, "simulated", r->figures.simulated) != NULL;
    put_counts(&w, root, r);
    put_times(&w, root, r);
    put_phases(&w, root, r);
    put_after(&w, root, r);
    put_health(&w, root, &r->health);
    put_downs(&w, root, &r->totals);
    w.at = root;
    number(&w, "error_percent", report_error_percent(r));
    number(&w, "peak_device_bytes", (double)r->figures.peak_device_bytes);
    number(&w, "plan_bytes", (double)r->figures.plan_bytes);
    number(&w, "budget_bytes", (double)r->figures.budget_bytes);
    number(&w, "peak_logprob_bytes", (double)r->totals.peak_logprob_bytes);
    number(&w, "preempted", 0);
    char *json = w.ok ? cJSON_Print(root) : NULL, *out = NULL;
    cJSON_Delete(root);
    if (json != NULL && asprintf(&out, "%s\n", json) < 0) out = NULL;
    cJSON_free(json);
    return out;
}

void report_print_forecast(const report *r)
{
    char step[32], all[32];
    const ofl_front_forecast *f = &r->forecast;
    printf("%" PRIu64 " requests wait, %" PRIu64 " are done; at most %" PRIu64 " tokens to make\n", f->waiting, r->totals.skipped, f->new_tokens);
    printf("forecast  %" PRIu64 " steps of %s, %.1f tokens/s, at most %s (±%.0f %%)%s\n", f->steps,
           cli_show_seconds(step, ratio(f->seconds, (double)f->steps)), f->tokens_per_second, cli_show_seconds(all, f->seconds),
           r->error_band_percent, r->figures.simulated ? ", on a simulated device" : "");
    printf("loading   about %s before the first step\n", cli_show_seconds(step, r->load_forecast_seconds));
}

void report_print(const report *r)
{
    char a[32], b[32];
    const job_totals *t = &r->totals;
    printf("%" PRIu64 " answered, %" PRIu64 " failed, %" PRIu64 " done earlier, of %" PRIu64 " requests: %s\n", t->answered, t->failed, t->skipped,
           t->requests, r->output);
    if (t->steps == 0) return;
    printf("loading   forecast about %s, measured %s\n", cli_show_seconds(a, r->load_forecast_seconds), cli_show_seconds(b, r->load_seconds));
    printf("step      forecast %s, measured %s (%+.1f %%)%s\n", cli_show_seconds(a, t->estimated_seconds / (double)t->steps),
           cli_show_seconds(b, t->seconds / (double)t->steps), report_error_percent(r), r->figures.simulated ? ", simulated device" : "");
    printf("tokens/s  forecast %.1f, measured %.1f; %" PRIu64 " tokens in %" PRIu64 " steps, %s\n", ratio((double)t->completion_tokens, t->estimated_seconds),
           ratio((double)t->completion_tokens, t->seconds + t->sync_seconds), t->completion_tokens, t->steps, cli_show_seconds(a, t->seconds));
    const job_phase_totals *prefill = &t->phases[JOB_PREFILL], *decode = &t->phases[JOB_DECODE];
    if (prefill->steps > 0 && decode->steps > 0)
        printf("apart     %.1f prompt tokens/s in %" PRIu64 " steps of prompts alone, %.1f new tokens/s in %" PRIu64 " of answers alone\n",
               ratio((double)prefill->prompt_tokens, prefill->seconds), prefill->steps, ratio((double)decode->new_tokens, decode->seconds),
               decode->steps);
    if (t->after.steps > 0) {
        double ran = learnt_seconds(t);
        printf("learnt    after %u steps, with the pace measured up to then: %s for the steps that ran, measured %+.1f %%\n", JOB_FORECAST_STEPS,
               cli_show_seconds(a, ran), 100 * ratio(t->seconds - ran, ran));
    }
    if (r->figures.bound_seconds > 0)
        printf("bound     %s a step (the longer of link and compute, step by step); measured %+.1f %%\n",
               cli_show_seconds(a, r->figures.bound_seconds / (double)t->steps), 100 * (t->seconds / r->figures.bound_seconds - 1));
    printf("link      %s, %.1f %% of what it can\n", cli_show_rate(a, ratio((double)r->figures.streamed_bytes, t->seconds)),
           100 * ratio(ratio((double)r->figures.streamed_bytes, t->seconds), r->figures.link_bytes_per_second));
    for (uint32_t i = 0; i < t->down_count; i++)
        printf("less      fewer %s after step %" PRIu64 ", out of device memory; %u sequences began anew\n", given_up[t->downs[i].what],
               t->downs[i].steps, t->downs[i].restarted);
    if (r->health.found)
        printf("link slow since step %" PRIu64 ": %s instead of %s in %" PRIu64 " steps\n", r->health.since_step,
               cli_show_rate(a, ratio(r->health.slow_bytes, r->health.slow_seconds)), cli_show_rate(b, r->health.planned_rate), r->health.slow_steps);
    printf("device    peak %s, planned %s, budget %s; preempted 0\n", cli_show_bytes(a, r->figures.peak_device_bytes, 0),
           cli_show_bytes(b, r->figures.plan_bytes, 0), cli_show_bytes((char[32]){0}, r->figures.budget_bytes, 0));
}

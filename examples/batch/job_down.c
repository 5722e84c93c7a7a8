/* Out of device memory in the middle of a run, since another process took it: something is given up and the run goes on. First prompts get
 * smaller shares of a step: what runs keeps its KV and goes on. Then fewer sequences run at once, in less KV; last, a plan is made for less
 * memory, fewer weights resident. After these two what runs begins anew with the same seeds: its answer is the one it would have been. */
#include <stdio.h>

#include "batch/job.h"
#include "common/cli.h"

static void begin_entry(job *j, job_given_up what)
{
    j->totals.downs[j->totals.down_count++] = (job_down){.what = what, .steps = j->totals.steps, .seconds = j->totals.seconds};
    j->health.in_row = 0;
}

static job_down *entry(job *j) { return &j->totals.downs[j->totals.down_count - 1]; }

/* One sentence for each entry. */
static void say(job *j, const char *why, const char *now)
{
    char sentence[1000], anew[80] = "what runs goes on";
    const job_down *d = entry(j);
    if (d->what != GAVE_TOKENS) (void)snprintf(anew, sizeof anew, "%u running sequences begin anew", d->restarted);
    (void)snprintf(sentence, sizeof sentence, "out of device memory after step %llu (%s): going on %s; %s", (unsigned long long)d->steps,
                   why, now, anew);
    progress_say(j->progress, sentence);
}

/* The most KV that one request needs, in whole blocks. */
static uint64_t longest_request(const job *j, uint32_t block_tokens)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < j->in->count; i++) {
        const input_entry *e = &j->in->entries[i];
        uint64_t tokens = (uint64_t)e->prompt_tokens + e->max_tokens;
        if (e->state == ENTRY_WAITING && e->prompt_tokens != 0 && tokens > longest) longest = tokens;
    }
    return (longest + block_tokens - 1) / block_tokens * block_tokens;
}

static void limit_step(backend_limits *limits)
{
    uint64_t tokens = (uint64_t)limits->sequences + limits->prefill_chunk_tokens;
    if (tokens < limits->tokens_per_step) limits->tokens_per_step = (uint32_t)tokens;
}

static ofl_status fewer_tokens(job *j, const char *why)
{
    char now[80];
    backend_limits less = j->limits;
    less.prefill_chunk_tokens = (less.prefill_chunk_tokens + 3) / 4;
    limit_step(&less);
    j->gave_tokens = true;
    ofl_status status = j->model->shrink(j->model->context, &less);
    if (status != OFL_OK) return status;
    j->limits = less;
    status = ofl_front_limit(j->front, less.tokens_per_step, less.prefill_chunk_tokens);
    if (status != OFL_OK) return app_forward(status);
    begin_entry(j, GAVE_TOKENS);
    entry(j)->prefill_chunk_tokens = less.prefill_chunk_tokens;
    entry(j)->sequences = less.sequences;
    (void)snprintf(now, sizeof now, "with %u prompt tokens a step", less.prefill_chunk_tokens);
    say(j, why, now);
    return OFL_OK;
}

static void drop_running(job *j, job_given_up what)
{
    begin_entry(j, what);
    if (j->front != NULL) job_drop_running(j, &entry(j)->restarted, &entry(j)->lost_tokens);
}

static ofl_status front_anew(job *j)
{
    ofl_status status = job_begin(j);
    if (status != OFL_OK) return status;
    entry(j)->prefill_chunk_tokens = j->limits.prefill_chunk_tokens;
    entry(j)->sequences = j->limits.sequences;
    progress_restart(j->progress, j->model->now(j->model->context));
    return OFL_OK;
}

static ofl_status fewer_sequences(job *j, const char *why)
{
    char now[80];
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    backend_limits less = j->limits;
    if (ofl_plan_settings_get(j->plan, &plan) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    uint32_t sequences = less.sequences - (less.sequences + 3) / 4;
    uint64_t longest = longest_request(j, plan.kv_block_tokens);
    less.kv_tokens = (uint64_t)((double)less.kv_tokens * sequences / less.sequences);
    if (less.kv_tokens < longest) less.kv_tokens = longest;
    less.sequences = sequences;
    limit_step(&less);
    j->gave_sequences = true;
    if (sequences == 0 || less.kv_tokens > j->limits.kv_tokens) return OFL_ERROR_DEVICE_MEMORY;
    ofl_status status = j->model->shrink(j->model->context, &less);
    if (status != OFL_OK) return status;
    drop_running(j, GAVE_SEQUENCES);
    j->limits = less;
    status = front_anew(j);
    if (status != OFL_OK) return status;
    (void)snprintf(now, sizeof now, "with %u sequences at once", sequences);
    say(j, why, now);
    return OFL_OK;
}

static ofl_status load_now(job *j)
{
    ofl_status status = j->model->load(j->model->context);
    return status == OFL_ERROR_CANCELLED && j->stop() ? OFL_END : status;
}

static ofl_status nothing_left(const job *j, ofl_status status, const char *why)
{
    char last[400];
    (void)snprintf(last, sizeof last, "%s", app_error());
    return app_fail(status, "out of device memory after step %llu (%s), and no less will do: %s; free device memory and run again to go on",
                    (unsigned long long)j->totals.steps, why, last);
}

static ofl_status less_planned(job *j, const char *why)
{
    char now[80], bytes[32];
    drop_running(j, GAVE_PLAN);
    j->limits = (backend_limits){0};
    j->plan = NULL; /* the backend's, and gone */
    ofl_status status = j->model->plan_less(j->model->context, &j->load, &j->plan, &entry(j)->plan_bytes);
    if (status != OFL_OK) return nothing_left(j, status, why);
    status = front_anew(j);
    if (status != OFL_OK) return status;
    (void)snprintf(now, sizeof now, "with a plan for %s", cli_show_bytes(bytes, entry(j)->plan_bytes, 0));
    say(j, why, now);
    return OFL_OK;
}

/* Until one can be loaded. */
static ofl_status plan_less(job *j, const char *why)
{
    char last[400];
    for (;;) {
        ofl_status status = less_planned(j, why);
        if (status != OFL_OK) return status;
        status = load_now(j);
        if (status != OFL_ERROR_DEVICE_MEMORY) return status;
        (void)snprintf(last, sizeof last, "%s", app_error());
        why = last;
        if (j->totals.down_count == JOB_MOST_DOWNS) return nothing_left(j, status, why);
    }
}

ofl_status job_load(job *j)
{
    char why[400];
    ofl_status status = load_now(j);
    if (status != OFL_ERROR_DEVICE_MEMORY || j->model->plan_less == NULL) return status;
    (void)snprintf(why, sizeof why, "%s", app_error());
    return plan_less(j, why);
}

ofl_status job_step_down(job *j)
{
    char why[400];
    (void)snprintf(why, sizeof why, "%s", app_error());
    if (ofl_front_abandon(j->front) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    if (j->totals.down_count == JOB_MOST_DOWNS) return nothing_left(j, OFL_ERROR_DEVICE_MEMORY, why);
    bool can_shrink = j->model->shrink != NULL;
    ofl_status status = OFL_ERROR_DEVICE_MEMORY;
    if (can_shrink && !j->gave_tokens && j->limits.prefill_chunk_tokens > 1) status = fewer_tokens(j, why);
    if (can_shrink && status == OFL_ERROR_DEVICE_MEMORY && !j->gave_sequences) status = fewer_sequences(j, why);
    if (status != OFL_ERROR_DEVICE_MEMORY) return status;
    return j->model->plan_less != NULL ? plan_less(j, why) : nothing_left(j, status, why);
}

#include "batch/job.h"

typedef struct job_group { /* a request that is being answered */
    struct job_group *next;
    input_entry *entry;
    char *custom_id;
    bool chat, wants_logprobs;
    uint32_t broken_at; /* the token, counted from 1, for which the model gave no finite number; 0: none */
    uint32_t choice_count, left;
    uint32_t tokens[REQUEST_MAX_CHOICES];
    const char *reason[REQUEST_MAX_CHOICES];
    answer answers[REQUEST_MAX_CHOICES];
    logprob_list logprobs[REQUEST_MAX_CHOICES];
} job_group;

typedef struct job_active { /* one choice of it, in a slot */
    job_group *group; /* NULL: free */
    uint32_t choice, made, max_tokens;
    int32_t last;
    bool ignore_end;
    token_list prompt;
    sampler sampler;
} job_active;

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory in the run"); }

/* A tag is entry × REQUEST_MAX_CHOICES + choice. */
static ofl_status submit(job *j, size_t index)
{
    const input_entry *entry = &j->in->entries[index];
    for (uint32_t choice = 0; choice < entry->choices; choice++) {
        ofl_request wanted = {sizeof wanted, entry->prompt_tokens, entry->max_tokens, (uint64_t)index * REQUEST_MAX_CHOICES + choice};
        ofl_status status = ofl_front_submit(j->front, &wanted, NULL);
        if (status == OFL_ERROR_NO_FIT)
            return app_fail(status, "line %llu: %s; with --context N a longer request becomes an error line", (unsigned long long)entry->line,
                            ofl_error_message());
        if (status != OFL_OK) return app_forward(status);
    }
    return OFL_OK;
}

ofl_status job_begin(job *j)
{
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    ofl_status status = ofl_plan_settings_get(j->plan, &plan);
    if (status != OFL_OK) return app_forward(status);
    if (j->limits.sequences == 0)
        j->limits = (backend_limits){plan.tokens_per_step_cap, plan.prefill_chunk_tokens, plan.sequences, plan.kv_capacity_tokens};
    ofl_front_options options = {.struct_size = sizeof options,
                                 .max_sequences = j->limits.sequences,
                                 .tokens_per_step_cap = j->limits.tokens_per_step,
                                 .prefill_chunk_tokens = j->limits.prefill_chunk_tokens,
                                 .kv_capacity_tokens = j->limits.kv_tokens};
    status = ofl_front_create(j->plan, &options, &j->front);
    if (status != OFL_OK) return app_forward(status);
    j->active = calloc(plan.sequences, sizeof *j->active);
    j->finished = calloc(plan.sequences, 1);
    j->rows = calloc(plan.sequences, sizeof *j->rows);
    if (j->active == NULL || j->finished == NULL || j->rows == NULL) return no_memory();
    for (size_t i = 0; i < j->in->count && status == OFL_OK; i++) {
        if (j->in->entries[i].state == ENTRY_WAITING && j->in->entries[i].prompt_tokens != 0) status = submit(j, i);
    }
    return status;
}

static void free_group(job *j, job_group *group)
{
    for (uint32_t i = 0; i < group->choice_count; i++) {
        answer_free(&group->answers[i]);
        j->logprob_bytes -= logprobs_bytes(&group->logprobs[i]);
        logprobs_free(&group->logprobs[i]);
    }
    free(group->custom_id);
    free(group);
}

void job_end(job *j)
{
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    (void)ofl_plan_settings_get(j->plan, &plan);
    for (uint32_t i = 0; j->active != NULL && i < plan.sequences; i++) tokens_free(&j->active[i].prompt);
    while (j->groups != NULL) {
        job_group *group = j->groups;
        j->groups = group->next;
        free_group(j, group);
    }
    ofl_front_destroy(j->front);
    free(j->active);
    free(j->finished);
    free(j->rows);
    free(j->tokens);
    buffer_free(&j->record);
    j->front = NULL;
    j->active = NULL;
    j->finished = NULL;
    j->rows = NULL;
    j->tokens = NULL;
    j->token_capacity = 0;
}

void job_drop_running(job *j, uint32_t *sequences_out, uint64_t *tokens_out)
{
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    (void)ofl_plan_settings_get(j->plan, &plan);
    *sequences_out = 0;
    *tokens_out = 0;
    for (uint32_t i = 0; j->active != NULL && i < plan.sequences; i++) {
        if (j->active[i].group == NULL) continue;
        ++*sequences_out;
        *tokens_out += j->active[i].made;
    }
    for (const job_group *group = j->groups; group != NULL; group = group->next) {
        j->totals.prompt_tokens -= group->entry->prompt_tokens;
        for (uint32_t i = 0; i < group->choice_count; i++) *tokens_out += group->tokens[i]; /* of those that had ended */
    }
    j->totals.completion_tokens -= *tokens_out;
    job_end(j);
}

static ofl_status open_group(job *j, input_entry *entry, const request *r, job_group **out)
{
    job_group *group = calloc(1, sizeof *group);
    if (group == NULL || (group->custom_id = strdup(r->custom_id)) == NULL) {
        free(group);
        return no_memory();
    }
    group->entry = entry;
    group->chat = r->chat;
    group->wants_logprobs = r->logprobs;
    for (uint32_t i = 0; i < REQUEST_MAX_CHOICES; i++) group->logprobs[i].top = r->top_logprobs;
    ofl_status status = OFL_OK;
    for (; group->choice_count < r->choices && status == OFL_OK; group->choice_count += status == OFL_OK)
        status = answer_init(&group->answers[group->choice_count], r->stops, r->stop_bytes, r->stop_count);
    if (status != OFL_OK) {
        free_group(j, group);
        return status;
    }
    group->left = group->choice_count;
    group->next = j->groups;
    j->groups = group;
    j->totals.prompt_tokens += entry->prompt_tokens;
    *out = group;
    return OFL_OK;
}

static ofl_status find_group(job *j, input_entry *entry, const request *r, job_group **out)
{
    for (job_group *group = j->groups; group != NULL; group = group->next) {
        if (group->entry != entry) continue;
        *out = group;
        return OFL_OK;
    }
    return open_group(j, entry, r, out);
}

/* Without a seed in the request its id is the seed: the same request gets the same answer, beside whatever others, in this run or a resumed one. */
static uint64_t seed_of(const request *r, const input_entry *entry, uint32_t choice)
{
    return (r->seed_given ? r->seed : entry->id.low) + choice * UINT64_C(0x9E3779B97F4A7C15);
}

/* The first share of a request: its line is read again, now for its tokens. */
static ofl_status start(job *j, const ofl_step_item *item)
{
    input_entry *entry = &j->in->entries[item->tag / REQUEST_MAX_CHOICES];
    job_active *active = &j->active[item->slot];
    line_error error;
    request r = {0};
    bool good;
    active->prompt.count = 0;
    ofl_status status = input_parse(j->in, entry, &r, &error, &good);
    if (status == OFL_OK && good) status = j->model->encode(j->model->context, &r, &active->prompt);
    if (status == OFL_OK && (!good || active->prompt.count != entry->prompt_tokens))
        status = app_fail(OFL_ERROR_IO, "%s: was changed while it was in use: line %llu is another one", j->in->path, (unsigned long long)entry->line);
    if (status == OFL_OK) status = find_group(j, entry, &r, &active->group);
    if (status == OFL_OK) {
        active->choice = (uint32_t)(item->tag % REQUEST_MAX_CHOICES);
        active->made = 0;
        active->max_tokens = entry->max_tokens;
        active->ignore_end = r.ignore_end;
        sampler_init(&active->sampler, r.temperature, r.top_p, r.top_k, seed_of(&r, entry, active->choice));
    }
    request_free(&r);
    return status;
}

static row_choice wish_of(const job_active *active)
{
    const job_group *group = active->group;
    return (row_choice){.how = sampler_next(&active->sampler), .logprobs = group->wants_logprobs ? 1 + group->logprobs[active->choice].top : 0};
}

/* The token ids of a step, item after item, and how the next ones are to be chosen. */
static ofl_status gather(job *j, const ofl_step *step)
{
    size_t at = 0;
    uint32_t row = 0;
    void *room = j->tokens;
    if (!grow(&room, &j->token_capacity, step->shape.tokens, sizeof *j->tokens)) return no_memory();
    j->tokens = room;
    for (uint32_t i = 0; i < step->item_count; i++) {
        const ofl_step_item *item = &step->items[i];
        job_active *active = &j->active[item->slot];
        ofl_status status = item->prefill && item->first_position == 0 ? start(j, item) : OFL_OK;
        if (status != OFL_OK) return status;
        const int32_t *from = item->prefill ? active->prompt.ids + item->first_position : &active->last;
        memcpy(j->tokens + at, from, item->token_count * sizeof *from);
        at += item->token_count;
        if (item->wants_logits) j->rows[row++] = wish_of(active);
    }
    return OFL_OK;
}

/* A model, or what carried its numbers, is broken: no answer rather than an invented one. */
static ofl_status no_number(job *j, const job_group *group)
{
    line_error error;
    request_refuse(&error, "no_finite_logit", "", "for token %u of the answer the model gave no finite number; check its weights, or compute in f32",
                   group->broken_at);
    return record_error(j->maker, group->custom_id, group->entry->line, &error, &j->record);
}

/* A line that no run could read back. */
static ofl_status too_long(job *j, const job_group *group)
{
    line_error error;
    request_refuse(&error, "answer_too_long", group->wants_logprobs ? "body.top_logprobs" : "", "the answer takes %zu bytes; a line holds up to %u",
                   j->record.bytes, JSONL_MAX_LINE_BYTES);
    return record_error(j->maker, group->custom_id, group->entry->line, &error, &j->record);
}

static ofl_status write_answer(job *j, job_group *group)
{
    record_choice choices[REQUEST_MAX_CHOICES];
    for (uint32_t i = 0; i < group->choice_count; i++)
        choices[i] = (record_choice){group->answers[i].text != NULL ? group->answers[i].text : "", group->answers[i].bytes, group->reason[i],
                                     group->tokens[i], group->wants_logprobs ? &group->logprobs[i] : NULL};
    input_entry *entry = group->entry;
    bool whole = group->broken_at == 0;
    ofl_status status = !whole ? no_number(j, group) : record_answer(j->maker, group->custom_id, entry->line, group->chat, entry->prompt_tokens, choices, group->choice_count, &j->record);
    if (status == OFL_OK && j->record.bytes > JSONL_MAX_LINE_BYTES) {
        whole = false;
        status = too_long(j, group);
    }
    uint64_t offset = j->out->bytes;
    if (status == OFL_OK) status = output_append(j->out, j->record.data, j->record.bytes);
    if (status != OFL_OK) return status;
    entry->state = whole ? ENTRY_ANSWERED : ENTRY_FAILED;
    entry->written_offset = offset;
    entry->written_bytes = (uint32_t)j->record.bytes;
    j->totals.answered += whole;
    j->totals.failed += !whole;
    return OFL_OK;
}

static ofl_status close_choice(job *j, job_active *active, const char *reason)
{
    job_group *group = active->group;
    answer *text = &group->answers[active->choice];
    if (text->stopped) logprobs_cut(&group->logprobs[active->choice], &j->maker->text, text->bytes);
    ofl_status status = answer_finish(text);
    group->tokens[active->choice] = active->made;
    group->reason[active->choice] = reason;
    active->group = NULL;
    if (status != OFL_OK || --group->left > 0) return status;
    status = write_answer(j, group);
    for (job_group **at = &j->groups; *at != NULL; at = &(*at)->next) {
        if (*at != group) continue;
        *at = group->next;
        break;
    }
    free_group(j, group);
    return status;
}

static ofl_status note_logprobs(job *j, const job_active *active, const logprob *entries)
{
    logprob_list *list = &active->group->logprobs[active->choice];
    uint64_t before = logprobs_bytes(list);
    if (!logprobs_add(list, entries)) return no_memory();
    j->logprob_bytes += logprobs_bytes(list) - before;
    if (j->logprob_bytes > j->totals.peak_logprob_bytes) j->totals.peak_logprob_bytes = j->logprob_bytes;
    return OFL_OK;
}

/* The token's text into the answer; *reason_out: why it was the last, or NULL. */
static ofl_status take_text(job *j, job_active *active, const row_choice *chosen, const char **reason_out)
{
    size_t bytes;
    bool stopped = false;
    const char *text = j->model->bytes(j->model->context, chosen->token, &bytes);
    ofl_status status = chosen->logprobs > 0 ? note_logprobs(j, active, chosen->entries) : OFL_OK;
    if (status == OFL_OK) status = answer_push(&active->group->answers[active->choice], text, bytes, &stopped);
    if (stopped) *reason_out = "stop";
    else if (active->made == active->max_tokens) *reason_out = "length";
    return status;
}

/* Takes the next token of an item; *finished_out: it was the last. */
static ofl_status take_token(job *j, const ofl_step_item *item, const row_choice *chosen, uint8_t *finished_out)
{
    job_active *active = &j->active[item->slot];
    const char *reason = NULL;
    ofl_status status = OFL_OK;
    active->last = chosen->token;
    active->made++;
    sampler_advance(&active->sampler);
    j->totals.completion_tokens++;
    if (chosen->token < 0 && active->group->broken_at == 0) active->group->broken_at = active->made;
    if (active->group->broken_at != 0) reason = "error"; /* other choices of the request end at their next token */
    else if (!active->ignore_end && j->model->is_end(j->model->context, chosen->token)) reason = "stop";
    else status = take_text(j, active, chosen, &reason);
    *finished_out = reason != NULL;
    return status == OFL_OK && reason != NULL ? close_choice(j, active, reason) : status;
}

static ofl_status take_tokens(job *j, const ofl_step *step)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->item_count; i++) {
        j->finished[i] = 0;
        if (!step->items[i].wants_logits) continue;
        ofl_status status = take_token(j, &step->items[i], &j->rows[row++], &j->finished[i]);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

/* What the plan alone says about this step; zeros where it cannot. */
static ofl_step_estimate estimate(const job *j, const ofl_step *step)
{
    ofl_step_estimate estimated = {.struct_size = sizeof estimated};
    if (ofl_plan_estimate_step(j->plan, &step->shape, &estimated) != OFL_OK) estimated = (ofl_step_estimate){.struct_size = sizeof estimated};
    return estimated;
}

/* Prompts and answers have their own rates: a mean of both tells neither. */
static void count_phase(job_totals *totals, const ofl_step *step, double seconds)
{
    uint64_t prompt = 0, decoding = 0;
    for (uint32_t i = 0; i < step->item_count; i++) {
        if (step->items[i].prefill) prompt += step->items[i].token_count;
        else decoding++;
    }
    job_phase_totals *phase = &totals->phases[decoding == 0 ? JOB_PREFILL : prompt == 0 ? JOB_DECODE : JOB_MIXED];
    phase->steps++;
    phase->seconds += seconds;
    phase->prompt_tokens += prompt;
    phase->new_tokens += step->shape.logits_rows;
}

/* A link that has become slow is said once, and the front learns its pace anew. */
static ofl_status watch_link(job *j, const ofl_step_estimate *estimated, double seconds)
{
    backend_step ran;
    char sentence[400];
    if (j->model->last_step == NULL) return OFL_OK;
    j->model->last_step(j->model->context, &ran);
    if (!health_step(&j->health, estimated, &ran, seconds, j->totals.steps, j->totals.seconds - seconds)) return OFL_OK;
    health_sentence(&j->health, sentence, sizeof sentence);
    progress_say(j->progress, sentence);
    return ofl_front_relearn(j->front);
}

static ofl_status forecast_once(job *j)
{
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    job_totals *t = &j->totals;
    if (t->steps != JOB_FORECAST_STEPS) return OFL_OK;
    ofl_status status = ofl_front_forecast_get(j->front, &forecast);
    if (status == OFL_OK) t->after = (job_forecast){t->steps, t->seconds, forecast.seconds, forecast.correction, t->estimated_seconds};
    return status;
}

static ofl_status count_step(job *j, const ofl_step *step, double seconds)
{
    ofl_step_estimate estimated = estimate(j, step);
    j->totals.steps++;
    j->totals.seconds += seconds;
    j->totals.estimated_seconds += estimated.step_seconds;
    count_phase(&j->totals, step, seconds);
    ofl_status status = watch_link(j, &estimated, seconds);
    if (status == OFL_OK) status = ofl_front_commit(j->front, j->finished, seconds);
    if (status == OFL_OK) status = forecast_once(j);
    progress_step(j->progress, &j->totals, seconds, estimated.link_seconds, step->shape.logits_rows, j->model->now(j->model->context), j->front);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status run_step(job *j, const ofl_step *step)
{
    double began = j->model->now(j->model->context);
    ofl_status status = gather(j, step);
    if (status == OFL_OK) status = j->model->step(j->model->context, step, j->tokens, j->rows);
    if (status == OFL_OK) status = take_tokens(j, step);
    if (status != OFL_OK) return status;
    double ended = j->model->now(j->model->context);
    status = output_sync(j->out, false);
    if (status != OFL_OK) return status;
    j->totals.sync_seconds += j->model->now(j->model->context) - ended;
    return count_step(j, step, ended - began);
}

ofl_status job_run(job *j)
{
    for (;;) {
        ofl_step step = {.struct_size = sizeof step};
        if (j->stop()) return OFL_END;
        ofl_status status = ofl_front_next_step(j->front, &step);
        if (status == OFL_END) return OFL_OK;
        if (status != OFL_OK) return app_forward(status);
        status = run_step(j, &step);
        if (status == OFL_ERROR_DEVICE_MEMORY) status = job_step_down(j);
        if (status != OFL_OK) return status;
    }
}

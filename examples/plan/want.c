/* Each change is found by planning anew until the wish is just reached. */
#include "plan/want.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/app_error.h"

#define HALVINGS 8            /* of the last doubling of a figure: to 0.3 % */
#define HELPS 1.001           /* a doubling that brings less does not help */
#define LARGEST_FIGURE 0x1p52 /* sizes in a machine are below 2^53 */
#define SEQUENCES_MOST (1u << 20)

ofl_status want_parse(const char *text, double *out)
{
    static const char *const units[] = {"tok/s", "token/s", "tokens/s", "/s"};
    char number[64];
    size_t length = strspn(text, "0123456789."), at = length + strspn(text + length, " ");
    bool known = false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) known |= strcmp(text + at, units[i]) == 0;
    if (!known || length == 0 || length >= sizeof number)
        return app_fail(OFL_ERROR_ARGUMENT, "\"%.60s\" is no speed; write tokens a second as 5tok/s, 5 tokens/s or 0.5/s", text);
    memcpy(number, text, length);
    number[length] = '\0';
    ofl_status status = cli_parse_number(number, out);
    if (status == OFL_OK && !(*out > 0)) return app_fail(OFL_ERROR_ARGUMENT, "\"%.60s\": a speed is above 0", text);
    return status;
}

typedef struct search {
    const compare_job *job;
    double wish, last; /* tokens/s of what was tried last; 0: it does not fit */
} search;

static ofl_status try_workload(search *s, const ofl_machine *machine, const ofl_workload *w)
{
    planned p;
    ofl_status status = ways_plan(s->job->model, machine, w, &p);
    s->last = p.fits ? p.forecast.tokens_per_second : 0;
    return status;
}

static ofl_status try_sequences(search *s, uint32_t sequences)
{
    ofl_workload w = *s->job->workload;
    w.sequences = sequences;
    return try_workload(s, s->job->machine, &w);
}

static ofl_status try_figure(search *s, ofl_figure figure, double value)
{
    ofl_machine *machine = NULL;
    ofl_workload w = *s->job->workload;
    ofl_plan_settings settings = {.struct_size = sizeof settings};
    ofl_status status = ofl_plan_settings_get(s->job->plan, &settings);
    status = status == OFL_OK ? ways_machine_with(s->job->machine, figure, value, &machine) : app_forward(status);
    w.sequences = settings.sequences;
    if (status == OFL_OK) status = try_workload(s, machine, &w);
    ofl_machine_destroy(machine);
    return status;
}

static void add_change(want_answer *a, const char *name, double value, double now, const char *type, double tokens_per_second)
{
    if (a->change_count < WANT_CHANGES) a->changes[a->change_count++] = (want_change){name, value, now, type, tokens_per_second};
}

/* A count between `low`, which does not reach it, and `high`: the largest that fits, or the least that reaches. */
static ofl_status bisect_sequences(search *s, uint32_t low, uint32_t high, bool to_fit, uint32_t *out)
{
    ofl_status status = OFL_OK;
    while (status == OFL_OK && high > low + 1) {
        uint32_t middle = low + (high - low) / 2;
        status = try_sequences(s, middle);
        if (to_fit ? s->last > 0 : s->last < s->wish) low = middle;
        else high = middle;
    }
    *out = to_fit ? low : high;
    return status;
}

/* The least count that reaches it. */
static ofl_status find_sequences(search *s, want_answer *a)
{
    uint32_t low = a->plan.forecast.sequences, high = low;
    ofl_status status = OFL_OK;
    s->last = a->plan.forecast.tokens_per_second;
    while (status == OFL_OK && s->last > 0 && s->last < s->wish && high <= SEQUENCES_MOST / 2) {
        low = high;
        high *= 2;
        status = try_sequences(s, high);
    }
    if (status == OFL_OK && s->last == 0) { /* too many: the most that fit */
        status = bisect_sequences(s, low, high, true, &high);
        if (status == OFL_OK && high > low) status = try_sequences(s, high);
        if (high == low) return status;
    }
    if (status != OFL_OK || s->last < s->wish) return status;
    status = bisect_sequences(s, low, high, false, &high);
    if (status == OFL_OK) status = try_sequences(s, high);
    if (status == OFL_OK) add_change(a, "sequences", high, a->plan.forecast.sequences, NULL, s->last);
    return status;
}

/* The least value of a figure that reaches it, all else the same; given up when doubling it hardly helps any more. */
static ofl_status find_figure(search *s, ofl_figure figure, want_answer *a)
{
    double now = ofl_machine_get(s->job->machine, figure, NULL), low = now, high = now, before = 0;
    ofl_status status = OFL_OK;
    s->last = a->plan.forecast.tokens_per_second;
    while (status == OFL_OK && s->last < s->wish && s->last > HELPS * before && high < LARGEST_FIGURE / 2) {
        before = s->last;
        low = high;
        high *= 2;
        status = try_figure(s, figure, high);
    }
    if (status != OFL_OK || s->last < s->wish) return status;
    for (int i = 0; status == OFL_OK && i < HALVINGS; i++) {
        double middle = floor(sqrt(low * high)); /* sizes are whole bytes */
        status = try_figure(s, figure, middle);
        if (s->last >= s->wish) high = middle;
        else low = middle;
    }
    if (status == OFL_OK) status = try_figure(s, figure, high);
    if (status == OFL_OK) add_change(a, ofl_figure_key(figure), high, now, NULL, s->last);
    return status;
}

/* The most bits a weight that reach it. */
static ofl_status find_bits(search *s, want_answer *a)
{
    ofl_status status = OFL_OK;
    bool reaches = false;
    for (size_t i = 0; status == OFL_OK && !reaches && store_types[i] != OFL_DTYPE_F32; i++) {
        ofl_model *model = NULL;
        uint32_t changed = 0, kept = 0;
        planned p = {0};
        ofl_workload w = *s->job->workload;
        w.sequences = a->plan.settings.sequences;
        status = store_as(s->job->model, store_types[i], &model, &changed, &kept);
        if (status == OFL_OK && changed > 0) status = ways_plan(model, s->job->machine, &w, &p);
        reaches = p.fits && p.forecast.tokens_per_second >= s->wish;
        if (status == OFL_OK && reaches)
            add_change(a, "weights", store_bits(store_types[i]), 0, ofl_dtype_name(store_types[i]), p.forecast.tokens_per_second);
        ofl_model_destroy(model);
    }
    return status;
}

/* Compute is either products, or reading the weights from the device's memory: the one that shortens it more when it is twice as fast. */
static ofl_status compute_limit(const compare_job *job, const want_answer *a, want_limit *out)
{
    static const ofl_figure figures[] = {OFL_FIGURE_DEVICE_FLOPS, OFL_FIGURE_DEVICE_BANDWIDTH};
    double seconds[2] = {0};
    ofl_workload w = *job->workload;
    w.sequences = a->plan.settings.sequences;
    for (size_t i = 0; i < 2; i++) {
        ofl_machine *machine = NULL;
        planned p = {0};
        ofl_status status = ways_machine_with(job->machine, figures[i], 2 * ofl_machine_get(job->machine, figures[i], NULL), &machine);
        if (status == OFL_OK) status = ways_plan(job->model, machine, &w, &p);
        ofl_machine_destroy(machine);
        if (status != OFL_OK) return status;
        seconds[i] = p.forecast.step.compute_seconds;
    }
    *out = seconds[0] < seconds[1] ? WANT_COMPUTE : WANT_MEMORY;
    return OFL_OK;
}

static ofl_status find_bound(const compare_job *job, want_answer *a)
{
    a->bound_seconds = a->plan.forecast.lower_bound_seconds;
    a->limit = WANT_LINK;
    return a->bound_seconds > a->plan.forecast.step.compute_seconds ? OFL_OK : compute_limit(job, a, &a->limit);
}

static ofl_status find_most(const compare_job *job, planned *out)
{
    ofl_workload w = ways_for_queue(job->workload);
    return ways_plan(job->model, job->machine, &w, out);
}

ofl_status want_find(const compare_job *job, double wish, want_answer *out)
{
    want_answer a = {.wish = wish};
    search s = {.job = job, .wish = wish};
    bool streams, chosen = job->workload->objective == OFL_THROUGHPUT && job->workload->sequences == 0;
    ofl_status status = ways_read(job->plan, &a.plan);
    if (status == OFL_OK) status = find_bound(job, &a);
    if (status != OFL_OK) return status;
    a.reached = a.plan.forecast.tokens_per_second >= wish;
    streams = a.plan.budget.stream_bytes_per_step > 0;
    if (!a.reached) status = find_most(job, &a.most);
    if (status == OFL_OK && !a.reached && !chosen) status = find_sequences(&s, &a);
    if (status == OFL_OK && !a.reached && streams) status = find_figure(&s, OFL_FIGURE_LINK, &a);
    if (status == OFL_OK && !a.reached && streams) status = find_figure(&s, OFL_FIGURE_VRAM, &a);
    if (status == OFL_OK && !a.reached && a.limit != WANT_LINK)
        status = find_figure(&s, a.limit == WANT_MEMORY ? OFL_FIGURE_DEVICE_BANDWIDTH : OFL_FIGURE_DEVICE_FLOPS, &a);
    if (status == OFL_OK && !a.reached) status = find_bits(&s, &a);
    if (status == OFL_OK) *out = a;
    return status;
}

static const char *const limits[] = {"link", "memory", "compute"};

cJSON *want_to_json(const want_answer *a)
{
    cJSON *tree = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(tree, "tokens_per_second", a->wish);
    (void)cJSON_AddBoolToObject(tree, "reached", a->reached);
    (void)cJSON_AddNumberToObject(tree, "sequences", a->plan.forecast.sequences);
    (void)cJSON_AddNumberToObject(tree, "planned_tokens_per_second", a->plan.forecast.tokens_per_second);
    (void)cJSON_AddNumberToObject(tree, "error_band_percent", a->plan.forecast.error_band_percent);
    (void)cJSON_AddNumberToObject(tree, "bound_seconds", a->bound_seconds);
    (void)cJSON_AddNumberToObject(tree, "bound_tokens_per_second", a->plan.forecast.sequences / a->bound_seconds);
    (void)cJSON_AddStringToObject(tree, "set_by", limits[a->limit]);
    if (a->most.fits) (void)cJSON_AddNumberToObject(tree, "most_tokens_per_second", a->most.forecast.tokens_per_second);
    if (a->most.fits) (void)cJSON_AddNumberToObject(tree, "most_sequences", a->most.forecast.sequences);
    cJSON *list = cJSON_AddArrayToObject(tree, "would_reach");
    for (uint32_t i = 0; i < a->change_count; i++) {
        const want_change *c = &a->changes[i];
        cJSON *item = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(item, "change", c->name);
        (void)cJSON_AddNumberToObject(item, "value", c->value);
        if (c->type != NULL) (void)cJSON_AddStringToObject(item, "dtype", c->type);
        (void)cJSON_AddNumberToObject(item, "tokens_per_second", c->tokens_per_second);
        (void)cJSON_AddItemToArray(list, item);
    }
    return tree;
}

static void print_change(const want_change *c)
{
    char a[32], b[32], all[32], each[32];
    const char *unit = c->type != NULL                                         ? "weights"
                       : strcmp(c->name, "sequences") == 0                     ? c->name
                       : strcmp(c->name, ofl_figure_key(OFL_FIGURE_VRAM)) == 0 ? "size"
                                                                               : "rate";
    if (strcmp(unit, "weights") == 0)
        printf("weights at %.3g bits (%s): %s tokens/s; answers differ, measure it", c->value, c->type,
               cli_show_tokens(all, c->tokens_per_second));
    else if (strcmp(unit, "sequences") == 0)
        printf("%s sequences at once instead of %.0f: %s tokens/s in all, %s each", cli_show_count(a, (uint64_t)c->value), c->now,
               cli_show_tokens(all, c->tokens_per_second), cli_show_tokens(each, c->tokens_per_second / c->value));
    else if (strcmp(unit, "size") == 0)
        printf("%s of device memory instead of %s", cli_show_bytes(a, (uint64_t)c->value, 0), cli_show_bytes(b, (uint64_t)c->now, 0));
    else if (strcmp(c->name, ofl_figure_key(OFL_FIGURE_DEVICE_FLOPS)) == 0)
        printf("products at %.3g TFLOP/s instead of %.3g", c->value / 1e12, c->now / 1e12);
    else
        printf("%s at %s instead of %s", strcmp(c->name, ofl_figure_key(OFL_FIGURE_LINK)) == 0 ? "a link" : "device memory read",
               cli_show_rate(a, c->value), cli_show_rate(b, c->now));
    printf("\n");
}

static void print_bound(const compare_job *job, const want_answer *a)
{
    char seconds[32], beyond[32], rate[32];
    printf("  a step takes at least %s, whatever the layout: at most %s tokens/s with %u sequence%s. ",
           cli_show_seconds(seconds, a->bound_seconds), cli_show_tokens(rate, a->plan.forecast.sequences / a->bound_seconds),
           a->plan.forecast.sequences, a->plan.forecast.sequences == 1 ? "" : "s");
    if (a->limit == WANT_LINK)
        printf("The link sets it:\n  %s that the device cannot hold ÷ %s\n",
               cli_show_bytes(beyond, a->plan.budget.lower_bound_bytes_per_step, 0),
               cli_show_rate(rate, (double)a->plan.budget.lower_bound_bytes_per_step / a->bound_seconds));
    else if (a->limit == WANT_MEMORY)
        printf("Device memory sets it:\n  what a step reads there at %s\n",
               cli_show_rate(rate, ofl_machine_get(job->machine, OFL_FIGURE_DEVICE_BANDWIDTH, NULL)));
    else printf("Compute sets it:\n  products at %.3g TFLOP/s\n", ofl_machine_get(job->machine, OFL_FIGURE_DEVICE_FLOPS, NULL) / 1e12);
}

void want_print(const compare_job *job, const want_answer *a)
{
    const ofl_forecast *f = &a->plan.forecast;
    double least = f->tokens_per_second / (1 + f->error_band_percent / 100);
    char wish[32], reached[32];
    printf("\nwant %s tokens/s: %s, the plan reaches %s ±%.0f %%%s\n", cli_show_tokens(wish, a->wish), a->reached ? "yes" : "no",
           cli_show_tokens(reached, f->tokens_per_second), f->error_band_percent,
           a->reached && least < a->wish ? "; the wish is within that error" : "");
    if (a->reached) return;
    print_bound(job, a);
    if (a->most.fits && a->most.forecast.tokens_per_second < a->wish)
        printf("  the most that this machine reaches with this model is %s tokens/s, with %u sequences at once\n",
               cli_show_tokens(reached, a->most.forecast.tokens_per_second), a->most.forecast.sequences);
    printf("%s", a->change_count > 0 ? "  what would reach it, each alone:\n"
                                     : "  no one change that was tried reaches it: sequences, rates, device memory, bits a weight\n");
    for (uint32_t i = 0; i < a->change_count; i++) {
        printf("    ");
        print_change(&a->changes[i]);
    }
}

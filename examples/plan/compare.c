/* Options, and the JSON of what they ask for. */
#include "plan/compare.h"

#include <stdio.h>
#include <string.h>

#include "common/app_error.h"
#include "common/json_text.h"
#include "plan/want.h"
#include "plan/ways.h"

void compare_options_table(compare_options *o, cli_option rows[COMPARE_OPTION_COUNT])
{
    const cli_option table[COMPARE_OPTION_COUNT] = {
        {"--compare", CLI_FLAG, &o->compare, NULL, NULL, NULL,
         "beside the plan the other ways out: split, fewer bits, the CPU, less context"},
        {"--gpus", CLI_COUNT, &o->gpus, &o->given.gpus, "N", NULL, "with --compare: so many such GPUs are there"},
        {"--peer-link", CLI_RATE, &o->peer_link, &o->given.peer_link, "RATE", NULL, "with --compare: from one GPU to another, as measured"},
        {"--host-bandwidth", CLI_RATE, &o->host_bandwidth, &o->given.host_bandwidth, "RATE", NULL,
         "with --compare: host memory as read by the CPU"},
        {"--host-flops", CLI_FLOPS, &o->host_flops, &o->given.host_flops, "RATE", NULL, "with --compare: what products reach on the CPU"},
        {"--want", CLI_TEXT, &o->want, NULL, "RATE", NULL, "is this speed reached, e.g. 5tok/s; if not: what would, and exit status 3"},
    };
    memcpy(rows, table, sizeof table);
}

void compare_options_keep(compare_options *o, int argc, char **argv, const cli_option *table, size_t count)
{
    o->argc = argc < COMPARE_WORDS ? argc : COMPARE_WORDS; /* more of them are refused when they are parsed */
    memcpy(o->argv, argv, (size_t)o->argc * sizeof *o->argv);
    o->options = table;
    o->option_count = count;
}

ofl_status compare_options_check(compare_options *o, int quiet)
{
    const struct {
        int given;
        const char *name;
    } beside[] = {{o->given.gpus, "--gpus"},
                  {o->given.peer_link, "--peer-link"},
                  {o->given.host_bandwidth, "--host-bandwidth"},
                  {o->given.host_flops, "--host-flops"}};
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        if (beside[i].given && !o->compare)
            return app_fail(OFL_ERROR_ARGUMENT, "%s has no effect without --compare; leave it out or give both", beside[i].name);
    }
    if (o->compare && quiet) return app_fail(OFL_ERROR_ARGUMENT, "--compare and --quiet contradict each other; give one");
    if (o->given.gpus && (o->gpus < 2 || o->gpus > COMPARE_GPUS_MOST))
        return app_fail(OFL_ERROR_ARGUMENT, "--gpus: a model is split over 2 GPUs or more, up to %u", COMPARE_GPUS_MOST);
    if (o->want == NULL) return OFL_OK;
    ofl_status status = want_parse(o->want, &o->want_tokens_per_second);
    return status == OFL_OK ? OFL_OK : app_fail(status, "--want: %s", app_error());
}

static void add_number(cJSON *tree, const char *key, bool known, double value)
{
    if (known) (void)cJSON_AddNumberToObject(tree, key, value);
    else (void)cJSON_AddNullToObject(tree, key);
}

static void add_text(cJSON *tree, const char *key, const char *text)
{
    if (text != NULL && *text != '\0') (void)json_add_text(tree, key, text);
    else (void)cJSON_AddNullToObject(tree, key);
}

static cJSON *way_to_json(const way *w)
{
    cJSON *tree = cJSON_CreateObject();
    bool known = w->job.tokens_per_second > 0, queue = w->queue.tokens_per_second > 0;
    (void)cJSON_AddStringToObject(tree, "way", w->name);
    (void)cJSON_AddStringToObject(tree, "title", w->title);
    add_number(tree, "tokens_per_second", known, w->job.tokens_per_second);
    add_number(tree, "step_seconds", known, w->job.step_seconds);
    add_number(tree, "sequences", known, w->job.sequences);
    add_number(tree, "error_band_percent", known, w->error_percent);
    add_number(tree, "queue_tokens_per_second", queue, w->queue.tokens_per_second);
    add_number(tree, "queue_sequences", queue, w->queue.sequences);
    (void)cJSON_AddBoolToObject(tree, "fits", w->fits);
    (void)cJSON_AddBoolToObject(tree, "precision_kept", w->kept);
    add_number(tree, "device_bytes", w->device_bytes > 0, (double)w->device_bytes);
    add_number(tree, "host_bytes", w->device_bytes > 0, (double)w->host_bytes);
    add_text(tree, "needs", w->needs);
    add_text(tree, "costs", w->costs);
    add_text(tree, "why_no_forecast", w->why);
    cJSON *sources = cJSON_AddObjectToObject(tree, "sources");
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        if (w->sources[i] != OFL_SOURCE_NONE)
            (void)cJSON_AddStringToObject(sources, ofl_figure_key((ofl_figure)i), ofl_source_name(w->sources[i]));
    }
    if (w->details != NULL) (void)cJSON_AddItemReferenceToObject(tree, "details", w->details);
    add_text(tree, "command", w->command);
    return tree;
}

cJSON *ways_to_json(const ways *list)
{
    cJSON *tree = cJSON_CreateArray();
    for (uint32_t i = 0; i < list->count; i++) (void)cJSON_AddItemToArray(tree, way_to_json(&list->rows[i]));
    return tree;
}

/* The plan goes in as it is: its bytes are what its identity is of. */
static ofl_status print_json(const compare_options *o, const char *plan, const ways *list, const want_answer *answer)
{
    cJSON *tree = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(tree, "schema", o->compare ? "ofload.compare/1" : "ofload.want/1");
    (void)cJSON_AddRawToObject(tree, "plan", plan);
    if (o->compare) (void)cJSON_AddItemToObject(tree, "ways", ways_to_json(list));
    if (o->want != NULL) (void)cJSON_AddItemToObject(tree, "want", want_to_json(answer));
    char *text = cJSON_PrintUnformatted(tree);
    if (text != NULL) (void)puts(text);
    cJSON_Delete(tree);
    cJSON_free(text);
    return text != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
}

ofl_status compare_show(compare_options *o, const compare_job *job, const char *json, int quiet)
{
    ways list = {0};
    want_answer answer = {0};
    ofl_status status = o->compare ? ways_collect(job, o, &list) : OFL_OK;
    if (status == OFL_OK && o->want != NULL) status = want_find(job, o->want_tokens_per_second, &answer);
    if (status == OFL_OK && json != NULL && !quiet) status = print_json(o, json, &list, &answer);
    if (status == OFL_OK && json == NULL && o->compare) compare_page(job, &list);
    if (status == OFL_OK && json == NULL && o->want != NULL && !quiet) want_print(job, &answer);
    o->missed = status == OFL_OK && o->want != NULL && !answer.reached;
    ways_free(&list);
    return status;
}

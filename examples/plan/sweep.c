/* Each value is planned for itself, from the same model and the same measured and given figures. */
#include "plan/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/cli.h"
#include "common/show.h"
#include "common/whole_file.h"
#include "plan/curve.h"
#include "plan/head.h"
#include "plan/picture.h"
#include "plan/sweep_values.h"

#define SCHEMA "ofload.sweep/1"
#define NAME_CELLS 12 /* of the first column */
#define CELLS 11      /* of the others */

typedef struct row {
    bool fits;
    char *why; /* owned: why not */
    char identity[72];
    ofl_budget budget;
    ofl_plan_settings settings;
    ofl_forecast forecast;
} row;

typedef struct sweep {
    sweep_values values;
    ofl_model *model;
    ofl_device *device;
    ofl_workload workload;
    char *figures; /* owned JSON: the machine before its defaults */
    ofl_machine *machine; /* of the last value */
    facts facts;   /* of the model alone */
    row rows[SWEEP_MOST];
    size_t fitting;
} sweep;

static void sweep_end(sweep *s)
{
    for (size_t i = 0; i < s->values.count; i++) free(s->rows[i].why);
    facts_free(&s->facts);
    ofl_string_free(s->figures);
    ofl_machine_destroy(s->machine);
    ofl_device_close(s->device);
    ofl_model_destroy(s->model);
}

static bool given(const plan_options *o, sweep_what what)
{
    const int flags[SWEEP_KINDS] = {[SWEEP_VRAM] = o->given.vram,
                                    [SWEEP_CONTEXT] = o->given.context,
                                    [SWEEP_SEQUENCES] = o->sequences != NULL,
                                    [SWEEP_LINK] = o->given.link};
    return flags[what] != 0;
}

static ofl_status read_values(const sweep_request *r, sweep *s)
{
    ofl_status status = sweep_values_read(r->text, &s->values);
    if (status != OFL_OK) return app_fail(status, "--sweep: %s", app_error());
    if (!given(r->options, s->values.what)) return OFL_OK;
    const char *option = sweep_option(s->values.what);
    return app_fail(OFL_ERROR_ARGUMENT, "%s and --sweep %s both give it; leave %s out", option, sweep_name(s->values.what), option);
}

/* Measured and given once. The largest memory size stands for all: a device must have that much. */
static ofl_status collect_figures(const sweep_request *r, sweep *s)
{
    ofl_machine *machine = NULL;
    plan_options options = *r->options;
    if (s->values.what == SWEEP_VRAM) {
        options.vram_bytes = (uint64_t)s->values.values[s->values.count - 1];
        options.given.vram = 1;
    }
    ofl_status status = plan_options_workload(&options, &s->workload);
    if (status == OFL_OK) status = app_forward(ofl_model_open(r->model, &s->model));
    if (status == OFL_OK) status = plan_options_check_model(&options, s->model);
    if (status == OFL_OK) status = plan_options_device(&options, &s->device);
    if (status == OFL_OK) status = plan_options_figures(&options, s->device, &machine);
    if (status == OFL_OK) status = app_forward(ofl_machine_to_json(machine, &s->figures));
    ofl_machine_destroy(machine);
    return status == OFL_OK ? facts_collect_model(s->model, &s->facts) : status;
}

static ofl_status make_machine(sweep *s, double value)
{
    ofl_figure figure = sweep_figure(s->values.what);
    ofl_machine_destroy(s->machine);
    s->machine = NULL;
    ofl_status status = ofl_machine_from_json(s->figures, strlen(s->figures), &s->machine);
    if (status == OFL_OK && figure != OFL_FIGURE_COUNT) status = ofl_machine_set(s->machine, figure, value, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_assume(s->machine);
    return app_forward(status);
}

static ofl_status fill_row(const ofl_plan *plan, row *to)
{
    to->budget.struct_size = sizeof to->budget;
    to->settings.struct_size = sizeof to->settings;
    to->forecast.struct_size = sizeof to->forecast;
    ofl_status status = ofl_plan_budget_get(plan, &to->budget);
    if (status == OFL_OK) status = ofl_plan_settings_get(plan, &to->settings);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &to->forecast);
    (void)snprintf(to->identity, sizeof to->identity, "%s", ofl_plan_identity(plan));
    to->fits = status == OFL_OK;
    return app_forward(status);
}

static ofl_status plan_row(sweep *s, size_t at)
{
    double value = s->values.values[at];
    row *to = &s->rows[at];
    ofl_plan *plan = NULL;
    ofl_workload workload = s->workload;
    if (s->values.what == SWEEP_CONTEXT) workload.context_tokens = (uint64_t)value;
    if (s->values.what == SWEEP_SEQUENCES) workload.sequences = (uint32_t)value;
    ofl_status status = make_machine(s, value);
    if (status != OFL_OK) return status;
    status = ofl_plan_make(s->model, s->machine, &workload, &plan);
    if (status == OFL_ERROR_NO_FIT) {
        to->why = strdup(ofl_error_message());
        return to->why != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    }
    status = status == OFL_OK ? fill_row(plan, to) : app_forward(status);
    ofl_plan_destroy(plan);
    s->fitting += status == OFL_OK;
    return status;
}

static char *show_decimal(char *buffer, double value) { return cli_show_bytes(buffer, (uint64_t)value, 0); }
static char *show_binary(char *buffer, double value) { return cli_show_bytes(buffer, (uint64_t)value, 1); }
static char *show_count(char *buffer, double value) { return cli_show_count(buffer, (uint64_t)value); }

/* In the unit that was asked for. */
static char *(*shower(const sweep *s))(char *, double)
{
    if (s->values.what == SWEEP_LINK) return cli_show_rate;
    if (s->values.what != SWEEP_VRAM) return show_count;
    return s->values.binary ? show_binary : show_decimal;
}

static char *show_value(const sweep *s, char *buffer, double value) { return shower(s)(buffer, value); }

static const char *const titles[SWEEP_KINDS] = {
    [SWEEP_VRAM] = "memory", [SWEEP_CONTEXT] = "context", [SWEEP_SEQUENCES] = "sequences", [SWEEP_LINK] = "link"};

static curve curve_of(const sweep *s, curve_point points[SWEEP_MOST])
{
    for (size_t i = 0; i < s->values.count; i++) {
        const row *r = &s->rows[i];
        curve_mark mark = !r->fits ? CURVE_NO_FIT : r->forecast.link_bound ? CURVE_POINT : CURVE_COMPUTE;
        points[i] = (curve_point){s->values.values[i], r->forecast.tokens_per_second, mark};
    }
    return (curve){.points = points,
                   .count = s->values.count,
                   .x_name = titles[s->values.what],
                   .log2_x = s->values.doubling,
                   .show_x = shower(s)};
}

static void print_title(const sweep *s)
{
    static const char *const names[] = {"resident", "streamed", "KV cache", "step", "tokens/s"};
    printf("\n%*s", NAME_CELLS, titles[s->values.what]);
    if (s->values.what != SWEEP_SEQUENCES) show_right("sequences", CELLS);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) show_right(names[i], CELLS);
    printf("  decided by\n");
}

static void print_row(const sweep *s, size_t at)
{
    char text[32];
    const row *r = &s->rows[at];
    show_right(show_value(s, text, s->values.values[at]), NAME_CELLS);
    if (!r->fits) {
        printf("  does not fit\n");
        return;
    }
    if (s->values.what != SWEEP_SEQUENCES) show_right(cli_show_count(text, r->forecast.sequences), CELLS);
    show_right(cli_show_bytes(text, r->budget.resident_bytes, 0), CELLS);
    show_right(cli_show_bytes(text, r->budget.stream_bytes_per_step, 0), CELLS);
    show_right(cli_show_bytes(text, r->budget.kv_bytes, 0), CELLS);
    show_right(cli_show_seconds(text, r->forecast.step.step_seconds), CELLS);
    show_right(cli_show_tokens(text, r->forecast.tokens_per_second), CELLS);
    printf("  %s\n", r->forecast.link_bound ? "link" : "compute");
}

/* The one that does not fit, next to those that do; count where all fit. */
static size_t nearest_unfit(const sweep *s)
{
    size_t count = s->values.count, found = count;
    bool rising = s->values.what == SWEEP_VRAM;
    for (size_t i = 0; i < count; i++) {
        if (!s->rows[i].fits && (rising || found == count)) found = i;
    }
    return found;
}

/* "tokens/s are a forecast, ±4 %, not measured"; buffer of 96. */
static char *show_bands(const sweep *s, char *buffer)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < s->values.count; i++) {
        if (!s->rows[i].fits) continue;
        least = fmin(least, s->rows[i].forecast.error_band_percent);
        most = fmax(most, s->rows[i].forecast.error_band_percent);
    }
    if (s->fitting == 0) buffer[0] = '\0';
    else if (least == most) (void)snprintf(buffer, 96, "tokens/s are a forecast, ±%.0f %%, not measured", most);
    else (void)snprintf(buffer, 96, "tokens/s are a forecast, ±%.0f to ±%.0f %%, not measured", least, most);
    return buffer;
}

static void print_curve(const sweep *s)
{
    curve_point points[SWEEP_MOST];
    curve c = curve_of(s, points);
    bool compute = false;
    for (size_t i = 0; i < c.count; i++) compute = compute || points[i].mark == CURVE_COMPUTE;
    if (!curve_drawn(&c)) return;
    printf("\n");
    curve_print(&c);
    if (compute || s->fitting < c.count)
        printf("%11s● copying decides%s%s\n", "", compute ? "   ○ computing decides" : "",
               s->fitting < c.count ? "   × does not fit" : "");
}

static ofl_status print_page(const sweep *s)
{
    char label[64], value[32], bands[96];
    ofl_status status = head_print(s->model, s->machine, &s->facts, sweep_figure(s->values.what));
    if (status != OFL_OK) return status;
    print_title(s);
    for (size_t i = 0; i < s->values.count; i++) print_row(s, i);
    if (s->fitting > 0) printf("each row is a plan of its own; %s\n", show_bands(s, bands));
    print_curve(s);
    size_t unfit = nearest_unfit(s);
    if (unfit == s->values.count) return OFL_OK;
    (void)snprintf(label, sizeof label, "%s does not fit: ", show_value(s, value, s->values.values[unfit]));
    show_wrapped(label, s->rows[unfit].why);
    return OFL_OK;
}

static void add_forecast(cJSON *to, const row *r)
{
    const struct { const char *key; double value; } numbers[] = {
        {"sequences", r->forecast.sequences},
        {"context", (double)r->settings.context_tokens},
        {"resident_bytes", (double)r->budget.resident_bytes},
        {"streamed_bytes", (double)r->budget.stream_bytes_per_step},
        {"kv_bytes", (double)r->budget.kv_bytes},
        {"total_bytes", (double)r->budget.total_bytes},
        {"step_seconds", r->forecast.step.step_seconds},
        {"link_seconds", r->forecast.step.link_seconds},
        {"compute_seconds", r->forecast.step.compute_seconds},
        {"lower_bound_seconds", r->forecast.lower_bound_seconds},
        {"tokens_per_second", r->forecast.tokens_per_second},
        {"error_band_percent", r->forecast.error_band_percent},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)cJSON_AddNumberToObject(to, numbers[i].key, numbers[i].value);
    (void)cJSON_AddStringToObject(to, "bound", r->forecast.link_bound ? "link" : "compute");
    if (r->forecast.knee_tokens > 0) (void)cJSON_AddNumberToObject(to, "knee_tokens", (double)r->forecast.knee_tokens);
    else (void)cJSON_AddNullToObject(to, "knee_tokens");
    (void)cJSON_AddStringToObject(to, "plan", r->identity);
}

/* What was measured and given for all rows: neither the figure that varies nor what is assumed from it. */
static void add_machine(const sweep *s, cJSON *to)
{
    cJSON *machine = cJSON_Parse(s->figures);
    if (sweep_figure(s->values.what) != OFL_FIGURE_COUNT) {
        const char *key = ofl_figure_key(sweep_figure(s->values.what));
        cJSON_DeleteItemFromObjectCaseSensitive(machine, key);
        cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(machine, "sources"), key);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(machine, "identity");
    (void)cJSON_AddItemToObject(to, "machine", machine);
}

static ofl_status print_json(const sweep *s)
{
    static const char *const units[SWEEP_KINDS] = {"bytes", "tokens", "sequences", "bytes/s"};
    cJSON *tree = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(tree, "schema", SCHEMA);
    (void)cJSON_AddStringToObject(tree, "model", ofl_model_name(s->model));
    add_machine(s, tree);
    (void)cJSON_AddStringToObject(tree, "what", sweep_name(s->values.what));
    (void)cJSON_AddStringToObject(tree, "unit", units[s->values.what]);
    cJSON *rows = cJSON_AddArrayToObject(tree, "rows");
    for (size_t i = 0; i < s->values.count; i++) {
        cJSON *one = cJSON_CreateObject();
        (void)cJSON_AddNumberToObject(one, "value", s->values.values[i]);
        (void)cJSON_AddBoolToObject(one, "fits", s->rows[i].fits);
        if (s->rows[i].fits) add_forecast(one, &s->rows[i]);
        else (void)cJSON_AddStringToObject(one, "why", s->rows[i].why);
        (void)cJSON_AddItemToArray(rows, one);
    }
    char *text = cJSON_PrintUnformatted(tree);
    cJSON_Delete(tree);
    if (text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    (void)puts(text);
    free(text);
    return OFL_OK;
}

static ofl_status show(const sweep_request *r, const sweep *s)
{
    if (r->quiet) return OFL_OK;
    return r->json ? print_json(s) : print_page(s);
}

static ofl_status draw(const sweep_request *r, const sweep *s)
{
    char bands[96], *text = NULL;
    curve_point points[SWEEP_MOST];
    if (r->svg == NULL || s->fitting == 0) return OFL_OK;
    const curve c = curve_of(s, points);
    ofl_status status = picture_sweep(s->model, s->machine, &s->facts, sweep_figure(s->values.what), &c, show_bands(s, bands), &text);
    if (status == OFL_OK) status = whole_file_write(r->svg, text, strlen(text));
    free(text);
    return status;
}

static ofl_status no_value_fits(const sweep *s)
{
    char value[32];
    size_t at = nearest_unfit(s);
    return app_fail(OFL_ERROR_NO_FIT, "no value of the sweep fits; %s: %s", show_value(s, value, s->values.values[at]), s->rows[at].why);
}

ofl_status sweep_run(const sweep_request *r)
{
    sweep *s = calloc(1, sizeof *s);
    if (s == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    ofl_status status = read_values(r, s);
    if (status == OFL_OK) status = collect_figures(r, s);
    for (size_t i = 0; i < s->values.count && status == OFL_OK; i++) status = plan_row(s, i);
    if (status == OFL_OK) status = draw(r, s);
    if (status == OFL_OK) status = show(r, s);
    if (status == OFL_OK && s->fitting == 0) status = no_value_fits(s);
    sweep_end(s);
    free(s);
    return status;
}

/* ofload-plan: which bytes of a model live where, and how fast it will run. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ofload/ofload.h>

#include "common/cli.h"
#include "common/plan_options.h"
#include "common/target.h"
#include "common/whole_file.h"
#include "plan/check_page.h"
#include "plan/compare.h"
#include "plan/page.h"
#include "plan/picture.h"
#include "plan/sweep.h"

#define OWN_OPTION_COUNT 6

typedef struct settings {
    plan_options plan;
    compare_options compare;
    const char *output, *check, *sweep, *svg;
    int json, quiet;
} settings;

/* All that is made on the way; ends with its owner. */
typedef struct work {
    ofl_model *model;
    ofl_device *device;
    ofl_machine *machine;
    ofl_workload workload;
    ofl_plan *plan;
} work;

static void work_end(work *w)
{
    ofl_plan_destroy(w->plan);
    ofl_machine_destroy(w->machine);
    ofl_device_close(w->device);
    ofl_model_destroy(w->model);
}

static ofl_status check_options(settings *s)
{
    if (s->json && s->quiet) return app_fail(OFL_ERROR_ARGUMENT, "--json and --quiet contradict each other; give one");
    if (s->sweep != NULL && s->output != NULL)
        return app_fail(OFL_ERROR_ARGUMENT, "--sweep makes many plans and --output writes one; leave one of them out");
    if (s->sweep != NULL && compare_asked(&s->compare))
        return app_fail(OFL_ERROR_ARGUMENT, "--sweep makes many plans, --compare and --want are about one; leave one of them out");
    if (s->plan.machine != NULL && s->plan.device != NULL && strcmp(s->plan.device, "none") != 0)
        return app_fail(OFL_ERROR_ARGUMENT, "--machine and --device both say what the machine is; give one");
    return compare_options_check(&s->compare, s->quiet);
}

static ofl_status make_plan(const settings *s, const char *path, work *w)
{
    ofl_status status = plan_options_workload(&s->plan, &w->workload);
    if (status == OFL_OK) status = app_forward(ofl_model_open(path, &w->model));
    if (status == OFL_OK) status = plan_options_check_model(&s->plan, w->model);
    if (status == OFL_OK) status = plan_options_device(&s->plan, &w->device);
    if (status == OFL_OK) status = plan_options_machine(&s->plan, w->device, &w->machine);
    if (status == OFL_OK) status = app_forward(ofl_plan_make(w->model, w->machine, &w->workload, &w->plan));
    return status;
}

static ofl_status write_plan(const char *path, const char *json)
{
    char *text = NULL;
    int bytes = asprintf(&text, "%s\n", json);
    if (bytes < 0) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    ofl_status status = whole_file_write(path, text, (size_t)bytes);
    free(text);
    return status;
}

static page page_of(const settings *s, const work *w)
{
    return (page){w->model, w->machine, w->plan, s->plan.given.context, s->plan.given.resident_layers};
}

static ofl_status draw_plan(const settings *s, const work *w)
{
    char *text = NULL;
    const page p = page_of(s, w);
    ofl_status status = s->svg != NULL ? picture_plan(&p, &text) : OFL_OK;
    if (status == OFL_OK && s->svg != NULL) status = whole_file_write(s->svg, text, strlen(text));
    free(text);
    return status;
}

static ofl_status print_notes(const work *w)
{
    for (uint32_t i = 0; i < ofl_model_note_count(w->model); i++) (void)fprintf(stderr, "note: %s\n", ofl_model_note(w->model, i));
    for (uint32_t i = 0; i < ofl_machine_note_count(w->machine); i++) (void)fprintf(stderr, "note: %s\n", ofl_machine_note(w->machine, i));
    return OFL_OK;
}

static ofl_status show(settings *s, const work *w, const char *json)
{
    const page p = page_of(s, w);
    const compare_job job = {w->model, w->machine, &w->workload, w->plan, w->device};
    ofl_status status = s->quiet || s->json ? OFL_OK : page_print(&p);
    if (status == OFL_OK && compare_asked(&s->compare)) status = compare_show(&s->compare, &job, s->json ? json : NULL, s->quiet);
    else if (s->json && !s->quiet) (void)puts(json);
    return status == OFL_OK && s->json && !s->quiet ? print_notes(w) : status;
}

static ofl_status flush_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return OFL_OK;
    return app_fail(OFL_ERROR_IO, "standard output cannot be written: %s", strerror(errno));
}

/* Before anything is measured: no output goes over any of the files that it is made from. */
static ofl_status check_target(const settings *s, const char *option, const char *path, const char *model)
{
    ofl_status status = target_refuse_weights(option, path, model);
    if (status == OFL_OK) status = target_refuse(option, path, s->plan.machine, "the machine file in use");
    return status == OFL_OK && path != NULL ? whole_file_check(path) : status;
}

static ofl_status check_targets(const settings *s, const char *model)
{
    ofl_status status = check_target(s, "--output", s->output, model);
    if (status == OFL_OK) status = check_target(s, "--svg", s->svg, model);
    return status == OFL_OK ? target_refuse("--svg", s->svg, s->output, "where --output goes") : status;
}

static ofl_status run(settings *s, const char *path, work *w)
{
    char *json = NULL;
    ofl_status status = make_plan(s, path, w);
    if (status == OFL_OK) status = app_forward(ofl_plan_to_json(w->plan, &json));
    if (status == OFL_OK && s->output != NULL) status = write_plan(s->output, json);
    if (status == OFL_OK) status = draw_plan(s, w);
    if (status == OFL_OK) status = show(s, w, json);
    ofl_string_free(json);
    return status;
}

/* It has its own machine and job: nothing that shapes a plan says anything about it. */
static int check_plan(const cli_program *program, const settings *s, const char *model)
{
    static const char *const with[] = {"--check", "--json", "--quiet", NULL};
    const char *other = cli_given_beside(program, with);
    ofl_status status = OFL_OK;
    if (other != NULL)
        status = app_fail(OFL_ERROR_ARGUMENT, "%s has no effect beside --check, which makes no plan; leave one of them out", other);
    if (status == OFL_OK) status = check_page_print(s->check, model, s->json ? CHECK_JSON : s->quiet ? CHECK_NOTHING : CHECK_LINES);
    if (status == OFL_OK) status = flush_output();
    return status == OFL_OK ? EXIT_DONE : cli_complain(program, status);
}

/* A sweep makes many plans, of which none is written. */
static ofl_status run_mode(settings *s, const char *path, work *w)
{
    const sweep_request sweep = {s->sweep, &s->plan, path, s->svg, s->json, s->quiet};
    ofl_status status = plan_options_check(&s->plan);
    if (status == OFL_OK) status = check_targets(s, path);
    if (status != OFL_OK) return status;
    status = s->sweep != NULL ? sweep_run(&sweep) : run(s, path, w);
    return status == OFL_OK ? flush_output() : status;
}

static void own_table(settings *s, cli_option rows[OWN_OPTION_COUNT])
{
    const cli_option table[OWN_OPTION_COUNT] = {
        {"--sweep", CLI_TEXT, &s->sweep, NULL, "WHAT=FROM..TO", NULL, "plan for each of several values of WHAT (below)"},
        {"--output", CLI_TEXT, &s->output, NULL, "PLAN.json", NULL, "write the plan there, for ofload-batch --plan"},
        {"--svg", CLI_TEXT, &s->svg, NULL, "FILE.svg", NULL, "draw the plan, or the sweep's curve, there"},
        {"--check", CLI_TEXT, &s->check, NULL, "PLAN.json", NULL, "verify this plan against MODEL, apart from what made it; makes none"},
        {"--json", CLI_FLAG, &s->json, NULL, NULL, NULL, "print JSON instead of the page for people"},
        {"--quiet", CLI_FLAG, &s->quiet, NULL, NULL, NULL, "print nothing: for --output and --svg, or for the exit status alone"},
    };
    memcpy(rows, table, sizeof table);
}

int main(int argc, char **argv)
{
    settings s = {0};
    cli_option options[PLAN_OPTION_COUNT + OWN_OPTION_COUNT + COMPARE_OPTION_COUNT];
    plan_options_table(&s.plan, options);
    own_table(&s, options + PLAN_OPTION_COUNT);
    compare_options_table(&s.compare, options + PLAN_OPTION_COUNT + OWN_OPTION_COUNT);
    const cli_program program = {
        "ofload-plan", "[options] MODEL",
        "Shows where the weights of a model would live, what is copied each step, and how fast it would run.\n"
        "MODEL is a GGUF file (any part of a split one), a Hugging Face folder, or a description in JSON. Only headers are read.",
        "SIZE: bytes, or a number with kB, MB, GB, TB (powers of ten) or KiB, MiB, GiB, TiB (powers of two);\n"
        "a bare k, M, G or T is refused, since it can be read both ways. RATE: 12GB/s, 25TFLOP/s.\n"
        SWEEP_SYNTAX
        COMPARE_SYNTAX
        "Without --device, --machine and --vram the first GPU is measured, if there is one.\n"
        "Exit status: 0 done, 1 failed, or a plan that is wrong, 2 wrong usage, 3 the model cannot be placed in what was given,\n"
        "or the speed of --want is not reached.",
        options, sizeof options / sizeof options[0]};
    int exit_status = EXIT_DONE;
    compare_options_keep(&s.compare, argc, argv, options, sizeof options / sizeof options[0]);
    ofl_status status = cli_parse(&program, &argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK && argc != 2)
        status = app_fail(OFL_ERROR_ARGUMENT, "one model is needed, %d given; ofload-plan --help shows how", argc - 1);
    if (status == OFL_OK) status = check_options(&s);
    if (status == OFL_OK && s.check != NULL) return check_plan(&program, &s, argv[1]);
    work w = {0};
    if (status == OFL_OK) status = run_mode(&s, argv[1], &w);
    work_end(&w);
    if (status != OFL_OK) return cli_complain(&program, status);
    return s.compare.missed ? EXIT_NO_FIT : EXIT_DONE;
}

/* replay NAME: which one, and its options. */
#include "bench_replay.h"

#include <string.h>

typedef enum what { WHAT_3060, WHAT_PUBLISHED, WHAT_NONE } what;

static what what_of(const char *name) { return strcmp(name, "3060") == 0 ? WHAT_3060 : strcmp(name, "published") == 0 ? WHAT_PUBLISHED : WHAT_NONE; }

static ofl_status check(const replay_3060 *r, what w, int argc, const cli_program *program)
{
    static const char *const with[] = {"--json", "--quiet", NULL};
    const char *other = cli_given_beside(program, with);
    if (argc != 2 || w == WHAT_NONE) return app_fail(OFL_ERROR_ARGUMENT, "give one of: 3060, published");
    if (w == WHAT_PUBLISHED && other != NULL)
        return app_fail(OFL_ERROR_ARGUMENT, "%s: has no effect on \"published\", which runs nothing; leave it out", other);
    if (!(r->scale >= 0.001 && r->scale <= 1)) return app_fail(OFL_ERROR_ARGUMENT, "--scale: give a number from 0.001 to 1");
    if (r->steps == 0) return app_fail(OFL_ERROR_ARGUMENT, "--steps: give at least 1");
    return OFL_OK;
}

int bench_replay(int argc, char **argv)
{
    replay_3060 r = {.scale = 1, .steps = 5};
    bench_output output = {0};
    int exit_status = EXIT_DONE, scale_given = 0, steps_given = 0, compute_given = 0;
    const cli_option options[] = {
        {"3060", CLI_WORD, NULL, NULL, NULL, NULL,
         "an RTX 3060 that streams Qwen2.5-7B at 16 bits, on the simulated device: the published layout, then this project's two plans"},
        {"published", CLI_WORD, NULL, NULL, NULL, NULL,
         "throughput of other engines beside forecasts for the same hardware; nothing runs"},
        {"--scale", CLI_NUMBER, &r.scale, &scale_given, "NUMBER", NULL,
         "a share of the model's bytes, with memory and rates scaled alike: times stay, memory and precision shrink (default 1: 18 GB)"},
        {"--steps", CLI_COUNT, &r.steps, &steps_given, "N", NULL, "steps measured in each row, after one that is not (default 5)"},
        {"--compute", CLI_CHOICE, &r.compute, &compute_given, "WHICH", "both|real|modelled",
         "rows of real products on the wall clock, of a modelled GPU on the virtual clock, or both (default both)"},
        BENCH_OUTPUT_OPTIONS(output),
    };
    const cli_program program = {"ofload-bench replay", "[options] 3060|published",
                                 "Shows published experiments beside this project's forecast and measurement.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = cli_parse(&program, &argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    what w = status == OFL_OK && argc == 2 ? what_of(argv[1]) : WHAT_NONE;
    if (status == OFL_OK) status = check(&r, w, argc, &program);
    if (status == OFL_OK) status = w == WHAT_3060 ? replay_3060_rows(&r, output, &report) : replay_published_rows(output, &report);
    return bench_report_close(report, &program, status);
}

/* compare: the same shapes, memory and link through this engine and, in the same run, through PyTorch on the CPU with weights fetched
 * layer by layer (compare_torch.py). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cjson/cJSON.h>

#include "accuracy_run.h"
#include "bench.h"

enum { COMMAND_BYTES = 4096, ANSWER_BYTES = 4096, CASES = 8 };
static const double residents[] = {0.25, 0.6};
static const uint32_t counts[] = {1, 24};

typedef struct comparing {
    const char *python, *script;
    uint64_t steps, torch_threads;
    int torch_threads_given;
    double link, seconds;
    uint32_t clock;
    bench_output output;
    const void *weights;
    int skipped; /* the script's packages are missing */
} comparing;

/* ---- the script ---- */

/* In single quotes for the shell; nothing in them ends them. */
static ofl_status check_path(const char *option, const char *path)
{
    if (strchr(path, '\'') == NULL && strlen(path) < COMMAND_BYTES / 4) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s: too long, or a quote in it", option);
}

static void make_command(const comparing *c, const accuracy_point *p, double memory, char *out)
{
    const made_shape *s = &p->shape;
    (void)snprintf(out, COMMAND_BYTES,
                   "'%s' '%s' --layers %u --hidden %u --heads %u --kv-heads %u --ffn %u --vocabulary %u --sequences %u --context %d "
                   "--memory %.0f --link %.0f --steps %llu --threads %llu",
                   c->python, c->script, s->layers, s->hidden, s->heads, s->kv_heads, s->ffn, s->vocabulary, p->decoding,
                   ACCURACY_CONTEXT, memory, p->link, (unsigned long long)c->steps, (unsigned long long)c->torch_threads);
}

static ofl_status run_script(comparing *c, const char *command, cJSON **out)
{
    char answer[ANSWER_BYTES];
    FILE *from = popen(command, "r");
    if (from == NULL) return app_fail(OFL_ERROR_IO, "%s cannot be started: %s", c->python, strerror(errno));
    size_t bytes = fread(answer, 1, sizeof answer - 1, from);
    int status = pclose(from);
    answer[bytes] = '\0';
    c->skipped = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED;
    if (c->skipped)
        return app_fail(OFL_ERROR_UNSUPPORTED,
                        "PyTorch and accelerate are not there for %s; install_compare of tools/setup.sh gets them; or give --python",
                        c->python);
    *out = status == 0 ? cJSON_Parse(answer) : NULL;
    if (*out != NULL && cJSON_IsNumber(cJSON_GetObjectItem(*out, "step_seconds"))) return OFL_OK;
    cJSON_Delete(*out);
    return app_fail(OFL_ERROR_IO, "%s: no result of %s", c->script, c->python);
}

/* ---- rows ---- */

static void torch_row(bench_report *report, const char *label, const accuracy_point *p, const cJSON *answer)
{
    static const char *const numbers[] = {"least_seconds", "most_seconds", "fetch_seconds", "fetched_bytes", "resident_layers", "threads"};
    double step = cJSON_GetObjectItem(answer, "step_seconds")->valuedouble;
    const char *versions = cJSON_GetStringValue(cJSON_GetObjectItem(answer, "versions"));
    bench_report_row(report, label);
    bench_report_text(report, "through", versions != NULL ? versions : "PyTorch");
    bench_report_number(report, "step_seconds", step);
    bench_report_number(report, "tokens_per_second", p->decoding / step);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const cJSON *item = cJSON_GetObjectItem(answer, numbers[i]);
        if (cJSON_IsNumber(item)) bench_report_number(report, numbers[i], item->valuedouble);
    }
}

static void engine_row(bench_report *report, const char *label, const accuracy_point *p, const accuracy_result *own, double torch_step)
{
    bench_report_row(report, label);
    bench_report_text(report, "through", "libofload");
    bench_report_number(report, "step_seconds", own->step);
    bench_report_number(report, "tokens_per_second", p->decoding / own->step);
    bench_report_number(report, "fetched_bytes", own->streamed_bytes);
    bench_report_number(report, "compute_seconds", own->compute);
    bench_report_number(report, "forecast_seconds", own->forecast.step_seconds);
    bench_report_number(report, "error_percent", 100 * (own->step / own->forecast.step_seconds - 1));
    bench_report_number(report, "times_as_fast", torch_step / own->step);
}

static ofl_status run_case(comparing *c, bench_report *report, const accuracy_shape *shape, double resident, uint32_t decoding)
{
    const accuracy_point p = {.shape = shape->shape, .resident = resident, .link = c->link, .decoding = decoding};
    const accuracy_settings settings = {.weights = c->weights, .seconds = c->seconds, .products = !c->clock, .clock = c->clock};
    char label[96], command[COMMAND_BYTES];
    accuracy_result own;
    cJSON *answer = NULL;
    ofl_status status = accuracy_run(&p, &settings, &own);
    if (status != OFL_OK) return status;
    make_command(c, &p, own.memory_bytes, command);
    status = run_script(c, command, &answer);
    if (status != OFL_OK) return status;
    (void)snprintf(label, sizeof label, "%s, %.0f %% in memory, %u decoding", shape->name, 100 * resident, decoding);
    torch_row(report, label, &p, answer);
    engine_row(report, label, &p, &own, cJSON_GetObjectItem(answer, "step_seconds")->valuedouble);
    cJSON_Delete(answer);
    return OFL_OK;
}

static ofl_status run_cases(comparing *c, bench_report *report)
{
    void *weights = NULL;
    ofl_status status = accuracy_weights_make(&weights);
    c->weights = weights;
    for (int i = 0; i < CASES && status == OFL_OK; i++)
        status = run_case(c, report, &accuracy_shapes[i / 4], residents[i / 2 % 2], counts[i % 2]);
    free(weights);
    return status;
}

static ofl_status check(const comparing *c)
{
    if (c->steps == 0 || c->steps > 1000) return app_fail(OFL_ERROR_ARGUMENT, "--steps: give 1 to 1000");
    if (c->torch_threads_given && (c->torch_threads == 0 || c->torch_threads > 256))
        return app_fail(OFL_ERROR_ARGUMENT, "--torch-threads: give 1 to 256");
    if (!(c->seconds > 0 && c->seconds <= 600)) return app_fail(OFL_ERROR_ARGUMENT, "--seconds: give a number above 0, up to 600");
    ofl_status status = check_path("--python", c->python);
    return status == OFL_OK ? check_path("--script", c->script) : status;
}

int bench_compare(int argc, char **argv)
{
    comparing c = {.python = "python3", .script = OFLOAD_COMPARE_SCRIPT, .steps = 7, .link = 1e9, .seconds = 2};
    int exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--python", CLI_TEXT, &c.python, NULL, "PROGRAM", NULL, "a Python that has torch and accelerate (default python3)"},
        {"--script", CLI_TEXT, &c.script, NULL, "FILE", NULL, "what it runs (default bench/compare_torch.py of this source)"},
        {"--link", CLI_RATE, &c.link, NULL, "RATE", NULL, "of both (default 1GB/s)"},
        {"--seconds", CLI_NUMBER, &c.seconds, NULL, "N", NULL, "about how long this engine's steps are measured (default 2)"},
        {"--steps", CLI_COUNT, &c.steps, NULL, "N", NULL, "of PyTorch, after two that are not measured (default 7)"},
        {"--torch-threads", CLI_COUNT, &c.torch_threads, &c.torch_threads_given, "N", NULL,
         "of PyTorch (default: its own choice, all cores)"},
        {"--clock", CLI_CHOICE, &c.clock, NULL, "CLOCK", "wall|virtual",
         "of the simulated device; virtual: for tests, this engine computes nothing (default wall)"},
        BENCH_OUTPUT_OPTIONS(c.output),
    };
    const cli_program program = {"ofload-bench compare", "[options]",
                                 "Runs the same shapes, memory for weights and link through PyTorch with weights fetched per layer, and "
                                 "through this engine.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = check(&c);
    if (status == OFL_OK) status = bench_report_open("compare", NULL, c.output, &report);
    if (status == OFL_OK) bench_report_simulated(report, "sim:vram=4GB", (int)c.clock);
    if (status == OFL_OK) status = run_cases(&c, report);
    exit_status = bench_report_close(report, &program, status);
    return c.skipped ? EXIT_SKIPPED : exit_status;
}

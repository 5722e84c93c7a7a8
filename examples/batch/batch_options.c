#include "batch/batch_options.h"

#include <string.h>

#include "batch/kv.h"

#define DEFAULT_MAX_TOKENS 256
#define OWN_OPTIONS 19

static const char summary[] =
    "Answers a file of prompts (JSON lines as in OpenAI's batch format) with a model that may be bigger than the device:\n"
    "what does not fit is copied to it again in every step, for many sequences at once. A run that was stopped, by whatever,\n"
    "goes on where it stopped when started again.";
static const char epilogue[] =
    "Lines are read up to 32 MiB each. A custom_id that is there twice is refused before anything runs; any other bad line\n"
    "gets an error line.\n"
    "logprobs are the model's own: of its logits over all tokens, before temperature, top_p and top_k.\n"
    "A plan that is made here counts what products on a GPU work in. A --plan made by ofload-plan does not: they get half of its\n"
    "workspace, which may be slower.\n"
    "exit status: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 4 done with error lines, 75 stopped by SIGTERM or SIGUSR1,\n"
    "130 by SIGINT (run again, both go on)";

static cli_option rows[PLAN_OPTION_COUNT + OWN_OPTIONS];
static cli_program program = {"ofload-batch", "--model MODEL --input IN.jsonl --output OUT.jsonl [options]", summary, epilogue, rows, 0};

static void add(const cli_option *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(options[i].name, "--queue") != 0) rows[program.option_count++] = options[i]; /* the input is the queue */
    }
}

static void make_table(batch_options *o)
{
    const cli_option own[] = {
        {"merge", CLI_COMMAND, NULL, NULL, NULL, NULL, "joins the outputs of shards"},
        {"--model", CLI_TEXT, &o->model, NULL, "MODEL", NULL, "a GGUF file or a Hugging Face folder"},
        {"--input", CLI_TEXT, &o->input, NULL, "IN.jsonl", NULL, "the requests, one a line"},
        {"--output", CLI_TEXT, &o->output, NULL, "OUT.jsonl", NULL,
         "the answers, in the order they are done; beside it OUT.jsonl.state.json"},
    };
    const cli_option more[] = {
        {"--plan", CLI_TEXT, &o->plan_file, NULL, "PLAN.json", NULL, "use this plan (ofload-plan --output) instead of making one"},
        {"--compute", CLI_CHOICE, &o->compute, &o->given.compute, "bf16|f32", "bf16|f32",
         "what weights are expanded to for products (default: bf16)"},
        {"--threads", CLI_COUNT, &o->threads, &o->given.threads, "N", NULL,
         "for products on the CPU (default: the cores less one, which the link needs)"},
        {"--max-tokens-default", CLI_COUNT, &o->max_tokens_default, &o->given.max_tokens_default, "N", NULL,
         "most new tokens where a request does not say (default: 256)"},
        {"--chat-template", CLI_TEXT, &o->chat_template, NULL, "NAME", NULL,
         "chatml, llama3, mistral, gemma or none (default: by the model)"},
        {"--shard", CLI_TEXT, &o->shard_text, NULL, "I/N|auto", NULL,
         "only every N-th request, I from 0 to N-1, into OUT.shard-I-of-N.jsonl; auto: as Slurm or Kubernetes says"},
        {"--ordered", CLI_FLAG, &o->ordered, NULL, NULL, NULL, "put the finished output in the order of the input"},
        {"--overwrite", CLI_FLAG, &o->overwrite, NULL, NULL, NULL, "start anew, whatever the output holds"},
        {"--retry-errors", CLI_FLAG, &o->retry_errors, NULL, NULL, NULL, "try the requests again that became error lines"},
        {"--report", CLI_TEXT, &o->report, NULL, "REPORT.json", NULL, "forecast and measurement side by side"},
        {"--dry-run", CLI_FLAG, &o->dry_run, NULL, NULL, NULL, "plan and forecast only"},
        {"--no-progress", CLI_FLAG, &o->no_progress, NULL, NULL, NULL, "no progress on standard error"},
        {"--quiet", CLI_FLAG, &o->quiet, NULL, NULL, NULL, "nothing but errors"},
        {"--json", CLI_FLAG, &o->json, NULL, NULL, NULL, "the report on standard output instead of the summary"},
    };
    cli_option planning[PLAN_OPTION_COUNT];
    plan_options_table(&o->plan, planning);
    for (size_t i = 0; i < PLAN_OPTION_COUNT; i++) {
        if (strcmp(planning[i].name, "--objective") == 0) planning[i].help = "what the plan is best at (default: throughput)";
        if (strcmp(planning[i].name, "--context") == 0)
            planning[i].help = "tokens per sequence, prompt and answer (default: as the longest request needs)";
        if (strcmp(planning[i].name, "--kv-type") == 0) planning[i].argument = planning[i].choices = KV_TYPES_SUPPORTED;
        if (strcmp(planning[i].name, "--device") == 0)
            planning[i].help = "what it runs on: cuda:0 is the default; sim:vram=64MiB,h2d=1GB/s simulates one";
    }
    program.option_count = 0;
    add(own, sizeof own / sizeof own[0]);
    add(planning, PLAN_OPTION_COUNT);
    add(more, sizeof more / sizeof more[0]);
}

/* With a plan there is nothing left that these could shape. */
static ofl_status check_plan(const batch_options *o)
{
    const plan_options *p = &o->plan;
    const struct {
        bool given;
        const char *name;
    } shaping[] = {
        {p->machine != NULL, "--machine"},
        {p->given.vram, "--vram"},
        {p->given.host, "--host-ram"},
        {p->given.link, "--link"},
        {p->given.link_pageable, "--link-pageable"},
        {p->given.device_bandwidth, "--device-bandwidth"},
        {p->given.device_flops, "--device-flops"},
        {p->given.context, "--context"},
        {p->sequences != NULL, "--sequences"},
        {p->given.prefill_chunk, "--prefill-chunk"},
        {p->given.kv_type, "--kv-type"},
        {p->given.objective, "--objective"},
        {p->given.resident_layers, "--resident-layers"},
        {p->given.overhead, "--overhead"},
        {p->headroom != NULL, "--headroom"},
        {p->cut != NULL, "--cut"},
        {o->given.compute, "--compute"},
    };
    for (size_t i = 0; o->plan_file != NULL && i < sizeof shaping / sizeof shaping[0]; i++) {
        if (shaping[i].given)
            return app_fail(OFL_ERROR_ARGUMENT, "%s has no effect beside --plan, which has it settled; leave one of them out",
                            shaping[i].name);
    }
    return OFL_OK;
}

static ofl_status check(const batch_options *o)
{
    const struct {
        const void *value;
        const char *name;
    } needed[] = {{o->model, "--model MODEL"}, {o->input, "--input IN.jsonl"}, {o->output, "--output OUT.jsonl"}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == NULL) return app_fail(OFL_ERROR_ARGUMENT, "%s is needed; see --help", needed[i].name);
    }
    if (o->max_tokens_default == 0 || o->max_tokens_default > 1000000000)
        return app_fail(OFL_ERROR_ARGUMENT, "--max-tokens-default: a count from 1 to 1000000000 is needed");
    if (o->given.threads && (o->threads == 0 || o->threads > 4096))
        return app_fail(OFL_ERROR_ARGUMENT, "--threads: a count from 1 to 4096 is needed");
    if (o->overwrite && o->retry_errors)
        return app_fail(OFL_ERROR_ARGUMENT,
                        "--retry-errors has no effect beside --overwrite, which redoes everything; leave one of them out");
    if (o->dry_run && (o->retry_errors || o->ordered))
        return app_fail(OFL_ERROR_ARGUMENT, "%s has no effect in a dry run; leave one of them out",
                        o->ordered ? "--ordered" : "--retry-errors");
    ofl_status status = check_plan(o);
    return status == OFL_OK ? plan_options_check(&o->plan) : status;
}

ofl_status batch_options_read(int argc, char **argv, batch_options *out, const cli_program **program_out, int *exit_out)
{
    *out = (batch_options){.max_tokens_default = DEFAULT_MAX_TOKENS, .plan = {.objective = OFL_THROUGHPUT}};
    *program_out = &program;
    make_table(out);
    ofl_status status = cli_parse(&program, &argc, argv, exit_out);
    if (status != OFL_OK) return status;
    *exit_out = EXIT_USAGE;
    if (argc > 1) return app_fail(OFL_ERROR_ARGUMENT, "\"%.60s\" is no option; ofload-batch --help lists them", argv[1]);
    status = check(out);
    return status == OFL_OK ? shard_parse(out->shard_text, &out->shard) : status;
}

#include "batch/merge.h"

#include <stdio.h>
#include <sys/resource.h>

#include <cjson/cJSON.h>

#include "batch/input.h"
#include "batch/output.h"
#include "batch/resume.h"
#include "common/cli.h"
#include "common/json_text.h"
#include "common/target.h"

typedef struct merge_options {
    const char *input, *output;
    int overwrite, quiet, json;
} merge_options;

typedef struct merge {
    const merge_options *options;
    input in;
    output *parts;
    uint32_t part_count;
    resume_found all;
} merge;

static ofl_status check_paths(const merge *m, char **paths)
{
    output there = {.fd = -1};
    const char *to = m->options->output;
    ofl_status status = target_refuse("--output", to, m->options->input, "the input file itself");
    for (uint32_t i = 0; i < m->part_count && status == OFL_OK; i++) {
        status = target_refuse("--output", to, paths[i], "one of the parts");
        if (status == OFL_OK && target_same(paths[i], m->options->input))
            status = app_fail(OFL_ERROR_ARGUMENT, "the part %s is the input file itself; name the shards' outputs", paths[i]);
    }
    if (status == OFL_OK && !m->options->overwrite && output_open_read(to, &there) != OFL_END)
        status = app_fail(OFL_ERROR_ARGUMENT, "--output %s is there already; name another, or give --overwrite", to);
    output_drop(&there);
    return status;
}

/* Marks in the input what a part holds. */
static ofl_status read_part(merge *m, uint32_t number, const char *path)
{
    output *part = &m->parts[number];
    resume_found found;
    ofl_status status = output_open_read(path, part);
    if (status == OFL_END) return app_fail(OFL_ERROR_NOT_FOUND, "%s: there is no such file", path);
    part->part = number;
    if (status == OFL_OK) status = resume_read(&m->in, part, &found);
    if (status != OFL_OK) return status;
    if (found.repaired)
        return app_fail(OFL_ERROR_FORMAT, "%s: ends in the middle of a line: its run was stopped; run that shard again to finish it",
                        path);
    m->all.answered += found.answered;
    m->all.failed += found.failed;
    return OFL_OK;
}

/* Names the first few that are missing. */
static ofl_status check_all(const input *in)
{
    char lines[200] = "";
    size_t missing = 0, used = 0;
    for (size_t i = 0; i < in->count; i++) {
        if (in->entries[i].state != ENTRY_WAITING) continue;
        if (missing++ < 8)
            used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%llu", used > 0 ? ", " : "",
                                     (unsigned long long)in->entries[i].line);
    }
    if (missing == 0) return OFL_OK;
    return app_fail(OFL_ERROR_FORMAT, "%zu of %zu requests are in no part: those of input line %s%s; run their shards to the end first",
                    missing, in->count, lines, missing > 8 ? ", …" : "");
}

static ofl_status write_joined(merge *m)
{
    output_replacement r;
    buffer room = {0};
    ofl_status status = output_replace_begin(m->options->output, &r);
    if (status != OFL_OK) return status;
    for (size_t i = 0; i < m->in.count && status == OFL_OK; i++)
        status = resume_copy(&m->parts[m->in.entries[i].written_part], &r.out, &m->in.entries[i], &room);
    buffer_free(&room);
    if (status == OFL_OK) return output_replace_finish(&r, NULL);
    output_replace_cancel(&r);
    return status;
}

static ofl_status run_merge(merge *m, char **paths)
{
    ofl_status status = input_open(m->options->input, &m->in);
    if (status == OFL_OK) status = check_paths(m, paths);
    if (status != OFL_OK) return status;
    m->parts = calloc(m->part_count, sizeof *m->parts);
    if (m->parts == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < m->part_count; i++) m->parts[i].fd = -1;
    for (uint32_t i = 0; i < m->part_count && status == OFL_OK; i++) status = read_part(m, i, paths[i]);
    if (status == OFL_OK) status = check_all(&m->in);
    return status == OFL_OK ? write_joined(m) : status;
}

/* All parts are open at once; a big array has more of them than a process may open by default. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static char *as_json(const merge *m)
{
    cJSON *root = cJSON_CreateObject(), *requests = cJSON_AddObjectToObject(root, "requests");
    bool made = cJSON_AddNumberToObject(requests, "total", (double)m->in.count) != NULL &&
                cJSON_AddNumberToObject(requests, "done", (double)m->all.answered) != NULL &&
                cJSON_AddNumberToObject(requests, "failed", (double)m->all.failed) != NULL &&
                json_add_text(root, "output", m->options->output) != NULL;
    char *text = made ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    return text;
}

static ofl_status print_summary(const merge *m)
{
    const merge_options *o = m->options;
    char *json = o->json ? as_json(m) : NULL;
    if (o->json && json == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    if (o->json) (void)puts(json);
    else if (!o->quiet)
        printf("%llu answers and %llu error lines: %s\n", (unsigned long long)m->all.answered, (unsigned long long)m->all.failed,
               o->output);
    cJSON_free(json);
    return fflush(stdout) == 0 ? OFL_OK : app_fail(OFL_ERROR_IO, "standard output: writing the summary failed");
}

int merge_main(int argc, char **argv)
{
    merge_options o = {0};
    const cli_option rows[] = {
        {"--input", CLI_TEXT, &o.input, NULL, "IN.jsonl", NULL, "the requests, as the shards were given them"},
        {"--output", CLI_TEXT, &o.output, NULL, "ALL.jsonl", NULL, "all answers, in the order of the input"},
        {"--overwrite", CLI_FLAG, &o.overwrite, NULL, NULL, NULL, "replace ALL.jsonl if it is there"},
        {"--json", CLI_FLAG, &o.json, NULL, NULL, NULL, "print as JSON what was joined"},
        {"--quiet", CLI_FLAG, &o.quiet, NULL, NULL, NULL, "nothing but errors"},
    };
    const cli_program program = {"ofload-batch merge",
                                 "--input IN.jsonl --output ALL.jsonl PART…",
                                 "Joins the outputs of shards and verifies that each request is there exactly once.",
                                 NULL,
                                 rows,
                                 sizeof rows / sizeof rows[0]};
    int exit_status;
    ofl_status status = cli_parse(&program, &argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK && (o.input == NULL || o.output == NULL || argc < 2))
        status =
            app_fail(OFL_ERROR_ARGUMENT, "--input IN.jsonl, --output ALL.jsonl and the parts are needed; see ofload-batch merge --help");
    if (status != OFL_OK) return cli_complain(&program, status);
    merge m = {.options = &o, .in = {.fd = -1}, .part_count = (uint32_t)(argc - 1)};
    allow_many_files();
    status = run_merge(&m, argv + 1);
    if (status == OFL_OK) status = print_summary(&m);
    for (uint32_t i = 0; m.parts != NULL && i < m.part_count; i++) output_drop(&m.parts[i]);
    free(m.parts);
    input_close(&m.in);
    if (status != OFL_OK) {
        (void)cli_complain(&program, status);
        return EXIT_FAILED;
    }
    return m.all.failed > 0 ? EXIT_ERROR_LINES : EXIT_DONE;
}

#include "batch/shard.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SHARDS 99999u

static bool read_number(const char *text, char end, const char **after, uint32_t *out)
{
    char *stop;
    if (text == NULL || !isdigit((unsigned char)*text)) return false;
    unsigned long value = strtoul(text, &stop, 10);
    if (*stop != end || value > MOST_SHARDS * 1000ul) return false;
    if (after != NULL) *after = stop + 1;
    *out = (uint32_t)value;
    return true;
}

static ofl_status check(const char *from, uint32_t index, uint32_t count, shard *out)
{
    if (count == 0 || count > MOST_SHARDS || index >= count)
        return app_fail(OFL_ERROR_ARGUMENT, "--shard: %s: %u of %u is no shard; they are 0 to N-1 of at most %u", from, index, count, MOST_SHARDS);
    *out = (shard){index, count};
    return OFL_OK;
}

/* Array ids need not start at 0 nor follow one another. */
static ofl_status from_slurm(shard *out)
{
    uint32_t id, count, low = 0, step = 1;
    if (!read_number(getenv("SLURM_ARRAY_TASK_ID"), '\0', NULL, &id) || !read_number(getenv("SLURM_ARRAY_TASK_COUNT"), '\0', NULL, &count)) return OFL_END;
    (void)read_number(getenv("SLURM_ARRAY_TASK_MIN"), '\0', NULL, &low);
    (void)read_number(getenv("SLURM_ARRAY_TASK_STEP"), '\0', NULL, &step);
    if (step == 0 || id < low || (id - low) % step != 0)
        return app_fail(OFL_ERROR_ARGUMENT, "--shard auto: the Slurm array's id %u does not fit its start and step", id);
    return check("Slurm array", (id - low) / step, count, out);
}

static ofl_status from_kubernetes(shard *out)
{
    uint32_t index, count;
    if (!read_number(getenv("JOB_COMPLETION_INDEX"), '\0', NULL, &index)) return OFL_END;
    if (!read_number(getenv("OFLOAD_SHARD_COUNT"), '\0', NULL, &count))
        return app_fail(
            OFL_ERROR_ARGUMENT,
            "--shard auto: JOB_COMPLETION_INDEX is set, but Kubernetes tells no count; set OFLOAD_SHARD_COUNT to the job's completions");
    return check("Kubernetes job", index, count, out);
}

ofl_status shard_parse(const char *text, shard *out)
{
    const char *after;
    uint32_t index, count;
    *out = (shard){0, 1};
    if (text == NULL) return OFL_OK;
    if (strcmp(text, "auto") != 0) {
        if (read_number(text, '/', &after, &index) && read_number(after, '\0', NULL, &count)) return check(text, index, count, out);
        return app_fail(OFL_ERROR_ARGUMENT, "--shard: \"%.40s\" is neither I/N, such as 0/16, nor auto", text);
    }
    ofl_status status = from_slurm(out);
    if (status == OFL_END) status = from_kubernetes(out);
    if (status == OFL_END) status = app_fail(OFL_ERROR_ARGUMENT, "--shard auto: this runs in no Slurm array and no indexed Kubernetes job; give --shard I/N");
    return status;
}

char *shard_path(const char *path, shard s)
{
    char *out = NULL;
    size_t length = strlen(path), end = strlen(".jsonl");
    if (s.count == 1) return strdup(path);
    bool named = length > end && strcmp(path + length - end, ".jsonl") == 0;
    int stem = (int)(named ? length - end : length);
    return asprintf(&out, "%.*s.shard-%05u-of-%05u%s", stem, path, s.index, s.count, named ? ".jsonl" : "") < 0 ? NULL : out;
}

#include "batch/state.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/whole_file.h"

#define SCHEMA "ofload.batch-state/1"
#define MAX_STATE_BYTES 65536

static const struct { const char *key, *said; } keys[STATE_KEY_COUNT] = {
    [STATE_INPUT] = {"input_hash", "the input file"},
    [STATE_MODEL] = {"model_identity", "the model"},
    [STATE_WEIGHTS] = {"weights_hash", "the content of the weights"},
    [STATE_COMPUTE] = {"compute", "--compute"},
    [STATE_KV_TYPE] = {"kv_type", "--kv-type"},
    [STATE_MAX_TOKENS] = {"max_tokens_default", "--max-tokens-default"},
    [STATE_TEMPLATE] = {"chat_template", "--chat-template"},
    [STATE_CONTEXT] = {"context", "--context"},
    [STATE_SHARD] = {"shard", "--shard"},
};

ofl_status state_write(const char *path, const batch_state *state)
{
    cJSON *tree = cJSON_CreateObject(), *counts = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(tree, "schema", SCHEMA) != NULL;
    for (size_t i = 0; i < STATE_KEY_COUNT; i++) ok = ok && cJSON_AddStringToObject(tree, keys[i].key, state->values[i]) != NULL;
    ok = ok && cJSON_AddStringToObject(tree, "status", state->status) != NULL;
    ok = ok && cJSON_AddNumberToObject(counts, "total", (double)state->total) != NULL;
    ok = ok && cJSON_AddNumberToObject(counts, "completed", (double)state->completed) != NULL;
    ok = ok && cJSON_AddNumberToObject(counts, "failed", (double)state->failed) != NULL;
    if (!ok || !cJSON_AddItemToObject(tree, "request_counts", counts)) cJSON_Delete(counts), ok = false;
    char *text = ok ? cJSON_Print(tree) : NULL;
    cJSON_Delete(tree);
    if (text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    ofl_status status = whole_file_write(path, text, strlen(text));
    cJSON_free(text);
    return status;
}

static ofl_status read_text(const char *path, char *text, size_t *bytes_out)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL && errno == ENOENT) return OFL_END;
    if (file == NULL) return app_fail(OFL_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    *bytes_out = fread(text, 1, MAX_STATE_BYTES, file);
    int failed = ferror(file);
    (void)fclose(file);
    return failed ? app_fail(OFL_ERROR_IO, "%s: reading failed", path) : OFL_OK;
}

/* NULL, or what is missing or no such text. */
static const char *read_values(const cJSON *tree, batch_state *out)
{
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(tree, "schema");
    if (!cJSON_IsString(schema) || strcmp(schema->valuestring, SCHEMA) != 0) return "schema";
    for (size_t i = 0; i < STATE_KEY_COUNT; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(tree, keys[i].key);
        if (!cJSON_IsString(value) || strlen(value->valuestring) >= STATE_VALUE_BYTES) return keys[i].key;
        (void)snprintf(out->values[i], STATE_VALUE_BYTES, "%s", value->valuestring);
    }
    return NULL;
}

ofl_status state_read(const char *path, batch_state *out)
{
    size_t bytes = 0;
    char *text = malloc(MAX_STATE_BYTES);
    if (text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    ofl_status status = read_text(path, text, &bytes);
    cJSON *tree = status == OFL_OK ? cJSON_ParseWithLength(text, bytes) : NULL;
    *out = (batch_state){0};
    const char *missing = status == OFL_OK ? read_values(tree, out) : NULL;
    if (missing != NULL)
        status = app_fail(OFL_ERROR_FORMAT, "%s: is no state file of this version, it does not say \"%s\"; give --overwrite to start anew", path, missing);
    cJSON_Delete(tree);
    free(text);
    return status;
}

ofl_status state_compare(const batch_state *before, const batch_state *now)
{
    for (size_t i = 0; i < STATE_KEY_COUNT; i++) {
        if (strcmp(before->values[i], now->values[i]) == 0) continue;
        return app_fail(OFL_ERROR_MISMATCH,
                        "the output was begun with another setting: %s was \"%.60s\" and is \"%.60s\"; use the same, or --overwrite to start anew",
                        keys[i].said, before->values[i], now->values[i]);
    }
    return OFL_OK;
}

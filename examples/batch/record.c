#include "batch/record.h"

#include <inttypes.h>

/* The same for the same line of the same file, and no other. */
static char *record_id(const record_maker *maker, uint64_t line, char *hex)
{
    return hash128_hex(hex, hash128_add(maker->input_hash, &line, sizeof line));
}

static void put_choice(json_put *w, const record_maker *maker, bool chat, uint32_t index, const record_choice *choice)
{
    put_format(w, "%s{\"index\":%" PRIu32 ",", index > 0 ? "," : "", index);
    put(w, chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    put_string(w, choice->text, choice->bytes);
    if (chat) put(w, ",\"refusal\":null}");
    put(w, ",\"logprobs\":");
    logprobs_put(w, choice->logprobs, &maker->text, chat);
    put_format(w, ",\"finish_reason\":\"%s\"}", choice->finish_reason);
}

static ofl_status finish(const json_put *w) { return w->ok ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "output record: out of memory"); }

ofl_status record_answer(const record_maker *maker, const char *custom_id, uint64_t line, bool chat, uint32_t prompt_tokens, const record_choice *choices,
                         uint32_t choice_count, buffer *out)
{
    char id[HASH128_HEX_BYTES];
    uint64_t made = 0;
    json_put w = {out, true};
    out->bytes = 0;
    record_id(maker, line, id);
    put_format(&w, "{\"id\":\"batch_req_%s\",\"custom_id\":", id);
    put_text(&w, custom_id);
    put_format(&w, ",\"response\":{\"status_code\":200,\"request_id\":\"req_%s\",\"body\":{\"id\":\"%s-%s\",\"object\":\"%s\",", id,
               chat ? "chatcmpl" : "cmpl", id, chat ? "chat.completion" : "text_completion");
    put_format(&w, "\"created\":%" PRId64 ",\"model\":", maker->created);
    put_text(&w, maker->model_name);
    put(&w, ",\"choices\":[");
    for (uint32_t i = 0; i < choice_count; i++) {
        put_choice(&w, maker, chat, i, &choices[i]);
        made += choices[i].tokens;
    }
    put_format(&w,
               "],\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "},\"system_fingerprint\":",
               prompt_tokens, made, prompt_tokens + made);
    put_text(&w, maker->fingerprint);
    put(&w, "}},\"error\":null}\n");
    return finish(&w);
}

ofl_status record_error(const record_maker *maker, const char *custom_id, uint64_t line, const line_error *error, buffer *out)
{
    char id[HASH128_HEX_BYTES];
    json_put w = {out, true};
    out->bytes = 0;
    put_format(&w, "{\"id\":\"batch_req_%s\",\"custom_id\":", record_id(maker, line, id));
    put_text(&w, custom_id);
    put(&w, ",\"response\":null,\"error\":{\"code\":");
    put_text(&w, error->code);
    put(&w, ",\"message\":");
    put_text(&w, error->message);
    put(&w, ",\"param\":");
    put_text(&w, error->param[0] != '\0' ? error->param : NULL);
    put_format(&w, ",\"line\":%" PRIu64 "}}\n", line);
    return finish(&w);
}

static bool read_head(const cJSON *tree, record_head *out)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(tree, "custom_id"), *response = cJSON_GetObjectItemCaseSensitive(tree, "response");
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(tree, "error"), *line = cJSON_GetObjectItemCaseSensitive(error, "line");
    *out = (record_head){.failed = cJSON_IsObject(error)};
    if (!cJSON_IsString(id) && !cJSON_IsNull(id)) return false;
    if (!out->failed && (!cJSON_IsObject(response) || !cJSON_IsNull(error))) return false;
    if (out->failed && (!cJSON_IsNumber(line) || line->valuedouble < 1)) return false;
    if (out->failed) out->line = (uint64_t)line->valuedouble;
    if (!cJSON_IsString(id)) return out->failed;
    out->custom_id = strdup(id->valuestring);
    return out->custom_id != NULL;
}

bool record_read(char *text, size_t bytes, record_head *out)
{
    char why[100];
    cJSON *tree = jsonl_parse(text, bytes, why, sizeof why);
    bool read = tree != NULL && read_head(tree, out);
    cJSON_Delete(tree);
    return read;
}

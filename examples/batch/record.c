#include "batch/record.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* All writing goes through here; the first failure stays. */
typedef struct writer { buffer *out; bool ok; } writer;

static void put(writer *w, const char *text) { w->ok = w->ok && buffer_add(w->out, text, strlen(text)); }

static void put_format(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_format(writer *w, const char *format, ...)
{
    char text[256]; /* numbers and names of this file only */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(w, text);
}

static void put_escaped(writer *w, char c)
{
    switch (c) {
    case '"': put(w, "\\\""); break;
    case '\\': put(w, "\\\\"); break;
    case '\n': put(w, "\\n"); break;
    case '\r': put(w, "\\r"); break;
    case '\t': put(w, "\\t"); break;
    default: put_format(w, "\\u%04x", (unsigned char)c);
    }
}

static void put_string(writer *w, const char *text, size_t bytes)
{
    put(w, "\"");
    for (size_t at = 0; at < bytes;) {
        size_t plain = at;
        while (plain < bytes && (unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\' && text[plain] != 0x7F) plain++;
        w->ok = w->ok && buffer_add(w->out, text + at, plain - at);
        if (plain < bytes) put_escaped(w, text[plain++]);
        at = plain;
    }
    put(w, "\"");
}

static void put_text(writer *w, const char *text)
{
    if (text != NULL) put_string(w, text, strlen(text));
    else put(w, "null");
}

/* The same for the same line of the same file, and no other. */
static char *record_id(const record_maker *maker, uint64_t line, char *hex)
{
    return hash128_hex(hex, hash128_add(maker->input_hash, &line, sizeof line));
}

static void put_choice(writer *w, bool chat, uint32_t index, const record_choice *choice)
{
    put_format(w, "%s{\"index\":%" PRIu32 ",", index > 0 ? "," : "", index);
    put(w, chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    put_string(w, choice->text, choice->bytes);
    if (chat) put(w, ",\"refusal\":null}");
    put_format(w, ",\"logprobs\":null,\"finish_reason\":\"%s\"}", choice->finish_reason);
}

static ofl_status finish(const writer *w) { return w->ok ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "output record: out of memory"); }

ofl_status record_answer(const record_maker *maker, const char *custom_id, uint64_t line, bool chat, uint32_t prompt_tokens, const record_choice *choices,
                         uint32_t choice_count, buffer *out)
{
    char id[HASH128_HEX_BYTES];
    uint64_t made = 0;
    writer w = {out, true};
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
        put_choice(&w, chat, i, &choices[i]);
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
    writer w = {out, true};
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

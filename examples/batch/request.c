#include "batch/request.h"

#include <stdarg.h>
#include <stdio.h>

bool request_refuse(line_error *error, const char *code, const char *param, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)snprintf(error->code, sizeof error->code, "%s", code);
    (void)snprintf(error->param, sizeof error->param, "%s", param);
    (void)vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

void request_free(request *r)
{
    for (size_t i = 0; i < r->joined_count; i++) free(r->joined[i]);
    free(r->joined);
    free(r->messages);
    cJSON_Delete(r->tree);
    *r = (request){0};
}

static bool no_memory(line_error *error) { return request_refuse(error, "out_of_memory", "", "no host memory for this request"); }

/* The text of one part of a content; NULL with *error set. */
static const char *part_text(const cJSON *part, const char *where, line_error *error)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type"), *text = cJSON_GetObjectItemCaseSensitive(part, "text");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0)
        request_refuse(error, "unsupported_parameter", where, "a content part of type \"%.60s\": only text can be read",
                       cJSON_IsString(type) ? type->valuestring : "?");
    else if (!cJSON_IsString(text)) request_refuse(error, "invalid_request", where, "a text part without text");
    else return text->valuestring;
    return NULL;
}

static bool join_parts(request *r, const cJSON *parts, const char *where, chat_message *message, line_error *error)
{
    buffer all = {0};
    const cJSON *part;
    cJSON_ArrayForEach(part, parts)
    {
        const char *text = part_text(part, where, error);
        bool added = text != NULL && buffer_add(&all, text, strlen(text));
        if (!added) {
            buffer_free(&all);
            return text == NULL ? false : no_memory(error);
        }
    }
    char **kept = realloc(r->joined, (r->joined_count + 1) * sizeof *kept);
    if (kept == NULL || !buffer_add(&all, "", 1)) {
        r->joined = kept != NULL ? kept : r->joined;
        buffer_free(&all);
        return no_memory(error);
    }
    r->joined = kept;
    r->joined[r->joined_count++] = all.data;
    message->content = all.data;
    message->bytes = all.bytes - 1;
    return true;
}

/* Keys of a message that this driver cannot put in a prompt. */
static bool check_message_keys(const cJSON *object, const char *where, line_error *error)
{
    static const char *const harmless[] = {"role", "content", "name", "refusal"};
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        bool known = cJSON_IsNull(item);
        for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) known = known || strcmp(item->string, harmless[i]) == 0;
        if (!known) return request_refuse(error, "unsupported_parameter", where, "a message with \"%.60s\", which is not supported", item->string);
    }
    return true;
}

static bool read_message(request *r, const cJSON *object, size_t index, line_error *error)
{
    char where[48];
    (void)snprintf(where, sizeof where, "body.messages[%zu]", index);
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(object, "role"), *content = cJSON_GetObjectItemCaseSensitive(object, "content");
    if (!cJSON_IsObject(object)) return request_refuse(error, "invalid_request", where, "a message is an object with role and content");
    if (!cJSON_IsString(role)) return request_refuse(error, "invalid_request", where, "a message needs a role");
    if (!check_message_keys(object, where, error)) return false;
    chat_message *message = &r->messages[r->message_count++];
    message->role = role->valuestring;
    if (cJSON_IsArray(content)) return join_parts(r, content, where, message, error);
    if (!cJSON_IsString(content)) return request_refuse(error, "invalid_request", where, "a message needs a content: a string, or text parts");
    message->content = content->valuestring;
    message->bytes = strlen(content->valuestring);
    return true;
}

static bool read_messages(request *r, const cJSON *body, line_error *error)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(body, "messages"), *item;
    int count = cJSON_IsArray(messages) ? cJSON_GetArraySize(messages) : 0;
    if (count == 0) return request_refuse(error, "invalid_request", "body.messages", "messages: an array of at least one message is needed");
    r->messages = calloc((size_t)count, sizeof *r->messages);
    if (r->messages == NULL) return no_memory(error);
    size_t index = 0;
    cJSON_ArrayForEach(item, messages)
    {
        if (!read_message(r, item, index++, error)) return false;
    }
    return true;
}

static bool read_prompt(request *r, const cJSON *body, line_error *error)
{
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, "prompt");
    if (cJSON_IsArray(prompt) && cJSON_GetArraySize(prompt) == 1) prompt = prompt->child;
    if (!cJSON_IsString(prompt))
        return request_refuse(error, "invalid_request", "body.prompt", "prompt: one string is needed (no token ids, one prompt a line)");
    r->prompt = prompt->valuestring;
    return true;
}

static bool read_envelope(request *r, line_error *error)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(r->tree, "custom_id");
    if (!cJSON_IsObject(r->tree)) return request_refuse(error, "invalid_request", "", "the line is JSON, but no object");
    if (!cJSON_IsString(id)) return request_refuse(error, "invalid_request", "custom_id", "custom_id: a string is needed");
    r->custom_id = id->valuestring;
    const cJSON *method = cJSON_GetObjectItemCaseSensitive(r->tree, "method"), *url = cJSON_GetObjectItemCaseSensitive(r->tree, "url");
    if (method != NULL && (!cJSON_IsString(method) || strcmp(method->valuestring, "POST") != 0))
        return request_refuse(error, "invalid_request", "method", "method: only POST");
    const char *endpoint = cJSON_IsString(url) ? url->valuestring : "";
    r->chat = strcmp(endpoint, "/v1/chat/completions") == 0;
    if (!r->chat && strcmp(endpoint, "/v1/completions") != 0)
        return request_refuse(error, "invalid_url", "url", "url \"%.60s\": /v1/chat/completions and /v1/completions are there", endpoint);
    return true;
}

bool request_parse(char *text, size_t bytes, request *out, line_error *error)
{
    char why[100];
    *out = (request){.choices = 1, .temperature = 1, .top_p = 1};
    *error = (line_error){0};
    out->tree = jsonl_parse(text, bytes, why, sizeof why);
    if (out->tree == NULL) return request_refuse(error, "invalid_json", "", "the line cannot be read: %s", why);
    if (!read_envelope(out, error)) return false;
    const cJSON *body = cJSON_GetObjectItemCaseSensitive(out->tree, "body");
    if (!cJSON_IsObject(body)) return request_refuse(error, "invalid_request", "body", "body: an object is needed");
    if (!request_read_params(out, body, error)) return false;
    return out->chat ? read_messages(out, body, error) : read_prompt(out, body, error);
}

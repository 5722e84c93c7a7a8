/* The parameters of a request's body, one table. A parameter that would change the answer and is not honoured is refused by name;
 * with a value that changes nothing it is let through. */
#include "batch/request.h"

#include <math.h>
#include <stdio.h>

#include "batch/logprobs.h"

/* Reads one value into r; false with *error set. */
typedef bool (*param_reader)(request *r, const char *name, const cJSON *value, line_error *error);

static bool bad_value(line_error *error, const char *name, const char *wanted)
{
    char param[80];
    (void)snprintf(param, sizeof param, "body.%.60s", name);
    return request_refuse(error, "invalid_request", param, "%.60s: %s is needed", name, wanted);
}

static bool unsupported(line_error *error, const char *name, const char *why)
{
    char param[80];
    (void)snprintf(param, sizeof param, "body.%.60s", name);
    return request_refuse(error, "unsupported_parameter", param, "%.60s is not supported%s", name, why);
}

static bool whole_number(const cJSON *value, double low, double high, double *out)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= low) || !(value->valuedouble <= high) || floor(value->valuedouble) != value->valuedouble)
        return false;
    *out = value->valuedouble;
    return true;
}

static bool read_model(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return cJSON_IsString(value) || bad_value(error, name, "a string (there is one model, whatever it says)");
}

/* max_completion_tokens is the newer name and wins. */
static bool read_max_tokens(request *r, const char *name, const cJSON *value, line_error *error)
{
    double tokens;
    if (!whole_number(value, 1, 1e9, &tokens)) return bad_value(error, name, "a whole number of at least 1 and at most 10^9");
    if (strcmp(name, "max_completion_tokens") == 0 || r->max_tokens == 0) r->max_tokens = (uint32_t)tokens;
    return true;
}

static bool read_temperature(request *r, const char *name, const cJSON *value, line_error *error)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0 && value->valuedouble <= 100)) return bad_value(error, name, "a number from 0 (greedy) to 100");
    r->temperature = value->valuedouble;
    return true;
}

static bool read_top_p(request *r, const char *name, const cJSON *value, line_error *error)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble > 0 && value->valuedouble <= 1)) return bad_value(error, name, "a number above 0 and up to 1");
    r->top_p = value->valuedouble;
    return true;
}

static bool read_top_k(request *r, const char *name, const cJSON *value, line_error *error)
{
    double k;
    if (!whole_number(value, -1, 1e9, &k)) return bad_value(error, name, "a whole number, 0 or -1 for off,");
    r->top_k = k > 0 ? (uint32_t)k : 0;
    return true;
}

static bool read_seed(request *r, const char *name, const cJSON *value, line_error *error)
{
    double seed;
    if (!whole_number(value, -9007199254740991.0, 9007199254740991.0, &seed)) return bad_value(error, name, "a whole number between -2^53 and 2^53");
    r->seed = (uint64_t)(int64_t)seed;
    r->seed_given = true;
    return true;
}

static bool read_choices(request *r, const char *name, const cJSON *value, line_error *error)
{
    double n;
    if (!whole_number(value, 1, REQUEST_MAX_CHOICES, &n)) return bad_value(error, name, "a whole number from 1 to 4");
    r->choices = (uint32_t)n;
    return true;
}

static bool add_stop(request *r, const char *name, const cJSON *value, line_error *error)
{
    if (!cJSON_IsString(value) || value->valuestring[0] == '\0' || r->stop_count == ANSWER_MAX_STOPS)
        return bad_value(error, name, "a string, or up to four, none of them empty,");
    r->stop_bytes[r->stop_count] = strlen(value->valuestring);
    r->stops[r->stop_count++] = value->valuestring;
    return true;
}

static bool read_stop(request *r, const char *name, const cJSON *value, line_error *error)
{
    if (!cJSON_IsArray(value)) return add_stop(r, name, value, error);
    const cJSON *item;
    cJSON_ArrayForEach(item, value)
    {
        if (!add_stop(r, name, item, error)) return false;
    }
    return true;
}

static bool read_ignore_end(request *r, const char *name, const cJSON *value, line_error *error)
{
    if (!cJSON_IsBool(value)) return bad_value(error, name, "true or false");
    r->ignore_end = cJSON_IsTrue(value);
    return true;
}

/* Chat: true or false, the count in top_logprobs. Plain completions: the count itself. */
static bool read_logprobs(request *r, const char *name, const cJSON *value, line_error *error)
{
    double count = 0;
    if (cJSON_IsFalse(value)) return true;
    r->logprobs = true;
    if (r->chat) return cJSON_IsTrue(value) || bad_value(error, name, "true or false");
    if (!whole_number(value, 0, LOGPROBS_MAX_TOP_PLAIN, &count)) return bad_value(error, name, "a whole number from 0 to 5");
    r->top_logprobs = (uint32_t)count;
    return true;
}

static bool read_top_logprobs(request *r, const char *name, const cJSON *value, line_error *error)
{
    double count;
    if (!whole_number(value, 0, LOGPROBS_MAX_TOP, &count)) return bad_value(error, name, "a whole number from 0 to 20");
    if (!r->chat && count > 0) return unsupported(error, name, " by this endpoint: give the count as logprobs");
    if (r->chat) r->top_logprobs = (uint32_t)count;
    return true;
}

static bool elsewhere(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r, (void)name, (void)value, (void)error;
    return true;
}

/* ---- let through only when they change nothing ---- */

static bool only_false(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return cJSON_IsFalse(value) || unsupported(error, name, strcmp(name, "stream") == 0 ? " in a batch file: the answer is written whole" : "");
}

static bool only_zero(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return (cJSON_IsNumber(value) && value->valuedouble == 0) || unsupported(error, name, ": only 0");
}

static bool only_one(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return (cJSON_IsNumber(value) && value->valuedouble == 1) || unsupported(error, name, ": only 1");
}

static bool only_empty(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return ((cJSON_IsArray(value) || cJSON_IsObject(value)) && value->child == NULL) || (cJSON_IsString(value) && value->valuestring[0] == '\0') ||
           unsupported(error, name, "");
}

static bool only_text_format(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(value, "type");
    return (cJSON_IsString(type) && strcmp(type->valuestring, "text") == 0) || unsupported(error, name, ": only {\"type\":\"text\"}");
}

static bool only_no_tool(request *r, const char *name, const cJSON *value, line_error *error)
{
    (void)r;
    return (cJSON_IsString(value) && (strcmp(value->valuestring, "none") == 0 || strcmp(value->valuestring, "auto") == 0)) || unsupported(error, name, "");
}

static const struct { const char *name; param_reader read; } params[] = {
    {"model", read_model},
    {"messages", elsewhere},
    {"prompt", elsewhere},
    {"max_completion_tokens", read_max_tokens},
    {"max_tokens", read_max_tokens},
    {"temperature", read_temperature},
    {"top_p", read_top_p},
    {"top_k", read_top_k},
    {"seed", read_seed},
    {"n", read_choices},
    {"stop", read_stop},
    {"ignore_eos", read_ignore_end},
    {"logprobs", read_logprobs},
    {"top_logprobs", read_top_logprobs},
    /* say nothing about the answer */
    {"user", elsewhere},
    {"metadata", elsewhere},
    {"store", elsewhere},
    {"service_tier", elsewhere},
    {"safety_identifier", elsewhere},
    {"prompt_cache_key", elsewhere},
    {"parallel_tool_calls", elsewhere},
    /* would change it */
    {"stream", only_false},
    {"echo", only_false},
    {"frequency_penalty", only_zero},
    {"presence_penalty", only_zero},
    {"min_p", only_zero},
    {"min_tokens", only_zero},
    {"repetition_penalty", only_one},
    {"best_of", only_one},
    {"logit_bias", only_empty},
    {"tools", only_empty},
    {"functions", only_empty},
    {"suffix", only_empty},
    {"tool_choice", only_no_tool},
    {"response_format", only_text_format},
};

enum { PARAM_COUNT = sizeof params / sizeof params[0] };

static bool read_param(request *r, const cJSON *value, bool *seen, line_error *error)
{
    for (size_t i = 0; i < PARAM_COUNT; i++) {
        if (strcmp(params[i].name, value->string) != 0) continue;
        if (seen[i]) return bad_value(error, value->string, "one value, not two,");
        seen[i] = true;
        return cJSON_IsNull(value) || params[i].read(r, value->string, value, error);
    }
    return cJSON_IsNull(value) || unsupported(error, value->string, "");
}

bool request_read_params(request *r, const cJSON *body, line_error *error)
{
    bool seen[PARAM_COUNT] = {false};
    const cJSON *value;
    cJSON_ArrayForEach(value, body)
    {
        if (!read_param(r, value, seen, error)) return false;
    }
    return r->logprobs || r->top_logprobs == 0 || bad_value(error, "top_logprobs", "\"logprobs\": true beside it");
}

/* Requests written, runs over the stub model, answers read back. */
#ifndef OFLOAD_TEST_JOB_RIG_H
#define OFLOAD_TEST_JOB_RIG_H

#include "support/stub_model.h"

#include <cjson/cJSON.h>

static inline char *line_for(const char *id, const char *prompt, const char *params)
{
    char *line;
    assert_true(asprintf(&line,
                         "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/chat/"
                         "completions\",\"body\":{\"model\":\"any\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s%s}}\n",
                         id, prompt, params[0] != '\0' ? "," : "", params) > 0);
    return line;
}

static inline void add_line(FILE *file, const char *id, const char *prompt, const char *params)
{
    char *line = line_for(id, prompt, params);
    assert_true(fputs(line, file) >= 0);
    free(line);
}

typedef struct answers { cJSON *lines; char *text; } answers;

/* Every line must be whole JSON. */
static inline answers read_answers(const char *path)
{
    answers a = {cJSON_CreateArray(), test_read(path, NULL)};
    for (char *at = a.text; *at != '\0';) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        cJSON *tree = cJSON_ParseWithLength(at, (size_t)(end - at));
        assert_non_null(tree);
        cJSON_AddItemToArray(a.lines, tree);
        at = end + 1;
    }
    return a;
}

static inline void free_answers(answers *a)
{
    cJSON_Delete(a->lines);
    free(a->text);
}

static inline const cJSON *find(const answers *a, const char *id)
{
    const cJSON *line, *found = NULL;
    cJSON_ArrayForEach(line, a->lines)
    {
        const cJSON *got = cJSON_GetObjectItemCaseSensitive(line, "custom_id");
        if (!cJSON_IsString(got) || strcmp(got->valuestring, id) != 0) continue;
        assert_null(found); /* once */
        found = line;
    }
    if (found == NULL) fail_msg("no line for %s", id);
    return found;
}

static inline const cJSON *body(const cJSON *line)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, "response"), "body");
}

static inline const cJSON *choice(const cJSON *line, int index)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(body(line), "choices"), index);
}

static inline const char *content(const cJSON *line)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(choice(line, 0), "message");
    const cJSON *text = message != NULL ? cJSON_GetObjectItemCaseSensitive(message, "content")
                                        : cJSON_GetObjectItemCaseSensitive(choice(line, 0), "text");
    return cJSON_IsString(text) ? text->valuestring : "(none)";
}

static inline const char *error_code(const cJSON *line)
{
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, "error"), "code");
    return cJSON_IsString(code) ? code->valuestring : "(none)";
}

static inline const char *reason(const cJSON *line)
{
    return cJSON_GetObjectItemCaseSensitive(choice(line, 0), "finish_reason")->valuestring;
}

static inline int made(const cJSON *line)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(body(line), "usage"), "completion_tokens")->valueint;
}

static inline int run(const run_settings *settings, const backend *model)
{
    int exit_status = -1;
    ofl_status status = batch_run(settings, model, &exit_status);
    if (status != OFL_OK) fail_msg("batch_run: %s", app_error());
    return exit_status;
}

static inline ofl_status run_fails(const run_settings *settings, const backend *model, const char *sentence)
{
    int exit_status = -1;
    ofl_status status = batch_run(settings, model, &exit_status);
    assert_int_not_equal(status, OFL_OK);
    if (strstr(app_error(), sentence) == NULL) fail_msg("\"%s\" does not say \"%s\"", app_error(), sentence);
    return status;
}

/* Fresh paths for one test. */
static char in_path[512], out_path[512];
static inline void fresh(void)
{
    static int number;
    char name[40];
    (void)snprintf(name, sizeof name, "in%d.jsonl", ++number);
    (void)snprintf(in_path, sizeof in_path, "%s", test_path(name));
    (void)snprintf(name, sizeof name, "out%d.jsonl", number);
    (void)snprintf(out_path, sizeof out_path, "%s", test_path(name));
}

static inline void write_jobs(uint32_t count)
{
    FILE *file = fopen(in_path, "w");
    for (uint32_t i = 0; i < count; i++) {
        char id[20], prompt[60];
        (void)snprintf(id, sizeof id, "r%u", i);
        (void)snprintf(prompt, sizeof prompt, "%*s#answer %u", (int)(i * 37 % 50), "", i);
        add_line(file, id, prompt, "");
    }
    assert_int_equal(fclose(file), 0);
}

static inline void check_jobs(uint32_t count)
{
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(a.lines), count);
    for (uint32_t i = 0; i < count; i++) {
        char id[20], wanted[40];
        (void)snprintf(id, sizeof id, "r%u", i);
        (void)snprintf(wanted, sizeof wanted, "answer %u", i);
        assert_string_equal(content(find(&a, id)), wanted);
    }
    free_answers(&a);
}

#endif

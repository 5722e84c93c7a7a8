/* Goldens of tests/golden/tokenizer for the tokenizer and template tests: reading them, and comparing ids. */
#ifndef OFLOAD_TEST_TOKEN_GOLDEN_H
#define OFLOAD_TEST_TOKEN_GOLDEN_H

#include "support/support.h"

#include <cJSON.h>

#include "batch/chat_template.h"
#include "batch/tokenizer_parts.h"
#include "common/app_error.h"

/* Fails with the program's own sentence. */
#define assert_app_ok(call)                                                                                      \
    do {                                                                                                         \
        ofl_status assert_app_status = (call);                                                                   \
        if (assert_app_status != OFL_OK) fail_msg("%s: %s: %s", #call, ofl_status_name(assert_app_status), app_error()); \
    } while (0)
/* The status, and a part of the sentence. */
#define assert_app_fails(call, wanted, part)                                                                     \
    do {                                                                                                         \
        ofl_status assert_app_got = (call);                                                                      \
        if (assert_app_got != (wanted)) fail_msg("%s: %s: %s", #call, ofl_status_name(assert_app_got), app_error()); \
        if (strstr(app_error(), part) == NULL) fail_msg("%s: says: %s", #call, app_error());                     \
    } while (0)

static inline char *golden_path(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/tests/golden/tokenizer/%s", OFLOAD_SOURCE_DIR, name);
    return path;
}

static inline cJSON *golden_json(const char *name)
{
    char *text = test_read(golden_path(name), NULL);
    cJSON *tree = cJSON_Parse(text);
    free(text);
    assert_non_null(tree);
    return tree;
}

static inline tokenizer *golden_tokenizer(const char *folder)
{
    tokenizer *t = NULL;
    assert_app_ok(tokenizer_open_folder(golden_path(folder), &t));
    return t;
}

/* A text written as hex digits; free() it. */
static inline char *golden_text(const cJSON *item, size_t *bytes_out)
{
    const char *hex = cJSON_GetStringValue(item);
    assert_non_null(hex);
    *bytes_out = strlen(hex) / 2;
    char *text = malloc(*bytes_out + 1);
    for (size_t i = 0; i < *bytes_out; i++) {
        const char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        text[i] = (char)strtoul(pair, NULL, 16);
    }
    text[*bytes_out] = 0;
    return text;
}

static inline void assert_ids(const token_list *got, const cJSON *wanted, const char *what)
{
    size_t count = (size_t)cJSON_GetArraySize(wanted), i = 0;
    for (const cJSON *item = wanted->child; item != NULL && i < got->count; item = item->next, i++) {
        if (got->ids[i] != item->valueint) fail_msg("%s: token %zu is %d, not %d", what, i, got->ids[i], item->valueint);
    }
    if (got->count != count) fail_msg("%s: %zu tokens, not %zu", what, got->count, count);
}

/* Each of strings.json against its ids. */
static inline void assert_golden_ids(tokenizer *t, const cJSON *ids, const char *name)
{
    cJSON *strings = golden_json("strings.json");
    const cJSON *wanted = ids->child;
    size_t number = 0;
    for (const cJSON *item = strings->child; item != NULL; item = item->next, wanted = wanted->next, number++) {
        size_t bytes;
        char what[300], *text = golden_text(item, &bytes);
        token_list got = {0};
        assert_non_null(wanted);
        (void)snprintf(what, sizeof what, "%s, string %zu \"%.80s\"", name, number, text);
        assert_app_ok(tokenizer_encode(t, text, bytes, false, &got));
        assert_ids(&got, wanted, what);
        tokens_free(&got);
        free(text);
    }
    assert_true(number > 190 && wanted == NULL);
    cJSON_Delete(strings);
}

/* Replaces the list. */
static inline void golden_encode(tokenizer *t, const char *text, bool markup, token_list *list)
{
    list->count = 0;
    assert_app_ok(tokenizer_encode(t, text, strlen(text), markup, list));
}

/* A conversation; the strings stay the tree's. */
static inline size_t golden_messages(const cJSON *list, chat_message *messages, size_t room)
{
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *content = cJSON_GetStringValue(cJSON_GetObjectItem(item, "content"));
        assert_true(count < room);
        messages[count++] = (chat_message){cJSON_GetStringValue(cJSON_GetObjectItem(item, "role")), content, strlen(content)};
    }
    return count;
}

/* The bytes of all tokens, one after another; free() it. */
static inline char *golden_decode(const tokenizer *t, const token_list *list, size_t *bytes_out)
{
    buffer text = {0};
    for (size_t i = 0; i < list->count; i++) {
        size_t bytes;
        const char *part = tokenizer_bytes(t, list->ids[i], &bytes);
        assert_true(buffer_add(&text, part, bytes));
    }
    assert_true(buffer_add(&text, "", 1));
    *bytes_out = text.bytes - 1;
    return text.data;
}

#endif

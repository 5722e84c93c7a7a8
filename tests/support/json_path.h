/* Members of a JSON tree by their path; what is not there fails the test. */
#ifndef OFLOAD_TEST_JSON_PATH_H
#define OFLOAD_TEST_JSON_PATH_H

#include <cjson/cJSON.h>

#include "support/support.h"

/* The item at "a.b.c". */
static inline const cJSON *at(const cJSON *tree, const char *path)
{
    char text[128], *rest = NULL;
    (void)snprintf(text, sizeof text, "%s", path);
    for (char *key = strtok_r(text, ".", &rest); key != NULL; key = strtok_r(NULL, ".", &rest)) {
        tree = cJSON_GetObjectItemCaseSensitive(tree, key);
        if (tree == NULL) fail_msg("the JSON has no %s", path);
    }
    return tree;
}

static inline double number(const cJSON *tree, const char *path)
{
    const cJSON *item = at(tree, path);
    if (!cJSON_IsNumber(item)) fail_msg("%s is no number", path);
    return item->valuedouble;
}

static inline const char *text(const cJSON *tree, const char *path) { return at(tree, path)->valuestring; }

#endif

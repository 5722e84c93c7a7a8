/* The pieces of reading a folder: files, tokenizer.json, and the rules in it for cutting text. */
#ifndef OFLOAD_BATCH_TOKENIZER_JSON_H
#define OFLOAD_BATCH_TOKENIZER_JSON_H

#include <cJSON.h>

#include "batch/tokenizer_parts.h"

/* tokenizer.json; name: for sentences. */
ofl_status tokenizer_json_read(tokenizer *t, const cJSON *root, const char *name);
/* Its normalizer and pre_tokenizer. */
ofl_status tokenizer_json_rules(tokenizer *t, const cJSON *root, const char *name);

/* NULL where there is no such member, or where it is null. */
static inline const cJSON *json_member(const cJSON *object, const char *name)
{
    const cJSON *found = cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
    return cJSON_IsNull(found) ? NULL : found;
}

static inline const char *json_text(const cJSON *object, const char *name) { return cJSON_GetStringValue(json_member(object, name)); }

/* A whole number from 0 to VOCABULARY_MAX_ID, or -1. */
static inline int64_t json_id(const cJSON *item)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= VOCABULARY_MAX_ID)) return -1;
    int64_t id = (int64_t)item->valuedouble;
    return (double)id == item->valuedouble ? id : -1;
}

/* The flag, or what it is by default. */
static inline bool json_flag(const cJSON *object, const char *name, bool by_default)
{
    const cJSON *found = json_member(object, name);
    return cJSON_IsBool(found) ? cJSON_IsTrue(found) : by_default;
}

#endif

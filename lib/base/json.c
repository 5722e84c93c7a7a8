#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add_raw(cJSON *object, const char *key, const char *digits) { return cJSON_AddRawToObject(object, key, digits) != NULL; }

bool ofl_json_add_u64(cJSON *object, const char *key, uint64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof digits, "%" PRIu64, value);
    return add_raw(object, key, digits);
}

bool ofl_json_add_i64(cJSON *object, const char *key, int64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof digits, "%" PRId64, value);
    return add_raw(object, key, digits);
}

bool ofl_json_add_double(cJSON *object, const char *key, double value)
{
    char digits[40];
    if (!isfinite(value)) return cJSON_AddNullToObject(object, key) != NULL;
    for (int precision = 6; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    return add_raw(object, key, digits);
}

bool ofl_json_add_string(cJSON *object, const char *key, const char *value) { return cJSON_AddStringToObject(object, key, value) != NULL; }

static ofl_status get_number(const cJSON *object, const char *where, const char *key, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\" is missing or no number", where, key);
    *out = item->valuedouble;
    return OFL_OK;
}

ofl_status ofl_json_get_u64(const cJSON *object, const char *where, const char *key, uint64_t *out)
{
    double value = 0;
    ofl_status status = get_number(object, where, key, &value);
    if (status != OFL_OK) return status;
    if (value < 0 || value >= 9007199254740992.0 || floor(value) != value)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\" is %g; a whole number from 0 to 2^53 - 1 is needed", where, key, value);
    *out = (uint64_t)value;
    return OFL_OK;
}

ofl_status ofl_json_get_double(const cJSON *object, const char *where, const char *key, double *out)
{
    return get_number(object, where, key, out);
}

ofl_status ofl_json_get_string(const cJSON *object, const char *where, const char *key, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(item)) return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\" is missing or no string", where, key);
    *out = item->valuestring;
    return OFL_OK;
}

char *ofl_json_finish(cJSON *tree)
{
    char *printed = cJSON_Print(tree);
    char *text = printed != NULL ? ofl_copy_string(printed, strlen(printed)) : NULL;
    cJSON_free(printed);
    cJSON_Delete(tree);
    return text;
}

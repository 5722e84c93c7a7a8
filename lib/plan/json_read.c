#include "plan/json_read.h"

#include <string.h>

#include "plan/plan_state.h"

#define REAL_MOST 1e60 /* figures within their bounds forecast less, and sums of such values are numbers */

void ofl_read_refuse(ofl_json_reader *r, const char *what)
{
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: %s; make the plan anew", what);
}

void ofl_read_no_memory(ofl_json_reader *r)
{
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory while reading JSON");
}

const cJSON *ofl_read_member(ofl_json_reader *r, const cJSON *object, const char *key, int array)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (array ? cJSON_IsArray(item) : cJSON_IsObject(item)) return item;
    if (r->status == OFL_OK)
        r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is missing or no %s; make the plan anew", key,
                             array ? "array" : "object");
    return NULL;
}

uint64_t ofl_read_number(ofl_json_reader *r, const cJSON *object, const char *key, uint64_t most)
{
    uint64_t value = 0;
    if (r->status == OFL_OK) r->status = ofl_json_get_u64(object, "plan", key, &value);
    if (r->status == OFL_OK && value > most)
        r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is %llu, at most %llu is possible", key, (unsigned long long)value,
                             (unsigned long long)most);
    return r->status == OFL_OK ? value : 0;
}

uint64_t ofl_read_size(ofl_json_reader *r, const cJSON *object, const char *key)
{
    return ofl_read_number(r, object, key, OFL_LARGEST_WHOLE);
}

uint32_t ofl_read_count(ofl_json_reader *r, const cJSON *object, const char *key)
{
    return (uint32_t)ofl_read_number(r, object, key, UINT32_MAX);
}

double ofl_read_real(ofl_json_reader *r, const cJSON *object, const char *key)
{
    double value = 0;
    if (r->status == OFL_OK) r->status = ofl_json_get_double(object, "plan", key, &value);
    if (r->status == OFL_OK && value < 0) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is below 0", key);
    if (r->status == OFL_OK && value > REAL_MOST)
        r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is %g, beyond all that a plan can be made of", key, value);
    return value;
}

const char *ofl_read_string(ofl_json_reader *r, const cJSON *object, const char *key)
{
    const char *value = "";
    if (r->status == OFL_OK) r->status = ofl_json_get_string(object, "plan", key, &value);
    return value;
}

bool ofl_read_flag(const cJSON *object, const char *key) { return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key)); }

char *ofl_read_text(ofl_json_reader *r, const cJSON *object, const char *key)
{
    const char *value = ofl_read_string(r, object, key);
    if (r->status == OFL_OK && !ofl_is_printable(value))
        r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is no text of one line", key);
    char *copy = r->status == OFL_OK ? ofl_copy_string(value, strlen(value)) : NULL;
    if (copy == NULL) ofl_read_no_memory(r);
    return copy;
}

int ofl_read_kind(ofl_json_reader *r, const cJSON *object, const char *key, const char *(*name)(int))
{
    const char *value = ofl_read_string(r, object, key);
    for (int i = 0; r->status == OFL_OK && strcmp(name(i), "?") != 0; i++) {
        if (strcmp(value, name(i)) == 0) return i;
    }
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is \"%.40s\", which is unknown", key, value);
    return 0;
}

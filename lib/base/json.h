/* cJSON with whole numbers kept exact: written as digits, read only when below 2^53 and whole. */
#ifndef OFLOAD_LIB_JSON_H
#define OFLOAD_LIB_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

/* Each false when out of memory. */
bool ofl_json_add_u64(cJSON *object, const char *key, uint64_t value);
bool ofl_json_add_i64(cJSON *object, const char *key, int64_t value);
bool ofl_json_add_double(cJSON *object, const char *key,
                         double value); /* 17 digits at most, the shortest that reads back; not finite → null */
bool ofl_json_add_string(cJSON *object, const char *key, const char *value);

/* Missing, of another type, negative, fractional or at least 2^53: OFL_ERROR_FORMAT naming `where` and key. */
ofl_status ofl_json_get_u64(const cJSON *object, const char *where, const char *key, uint64_t *out);
ofl_status ofl_json_get_double(const cJSON *object, const char *where, const char *key, double *out);
ofl_status ofl_json_get_string(const cJSON *object, const char *where, const char *key, const char **out);

/* Prints and frees the tree: a string for ofl_free, or NULL (out of memory). */
char *ofl_json_finish(cJSON *tree);

#endif

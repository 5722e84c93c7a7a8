/* Writes JSON text as it goes, without a tree: a plan of many units costs its text and no more. Lines are broken down to the second level.
 */
#ifndef OFLOAD_LIB_JSON_TEXT_H
#define OFLOAD_LIB_JSON_TEXT_H

#include "base/base.h"

typedef struct ofl_json_text {
    char *bytes;
    uint64_t count, capacity;
    uint32_t depth;
    bool comma, failed; /* failed: out of memory; all later calls do nothing */
} ofl_json_text;

/* key: NULL in arrays and for the whole. kind: '{' or '['. */
void ofl_json_open(ofl_json_text *text, const char *key, char kind);
void ofl_json_close(ofl_json_text *text, char kind);
void ofl_json_put_u64(ofl_json_text *text, const char *key, uint64_t value);
void ofl_json_put_i64(ofl_json_text *text, const char *key, int64_t value);
void ofl_json_put_bool(ofl_json_text *text, const char *key, bool value);
void ofl_json_put_null(ofl_json_text *text, const char *key);
/* As few digits as read back equal, of 15 to 17; not finite: null. */
void ofl_json_put_double(ofl_json_text *text, const char *key, double value);
void ofl_json_put_string(ofl_json_text *text, const char *key, const char *value);

#endif

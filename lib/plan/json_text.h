/* Writes JSON text as it goes, without a tree: a plan of many units costs its text and no more. Lines are broken down to the second level.
 */
#ifndef OFLOAD_LIB_JSON_TEXT_H
#define OFLOAD_LIB_JSON_TEXT_H

#include "base/base.h"
#include "base/sha256.h"

typedef struct ofl_json_text {
    char *bytes;
    uint64_t count, capacity;
    ofl_sha256 *hash; /* not NULL: the text is hashed, not kept; bytes is a buffer of that capacity and calls cannot fail */
    double last;      /* and its digits: the same figure comes often */
    char last_digits[32];
    uint32_t depth, last_length;
    bool comma, failed; /* failed: out of memory; all later calls do nothing */
} ofl_json_text;

/* What is left in the buffer, with text->hash. */
void ofl_json_hash_rest(ofl_json_text *text);

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

/* JSON read piece by piece from a file: no tree, no recursion, memory for one string. Whole numbers stay exact. */
#ifndef OFLOAD_LIB_JSON_PULL_H
#define OFLOAD_LIB_JSON_PULL_H

#include "base/file.h"

#define OFL_JSON_MAX_DEPTH 64u
#define OFL_JSON_MAX_TEXT 65536u /* of strings that are kept; skipped ones may be longer */

typedef enum ofl_json_event {
    OFL_JSON_OBJECT, OFL_JSON_OBJECT_END, OFL_JSON_ARRAY, OFL_JSON_ARRAY_END,
    OFL_JSON_KEY, OFL_JSON_STRING, OFL_JSON_NUMBER, OFL_JSON_TRUE, OFL_JSON_FALSE, OFL_JSON_NULL,
    OFL_JSON_END /* nothing follows the value */
} ofl_json_event;

typedef struct ofl_json_pull {
    ofl_reader *reader; /* from its position to its end */
    const unsigned char *window;
    uint64_t window_bytes, window_used;
    uint64_t objects; /* bit per level: 1 object, 0 array */
    uint32_t depth;
    int expects;
    bool discard;
    void *text; /* of the last key, string or number; NUL-terminated, holds no other NUL */
    uint64_t text_bytes, text_capacity;
} ofl_json_pull;

/* The reader must stay; nothing else may use it meanwhile. */
void ofl_json_pull_start(ofl_json_pull *pull, ofl_reader *reader);
void ofl_json_pull_end(ofl_json_pull *pull);
/* OFL_ERROR_FORMAT with file, byte and reason; OFL_ERROR_UNSUPPORTED beyond the limits. */
ofl_status ofl_json_pull_next(ofl_json_pull *pull, ofl_json_event *event_out);
const char *ofl_json_pull_text(const ofl_json_pull *pull);

/* The next event must be this one. */
ofl_status ofl_json_pull_expect(ofl_json_pull *pull, ofl_json_event event, const char *what);
/* Within an object: true and its text is the next key, false at the object's end. */
ofl_status ofl_json_pull_key(ofl_json_pull *pull, bool *more_out);
/* Passes over the next value, whatever it is. */
ofl_status ofl_json_pull_skip(ofl_json_pull *pull);
/* The next value as digits alone (no sign, fraction or exponent), exact up to 2^64 − 1; `what` is for the sentence. */
ofl_status ofl_json_pull_u64(ofl_json_pull *pull, const char *what, uint64_t *out);
ofl_status ofl_json_pull_double(ofl_json_pull *pull, const char *what, double *out);
ofl_status ofl_json_pull_string(ofl_json_pull *pull, const char *what, const char **out);
/* An array of whole numbers, at most `room`. */
ofl_status ofl_json_pull_u64_array(ofl_json_pull *pull, const char *what, uint64_t *values, uint32_t room, uint32_t *count_out);

#endif

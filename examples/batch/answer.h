/* The text of one answer as it grows: whole UTF-8 characters only, cut before the first stop string. */
#ifndef OFLOAD_BATCH_ANSWER_H
#define OFLOAD_BATCH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include <ofload/status.h>

#define ANSWER_MAX_STOPS 4

typedef struct answer {
    char *text;            /* owned: all bytes so far */
    size_t bytes, capacity;
    char *stops[ANSWER_MAX_STOPS]; /* owned copies */
    size_t stop_bytes[ANSWER_MAX_STOPS];
    size_t stop_count;
    bool stopped;
} answer;

/* Empty stop strings are refused: OFL_ERROR_ARGUMENT. */
ofl_status answer_init(answer *a, const char *const *stops, const size_t *stop_bytes, size_t stop_count);
/* Adds a token's bytes. *stopped_out: a stop string is complete; text then ends before it. */
ofl_status answer_push(answer *a, const char *bytes, size_t count, bool *stopped_out);
/* Ends it: bytes that are no whole character become U+FFFD, so that text is valid UTF-8; a NUL too, since many readers of JSON end a
 * string there. */
ofl_status answer_finish(answer *a);
void answer_free(answer *a);

#endif

#include "batch/answer.h"

#include <stdlib.h>
#include <string.h>

#include "batch/grow.h"
#include "common/utf8.h"
#include "common/app_error.h"

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "answer: out of memory"); }

ofl_status answer_init(answer *a, const char *const *stops, const size_t *stop_bytes, size_t stop_count)
{
    *a = (answer){0};
    if (stop_count > ANSWER_MAX_STOPS) return app_fail(OFL_ERROR_ARGUMENT, "stop: %zu strings; at most %d", stop_count, ANSWER_MAX_STOPS);
    for (size_t i = 0; i < stop_count; i++) {
        if (stop_bytes[i] == 0) {
            answer_free(a);
            return app_fail(OFL_ERROR_ARGUMENT, "stop: string %zu is empty; leave it out", i + 1);
        }
        char *copy = malloc(stop_bytes[i]);
        if (copy == NULL) {
            answer_free(a);
            return no_memory();
        }
        memcpy(copy, stops[i], stop_bytes[i]);
        a->stops[i] = copy;
        a->stop_bytes[i] = stop_bytes[i];
        a->stop_count = i + 1;
    }
    return OFL_OK;
}

/* The longest stop string that ends at `end`; 0: none. */
static size_t stop_ending_at(const answer *a, size_t end)
{
    size_t longest = 0;
    for (size_t i = 0; i < a->stop_count; i++) {
        size_t bytes = a->stop_bytes[i];
        if (bytes > longest && bytes <= end && memcmp(a->text + end - bytes, a->stops[i], bytes) == 0) longest = bytes;
    }
    return longest;
}

/* The stop string that is complete first counts, so that the cut does not depend on how the text falls into tokens. */
ofl_status answer_push(answer *a, const char *bytes, size_t count, bool *stopped_out)
{
    if (!a->stopped) {
        buffer text = {a->text, a->bytes, a->capacity};
        if (!buffer_add(&text, bytes, count)) return no_memory();
        a->text = text.data;
        a->capacity = text.capacity;
        size_t end = a->bytes;
        a->bytes = text.bytes;
        while (!a->stopped && end < a->bytes) {
            size_t stop = stop_ending_at(a, ++end);
            if (stop == 0) continue;
            a->bytes = end - stop;
            a->stopped = true;
        }
    }
    *stopped_out = a->stopped;
    return OFL_OK;
}

ofl_status answer_finish(answer *a)
{
    if (a->bytes == 0 || (utf8_valid(a->text, a->bytes) && memchr(a->text, '\0', a->bytes) == NULL)) return OFL_OK;
    buffer clean = {0};
    for (size_t at = 0; at < a->bytes;) {
        char character[4];
        utf8_char c = utf8_read(a->text + at, a->bytes - at);
        if (!buffer_add(&clean, character, utf8_write(c.code != 0 ? c.code : UTF8_REPLACEMENT, character))) {
            buffer_free(&clean);
            return no_memory();
        }
        at += c.bytes;
    }
    free(a->text);
    a->text = clean.data;
    a->bytes = clean.bytes;
    a->capacity = clean.capacity;
    return OFL_OK;
}

void answer_free(answer *a)
{
    for (size_t i = 0; i < a->stop_count; i++) free(a->stops[i]);
    free(a->text);
    *a = (answer){0};
}

/* Writes JSON text piece by piece into a buffer. */
#ifndef OFLOAD_BATCH_JSON_PUT_H
#define OFLOAD_BATCH_JSON_PUT_H

#include "batch/grow.h"

/* All writing goes through here; the first failure stays. */
typedef struct json_put { buffer *out; bool ok; } json_put;

void put(json_put *w, const char *text);
/* Numbers and short names: up to 255 bytes. */
void put_format(json_put *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A string with its quotes; text is valid UTF-8. */
void put_string(json_put *w, const char *text, size_t bytes);
/* NULL: null. */
void put_text(json_put *w, const char *text);

#endif

/* A plan's JSON, changed by hand: free() what comes back. */
#ifndef OFLOAD_TEST_PLAN_TEXT_H
#define OFLOAD_TEST_PLAN_TEXT_H

#include "support/support.h"

#include "base/sha256.h"

/* The identity of the changed text, so that what is refused is the change and not the missing hash. */
static inline char *plan_sign(const char *json)
{
    const char *key = ",\n    \"plan\": \"", *from = strstr(json, key);
    size_t length = strlen(json), before = (size_t)(from - json), taken = strlen(key) + 64 + 1;
    char *without = malloc(length), *whole = malloc(length + 1), hex[OFL_SHA256_HEX];
    memcpy(without, json, before);
    memcpy(without + before, from + taken, length - before - taken);
    ofl_sha256_hex(without, length - taken, hex);
    memcpy(whole, json, length + 1);
    memcpy(whole + before + strlen(key), hex, 64);
    free(without);
    return whole;
}

/* The first `before` bytes of a text, `middle`, and `rest` to its end; NULL without memory. */
static inline char *plan_join(const char *text, size_t before, const char *middle, const char *rest)
{
    size_t length = strlen(middle), after = strlen(rest);
    char *out = malloc(before + length + after + 1);
    if (out == NULL) return NULL;
    memcpy(out, text, before);
    memcpy(out + before, middle, length);
    memcpy(out + before + length, rest, after + 1);
    return out;
}

/* The first one replaced; NULL where there is none. */
static inline char *plan_replace(const char *text, const char *what, const char *with)
{
    const char *from = strstr(text, what);
    return from != NULL ? plan_join(text, (size_t)(from - text), with, from + strlen(what)) : NULL;
}

#endif

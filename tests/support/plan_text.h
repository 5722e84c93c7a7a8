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

/* The first one replaced; NULL where there is none. */
static inline char *plan_replace(const char *text, const char *what, const char *with)
{
    const char *from = strstr(text, what);
    if (from == NULL) return NULL;
    char *out = malloc(strlen(text) + strlen(with) + 1);
    (void)sprintf(out, "%.*s%s%s", (int)(from - text), text, with, from + strlen(what));
    return out;
}

#endif

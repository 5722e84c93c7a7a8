#include "common/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

cJSON *json_add_text(cJSON *object, const char *key, const char *text)
{
    size_t bytes = strlen(text), to = 0;
    char *clean = malloc(3 * bytes + 1); /* a byte becomes three at most */
    if (clean == NULL) return NULL;
    for (size_t at = 0; at < bytes;) {
        utf8_char c = utf8_read(text + at, bytes - at);
        to += utf8_write(c.code, clean + to);
        at += c.bytes;
    }
    clean[to] = '\0';
    cJSON *added = cJSON_AddStringToObject(object, key, clean);
    free(clean);
    return added;
}

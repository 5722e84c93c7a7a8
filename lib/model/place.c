#include "model/place.h"

#include <string.h>

static bool matches(const char *stem, const char *name)
{
    if (stem[0] != name[0] && stem[0] != '*') return false;
    size_t length = strlen(stem);
    if (length > 0 && stem[length - 1] == '*') return strncmp(stem, name, length - 1) == 0;
    return strcmp(stem, name) == 0;
}

const ofl_place_rule *ofl_place_find(const ofl_place_rule *rules, size_t count, const char *stem)
{
    for (size_t i = 0; i < count; i++) {
        if (matches(rules[i].stem, stem)) return &rules[i];
    }
    return NULL;
}

const char *ofl_place_number(const char *text, uint32_t *number_out)
{
    uint32_t number = 0, digits = 0;
    while (text[digits] >= '0' && text[digits] <= '9' && digits < 6) number = number * 10 + (uint32_t)(text[digits++] - '0');
    if (digits == 0 || text[digits] != '.') return NULL;
    *number_out = number;
    return text + digits + 1;
}

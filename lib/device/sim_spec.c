/* sim:KEY=VALUE,… into figures. Numbers are read by hand: strtod follows the program's locale. */
#include "device/sim.h"

#include <math.h>
#include <string.h>

#define SIZE_MAX_BYTES 1e18L /* an exabyte, far from 64 bits' end */
#define RATE_MIN 1.0
#define RATE_MAX 1e18

typedef struct sim_unit {
    const char *name;
    long double factor;
} sim_unit;

static const sim_unit sizes[] = {{"", 1},      {"B", 1},    {"kB", 1e3L}, {"MB", 1e6L},          {"GB", 1e9L},
                                 {"TB", 1e12L}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776.0L}};
static const sim_unit rates[] = {{"", 1},         {"B/s", 1},      {"kB/s", 1e3L},      {"MB/s", 1e6L},
                                 {"GB/s", 1e9L},  {"KiB/s", 1024}, {"MiB/s", 1048576}, {"GiB/s", 1073741824}};
static const sim_unit times[] = {{"", 1}, {"s", 1}, {"ms", 1e-3L}, {"us", 1e-6L}, {"ns", 1e-9L}};

static const char *read_digits(const char *text, const char *end, long double *value, long double *scale, bool *any)
{
    for (; text < end && *text >= '0' && *text <= '9'; text++) {
        *value = *value * 10 + (*text - '0');
        *scale *= 10;
        *any = true;
    }
    return text;
}

/* Decimal digits with one point at most, then a unit of the table; nothing else. */
static bool read_figure(const char *text, const char *end, const sim_unit *units, size_t unit_count, long double *out)
{
    long double value = 0, scale = 1, ignored = 1;
    bool any = false;
    text = read_digits(text, end, &value, &ignored, &any);
    if (text < end && *text == '.') text = read_digits(text + 1, end, &value, &scale, &any);
    if (!any || !isfinite(value) || !isfinite(scale)) return false;
    for (size_t i = 0; i < unit_count; i++) {
        if (strlen(units[i].name) != (size_t)(end - text) || memcmp(units[i].name, text, (size_t)(end - text)) != 0) continue;
        *out = value / scale * units[i].factor;
        return true;
    }
    return false;
}

static bool read_size(const char *text, const char *end, uint64_t *out)
{
    long double value;
    if (!read_figure(text, end, sizes, OFL_COUNT_OF(sizes), &value) || value > SIZE_MAX_BYTES) return false;
    *out = (uint64_t)roundl(value);
    return true;
}

static bool read_rate(const char *text, const char *end, double *out)
{
    long double value;
    if (!read_figure(text, end, rates, OFL_COUNT_OF(rates), &value) || value < (long double)RATE_MIN || value > (long double)RATE_MAX)
        return false;
    *out = (double)value;
    return true;
}

static bool read_seconds(const char *text, const char *end, double *out)
{
    long double value;
    if (!read_figure(text, end, times, OFL_COUNT_OF(times), &value) || value > 1) return false;
    *out = (double)value;
    return true;
}

static bool read_count(const char *text, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    if (text == end) return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') return false;
        if (!ofl_mul_u64(value, 10, &value) || !ofl_add_u64(value, (uint64_t)(*text - '0'), &value)) return false;
    }
    *out = value;
    return true;
}

static bool read_clock(const char *text, const char *end, bool *is_virtual)
{
    size_t bytes = (size_t)(end - text);
    *is_virtual = bytes == 7 && memcmp(text, "virtual", 7) == 0;
    return *is_virtual || (bytes == 4 && memcmp(text, "wall", 4) == 0);
}

typedef enum sim_key_kind { KEY_SIZE, KEY_RATE, KEY_SECONDS, KEY_COUNT, KEY_CLOCK } sim_key_kind;
typedef struct sim_key {
    const char *name;
    sim_key_kind kind;
    size_t offset; /* in sim_spec */
} sim_key;

static const sim_key keys[] = {
    {"vram", KEY_SIZE, offsetof(sim_spec, vram_bytes)},         {"h2d", KEY_RATE, offsetof(sim_spec, h2d)},
    {"h2d_pageable", KEY_RATE, offsetof(sim_spec, h2d_pageable)}, {"d2h", KEY_RATE, offsetof(sim_spec, d2h)},
    {"start", KEY_SECONDS, offsetof(sim_spec, start_seconds)},  {"clock", KEY_CLOCK, offsetof(sim_spec, is_virtual)},
    {"order", KEY_COUNT, offsetof(sim_spec, order)},            {"runtime", KEY_SIZE, offsetof(sim_spec, runtime_bytes)},
    {"pinnable", KEY_SIZE, offsetof(sim_spec, pinnable_bytes)},
};
static const char *const key_help[] = {"a size such as 12GB or 12GiB", "a rate such as 3.26GB/s", "a time up to a second such as 5us",
                                       "a whole number", "wall or virtual"};

static bool read_value(const sim_key *key, const char *text, const char *end, sim_spec *spec)
{
    void *place = (char *)spec + key->offset;
    switch (key->kind) {
    case KEY_SIZE: return read_size(text, end, place);
    case KEY_RATE: return read_rate(text, end, place);
    case KEY_SECONDS: return read_seconds(text, end, place);
    case KEY_COUNT: return read_count(text, end, place);
    case KEY_CLOCK: return read_clock(text, end, place);
    }
    return false;
}

/* One KEY=VALUE in [text, end); `seen` has a bit a key. */
static ofl_status read_pair(const char *text, const char *end, const char *whole, sim_spec *spec, uint32_t *seen)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    if (equals == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: \"%.*s\" is not KEY=VALUE", whole, (int)(end - text), text);
    for (uint32_t i = 0; i < OFL_COUNT_OF(keys); i++) {
        if (strlen(keys[i].name) != (size_t)(equals - text) || memcmp(keys[i].name, text, (size_t)(equals - text)) != 0) continue;
        if (*seen & (1u << i)) return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: %s is given twice", whole, keys[i].name);
        *seen |= 1u << i;
        if (read_value(&keys[i], equals + 1, end, spec)) return OFL_OK;
        return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: %s=%.*s; give %s", whole, keys[i].name, (int)(end - equals - 1), equals + 1,
                        key_help[keys[i].kind]);
    }
    return ofl_fail(OFL_ERROR_ARGUMENT,
                    "device %.200s: unknown key %.*s; known are vram, h2d, h2d_pageable, d2h, start, clock, order, runtime, pinnable",
                    whole, (int)(equals - text), text);
}

static ofl_status check_spec(const char *whole, sim_spec *spec)
{
    if (spec->vram_bytes == 0) return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: no device memory; add vram=SIZE", whole);
    if (spec->h2d <= 0) return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: no link rate; add h2d=RATE", whole);
    if (spec->runtime_bytes > spec->vram_bytes) return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: runtime is larger than vram", whole);
    if (spec->h2d_pageable <= 0) spec->h2d_pageable = spec->h2d;
    if (spec->d2h <= 0) spec->d2h = spec->h2d;
    return OFL_OK;
}

ofl_status ofl_sim_spec_parse(const char *text, const char *whole, sim_spec *out)
{
    sim_spec spec = {.pinnable_bytes = UINT64_MAX};
    uint32_t seen = 0;
    while (*text != '\0') {
        const char *end = text + strcspn(text, ",");
        ofl_status status = read_pair(text, end, whole, &spec, &seen);
        if (status != OFL_OK) return status;
        if (*end == ',' && end[1] == '\0') return ofl_fail(OFL_ERROR_ARGUMENT, "device %.200s: ends in a comma", whole);
        text = *end == ',' ? end + 1 : end;
    }
    ofl_status status = check_spec(whole, &spec);
    if (status == OFL_OK) *out = spec;
    return status;
}

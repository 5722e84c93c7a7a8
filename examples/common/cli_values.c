/* Sizes, rates and counts: read with their unit, shown with their unit. */
#include "common/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ofload/machine.h>

#define LARGEST_WHOLE 9007199254740992.0 /* 2^53 */

#define DAY 86400.0
#define YEAR (365.25 * DAY)

typedef struct unit { const char *name; double factor; } unit;

static const unit size_units[] = {
    {"B", 1},      {"kB", 1e3},      {"KB", 1e3},          {"MB", 1e6},           {"GB", 1e9},           {"TB", 1e12},
    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.}, {"TiB", 1099511627776.}};
static const unit flop_units[] = {{"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
                                  {"MFLOPS", 1e6},  {"GFLOPS", 1e9},  {"TFLOPS", 1e12},  {"PFLOPS", 1e15}};
static const struct { char letter; const char *decimal, *binary; } bare_letters[] = {
    {'k', "kB", "KiB"}, {'K', "kB", "KiB"}, {'M', "MB", "MiB"}, {'G', "GB", "GiB"}, {'T', "TB", "TiB"}};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9') at++;
    return at;
}

/* A plain decimal number, as people type it: no sign, no hexadecimal, no infinity. NULL when there is none. */
static const char *read_number(const char *text, double *value_out)
{
    char digits[64];
    const char *end = skip_digits(text);
    if (*end == '.') end = skip_digits(end + 1);
    size_t length = (size_t)(end - text);
    if (length == 0 || (length == 1 && *text == '.')) return NULL;
    if (*end == 'e' || *end == 'E') {
        const char *power = end + (end[1] == '+' || end[1] == '-' ? 2 : 1), *past = skip_digits(power);
        if (past > power) end = past;
    }
    length = (size_t)(end - text);
    if (length >= sizeof digits) return NULL;
    memcpy(digits, text, length);
    digits[length] = '\0';
    *value_out = strtod(digits, NULL);
    return isfinite(*value_out) ? end + strspn(end, " ") : NULL;
}

static const unit *find_unit(const unit *units, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(units[i].name, name) == 0) return &units[i];
    }
    return NULL;
}

static ofl_status whole_bytes(const char *text, double bytes, uint64_t *out)
{
    if (bytes >= LARGEST_WHOLE) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is more than 9 PB", text);
    *out = (uint64_t)(bytes + 0.5);
    return OFL_OK;
}

static double factor_of(const char *name) { return find_unit(size_units, COUNT_OF(size_units), name)->factor; }

static ofl_status unclear_size(const char *text, const char *number_end, double value, char letter)
{
    char first[32], second[32];
    int length = (int)(number_end - text);
    for (size_t i = 0; i < COUNT_OF(bare_letters); i++) {
        if (bare_letters[i].letter != letter) continue;
        return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" can be read in two ways: %.*s%s is %s bytes, %.*s%s is %s; write one of them", text,
                        length, text, bare_letters[i].decimal,
                        cli_show_count(first, (uint64_t)(value * factor_of(bare_letters[i].decimal) + 0.5)), length, text,
                        bare_letters[i].binary, cli_show_count(second, (uint64_t)(value * factor_of(bare_letters[i].binary) + 0.5)));
    }
    return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no size; write bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB", text);
}

ofl_status cli_parse_size(const char *text, uint64_t *bytes_out)
{
    double value = 0;
    const char *name = read_number(text, &value);
    if (name == NULL) return unclear_size(text, text, 0, '\0');
    if (*name == '\0') {
        if (floor(value) != value)
            return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no whole number of bytes; a unit is missing, such as GB or GiB", text);
        return whole_bytes(text, value, bytes_out);
    }
    const unit *found = find_unit(size_units, COUNT_OF(size_units), name);
    if (found != NULL) return whole_bytes(text, value * found->factor, bytes_out);
    return unclear_size(text, name, value < 1e6 ? value : 0, strlen(name) == 1 && value < 1e6 ? *name : '\0');
}

static ofl_status take_rate(const char *text, double rate, double *out)
{
    if (rate < OFL_RATE_LEAST || rate > OFL_RATE_MOST)
        return app_fail(OFL_ERROR_ARGUMENT, "\"%s\": a rate is above 0, from %g to %g a second", text, OFL_RATE_LEAST, OFL_RATE_MOST);
    *out = rate;
    return OFL_OK;
}

ofl_status cli_parse_rate(const char *text, double *bytes_per_second_out)
{
    double value = 0;
    char name[8];
    const char *rest = read_number(text, &value);
    size_t length = rest != NULL ? strlen(rest) : 0;
    const unit *found = NULL;
    if (length > 2 && length < sizeof name && strcmp(rest + length - 2, "/s") == 0) {
        memcpy(name, rest, length - 2);
        name[length - 2] = '\0';
        found = find_unit(size_units, COUNT_OF(size_units), name);
    }
    if (found == NULL)
        return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no rate; write bytes a second with their unit, such as 12GB/s or 3.26GB/s", text);
    return take_rate(text, value * found->factor, bytes_per_second_out);
}

ofl_status cli_parse_flops(const char *text, double *out)
{
    double value = 0;
    const char *name = read_number(text, &value);
    const unit *found = name != NULL ? find_unit(flop_units, COUNT_OF(flop_units), name) : NULL;
    if (found == NULL) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no rate of computing; write it as 51TFLOP/s or 800GFLOP/s", text);
    return take_rate(text, value * found->factor, out);
}

ofl_status cli_parse_count(const char *text, uint64_t *out)
{
    const char *end = skip_digits(text);
    if (end == text || *end != '\0' || end - text > 15) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no whole number from 0 up", text);
    *out = strtoull(text, NULL, 10);
    return OFL_OK;
}

ofl_status cli_parse_number(const char *text, double *out)
{
    double value = 0;
    const char *end = read_number(text + (*text == '-'), &value);
    if (end == NULL || *end != '\0') return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no number", text);
    *out = *text == '-' ? -value : value;
    return OFL_OK;
}

/* Two digits after the point from the third unit up (GB), one below it, none for single bytes. */
static void show_scaled(char *buffer, double value, const char *const *names, double step, const char *after)
{
    int at = 0;
    while (at < 4 && value >= step * 0.99995) {
        value /= step;
        at++;
    }
    (void)snprintf(buffer, 32, "%.*f %s%s", at == 0 ? 0 : at < 3 ? 1 : 2, value, names[at], after);
}

static const char *const decimal_names[] = {"B", "kB", "MB", "GB", "TB"};
static const char *const binary_names[] = {"B", "KiB", "MiB", "GiB", "TiB"};

char *cli_show_bytes(char *buffer, uint64_t bytes, int binary)
{
    show_scaled(buffer, (double)bytes, binary ? binary_names : decimal_names, binary ? 1024 : 1000, "");
    return buffer;
}

char *cli_show_rate(char *buffer, double bytes_per_second)
{
    show_scaled(buffer, bytes_per_second, decimal_names, 1000, "/s");
    return buffer;
}

char *cli_show_seconds(char *buffer, double seconds)
{
    char years[32];
    if (isinf(seconds)) (void)snprintf(buffer, 32, "never");
    else if (seconds >= 1e6 * YEAR) (void)snprintf(buffer, 32, "1,000,000+ years");
    else if (seconds >= 100 * YEAR) (void)snprintf(buffer, 32, "%s years", cli_show_count(years, (uint64_t)(seconds / YEAR + 0.5)));
    else if (seconds >= 1000 * DAY) (void)snprintf(buffer, 32, "%.1f years", seconds / YEAR);
    else if (seconds >= 100 * 3600) (void)snprintf(buffer, 32, "%.1f days", seconds / DAY);
    else if (seconds >= 5400) (void)snprintf(buffer, 32, "%.0f h %02d min", floor(seconds / 3600), (int)(fmod(seconds, 3600) / 60));
    else if (seconds >= 99.995) (void)snprintf(buffer, 32, "%.0f s", seconds);
    else if (seconds >= 0.99995) (void)snprintf(buffer, 32, "%.2f s", seconds);
    else if (seconds >= 0.99995e-3) (void)snprintf(buffer, 32, "%.1f ms", seconds * 1e3);
    else if (seconds > 0) (void)snprintf(buffer, 32, "%.1f µs", seconds * 1e6);
    else (void)snprintf(buffer, 32, "0 s");
    return buffer;
}

char *cli_show_count(char *buffer, uint64_t count)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count), to = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) buffer[to++] = ',';
        buffer[to++] = digits[i];
    }
    buffer[to] = '\0';
    return buffer;
}

char *cli_show_tokens(char *buffer, double tokens_per_second)
{
    int decimals = 1;
    if (tokens_per_second >= 99.95) return cli_show_count(buffer, (uint64_t)(tokens_per_second + 0.5));
    for (double edge = 9.995; tokens_per_second < edge && decimals < 6; edge /= 10) decimals++;
    (void)snprintf(buffer, 32, "%.*f", decimals, tokens_per_second);
    return buffer;
}

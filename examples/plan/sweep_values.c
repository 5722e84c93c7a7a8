#include "plan/sweep_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"

#define POINTS 9 /* where neither step nor count is given */

typedef struct kind { const char *name, *option; ofl_figure figure; } kind;

static const kind kinds[SWEEP_KINDS] = {
    [SWEEP_VRAM] = {"vram", "--vram", OFL_FIGURE_VRAM},
    [SWEEP_CONTEXT] = {"context", "--context", OFL_FIGURE_COUNT},
    [SWEEP_SEQUENCES] = {"sequences", "--sequences", OFL_FIGURE_COUNT},
    [SWEEP_LINK] = {"link", "--link", OFL_FIGURE_LINK},
};

const char *sweep_option(sweep_what what) { return kinds[what].option; }
const char *sweep_name(sweep_what what) { return kinds[what].name; }
ofl_figure sweep_figure(sweep_what what) { return kinds[what].figure; }

static ofl_status unclear(const char *text)
{
    return app_fail(OFL_ERROR_ARGUMENT,
                    "\"%s\" is no sweep; write vram=8GiB..24GiB, context=1024..32768, sequences=1..64 or link=3GB/s..25GB/s, with ,STEP or "
                    "/COUNT after it where wanted",
                    text);
}

static ofl_status read_one(sweep_what what, const char *text, double *out)
{
    uint64_t whole = 0;
    ofl_status status = what == SWEEP_LINK   ? cli_parse_rate(text, out)
                        : what == SWEEP_VRAM ? cli_parse_size(text, &whole)
                                             : cli_parse_count(text, &whole);
    if (status != OFL_OK || what == SWEEP_LINK) return status;
    if (whole == 0) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\": a value above 0 is needed", text);
    if (what != SWEEP_VRAM && whole > UINT32_MAX) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is more than %u", text, (unsigned)UINT32_MAX);
    *out = (double)whole;
    return OFL_OK;
}

/* Whole numbers, but for rates; a value equal to the one before is left out. */
static ofl_status add(sweep_values *to, double value)
{
    if (to->what != SWEEP_LINK) value = floor(value + 0.5);
    if (to->count > 0 && value <= to->values[to->count - 1]) return OFL_OK;
    if (to->count == SWEEP_MOST)
        return app_fail(OFL_ERROR_ARGUMENT, "that is more than %d values; give a larger step, or /COUNT after the range", SWEEP_MOST);
    to->values[to->count++] = value;
    return OFL_OK;
}

static ofl_status add_doubled(sweep_values *to, double first, double last)
{
    ofl_status status = OFL_OK;
    to->doubling = true;
    for (double value = first; value < last && status == OFL_OK; value *= 2) status = add(to, value);
    return status == OFL_OK ? add(to, last) : status;
}

static ofl_status add_stepped(sweep_values *to, double first, double last, double step)
{
    ofl_status status = OFL_OK;
    for (int i = 0; status == OFL_OK && first + i * step <= last * (1 + 1e-12); i++) status = add(to, first + i * step);
    return status;
}

static ofl_status add_spaced(sweep_values *to, double first, double last, uint64_t count)
{
    ofl_status status = OFL_OK;
    if (count < 2 || count > SWEEP_MOST) return app_fail(OFL_ERROR_ARGUMENT, "a count of values is from 2 to %d", SWEEP_MOST);
    for (uint64_t i = 0; i < count && status == OFL_OK; i++)
        status = add(to, first + (last - first) * (double)i / (double)(count - 1));
    return status;
}

/* Cuts the text at its last `mark` where only digits follow ("/5", but not "GB/s"); NULL where it has none. */
static char *cut_count(char *text)
{
    char *slash = strrchr(text, '/');
    if (slash == NULL || slash[1] == '\0' || strspn(slash + 1, "0123456789") != strlen(slash + 1)) return NULL;
    *slash = '\0';
    return slash + 1;
}

static char *cut_at(char *text, const char *mark)
{
    char *at = strstr(text, mark);
    if (at == NULL) return NULL;
    *at = '\0';
    return at + strlen(mark);
}

static ofl_status read_range(char *first_text, sweep_values *to)
{
    double first = 0, last = 0, step = 0;
    uint64_t count = POINTS;
    char *step_text = cut_at(first_text, ","), *count_text = step_text == NULL ? cut_count(first_text) : NULL;
    char *last_text = cut_at(first_text, "..");
    if (last_text == NULL) return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no range; write FROM..TO", first_text);
    to->binary = strstr(first_text, "iB") != NULL || strstr(last_text, "iB") != NULL;
    ofl_status status = read_one(to->what, first_text, &first);
    if (status == OFL_OK) status = read_one(to->what, last_text, &last);
    if (status == OFL_OK && !(first < last))
        status = app_fail(OFL_ERROR_ARGUMENT, "%s..%s does not ascend; give the smaller value first", first_text, last_text);
    if (status == OFL_OK && step_text != NULL) status = read_one(to->what, step_text, &step);
    if (status == OFL_OK && count_text != NULL) status = cli_parse_count(count_text, &count);
    if (status != OFL_OK) return status;
    if (step_text != NULL) return add_stepped(to, first, last, step);
    bool counts = to->what == SWEEP_CONTEXT || to->what == SWEEP_SEQUENCES;
    return counts && count_text == NULL ? add_doubled(to, first, last) : add_spaced(to, first, last, count);
}

ofl_status sweep_values_read(const char *text, sweep_values *out)
{
    char copy[256];
    sweep_values own = {.what = SWEEP_KINDS};
    size_t length = strcspn(text, "=");
    if (text[length] != '=' || strlen(text) >= sizeof copy) return unclear(text);
    for (int i = 0; i < SWEEP_KINDS; i++) {
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, text, length) == 0) own.what = (sweep_what)i;
    }
    if (own.what == SWEEP_KINDS) return unclear(text);
    memcpy(copy, text + length + 1, strlen(text + length));
    ofl_status status = read_range(copy, &own);
    if (status == OFL_OK) *out = own;
    return status;
}

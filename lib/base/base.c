/* Failures, allocation and growable structs. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char sentence[1024];
static _Thread_local ofl_diagnostic diagnostic = {OFL_OK, "", 0, 0, 0};
static _Thread_local uint64_t allocations_until_fault;

static ofl_status fail(ofl_status status, int64_t code, uint64_t needed, uint64_t available, const char *format, va_list arguments)
{
    char text[sizeof sentence]; /* an argument may be the last sentence itself */
    (void)vsnprintf(text, sizeof text, format, arguments);
    memcpy(sentence, text, sizeof sentence);
    diagnostic = (ofl_diagnostic){status, sentence, code, needed, available};
    return status;
}

ofl_status ofl_fail(ofl_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(status, 0, 0, 0, format, arguments);
    va_end(arguments);
    return status;
}

ofl_status ofl_fail_room(ofl_status status, uint64_t needed, uint64_t available, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(status, 0, needed, available, format, arguments);
    va_end(arguments);
    return status;
}

ofl_status ofl_fail_code(ofl_status status, int64_t runtime_code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(status, runtime_code, 0, 0, format, arguments);
    va_end(arguments);
    return status;
}

const ofl_diagnostic *ofl_diagnostic_get(void) { return &diagnostic; }
const char *ofl_error_message(void) { return diagnostic.message; }

const char *ofl_status_name(ofl_status status)
{
    switch (status) {
#define NAME(name, value, text) \
    case value: return #name;
        OFL_STATUS_LIST(NAME)
#undef NAME
    default: return "?";
    }
}

const char *ofl_status_text(ofl_status status)
{
    switch (status) {
#define TEXT(name, value, text) \
    case value: return text;
        OFL_STATUS_LIST(TEXT)
#undef TEXT
    default: return "?";
    }
}

const char *ofl_version(void) { return OFLOAD_VERSION; }
void ofl_string_free(char *text) { ofl_free(text); }

uint64_t ofl_fault_allocation(uint64_t nth)
{
    uint64_t left = allocations_until_fault;
    allocations_until_fault = nth;
    return left;
}

static bool fault_now(void) { return allocations_until_fault != 0 && --allocations_until_fault == 0; }

void *ofl_alloc(uint64_t count, uint64_t size)
{
    uint64_t bytes;
    if (!ofl_mul_u64(count, size, &bytes) || bytes > SIZE_MAX || fault_now()) return NULL;
    return calloc(1, bytes ? (size_t)bytes : 1);
}

bool ofl_grow(void **array, uint64_t *capacity, uint64_t needed, uint64_t size)
{
    if (needed <= *capacity) return true;
    uint64_t wanted = *capacity < 8 ? 8 : *capacity, bytes;
    while (wanted < needed) {
        if (!ofl_mul_u64(wanted, 2, &wanted)) return false;
    }
    if (!ofl_mul_u64(wanted, size, &bytes) || bytes > SIZE_MAX || fault_now()) return false;
    char *grown = realloc(*array, (size_t)bytes);
    if (grown == NULL) return false;
    memset(grown + *capacity * size, 0, (size_t)(bytes - *capacity * size));
    *array = grown;
    *capacity = wanted;
    return true;
}

char *ofl_copy_string(const char *text, size_t bytes)
{
    char *copy = ofl_alloc((uint64_t)bytes + 1, 1);
    if (copy != NULL && bytes != 0) memcpy(copy, text, bytes);
    return copy;
}

void ofl_free(void *pointer) { free(pointer); }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ofl_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

char *ofl_format(const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    char *text = bytes < 0 ? NULL : ofl_alloc((uint64_t)bytes + 1, 1);
    if (text != NULL) (void)vsnprintf(text, (size_t)bytes + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

ofl_short_text ofl_bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    ofl_short_text out;
    double value = (double)bytes;
    size_t unit = 0;
    for (; unit + 1 < OFL_COUNT_OF(units) && value >= 999.9995; unit++) value /= 1000;
    (void)snprintf(out.text, sizeof out.text, "%.*f %s", unit == 0 ? 0 : 3, value, units[unit]);
    return out;
}

ofl_status ofl_struct_room(const void *to, const char *name)
{
    uint32_t size;
    if (to == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "%s: no struct given", name);
    memcpy(&size, to, sizeof size);
    if (size < sizeof size) return ofl_fail(OFL_ERROR_ARGUMENT, "%s: struct_size is %u; set it to sizeof(%s)", name, (unsigned)size, name);
    return OFL_OK;
}

ofl_status ofl_struct_in(void *full, size_t full_size, const void *from, const char *name)
{
    uint32_t size;
    ofl_status status = ofl_struct_room(from, name);
    if (status != OFL_OK) return status;
    memcpy(&size, from, sizeof size);
    for (size_t i = full_size; i < size; i++) {
        if (((const unsigned char *)from)[i] != 0)
            return ofl_fail(OFL_ERROR_ARGUMENT, "%s: a field beyond the %zu bytes that this version knows is set", name, full_size);
    }
    memset(full, 0, full_size);
    memcpy(full, from, size < full_size ? size : full_size);
    return OFL_OK;
}

ofl_status ofl_struct_out(void *to, const void *full, size_t full_size, const char *name)
{
    uint32_t size;
    ofl_status status = ofl_struct_room(to, name);
    if (status != OFL_OK) return status;
    memcpy(&size, to, sizeof size);
    if (size > full_size) memset((char *)to + full_size, 0, size - full_size);
    memcpy((char *)to + sizeof size, (const char *)full + sizeof size, (size < full_size ? size : full_size) - sizeof size);
    return OFL_OK;
}

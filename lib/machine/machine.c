/* Figures with their sources: set, read, and hashed into an identity. */
#include "machine/machine_state.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_WHOLE 9007199254740992.0 /* 2^53: above it doubles skip whole numbers */

static const char *const figure_keys[] = {
#define KEY(name, key, unit) key,
    OFL_FIGURE_LIST(KEY)
#undef KEY
};

static const char *const path_labels[] = {
#define LABEL(name, label) label,
    OFL_PATH_LIST(LABEL)
#undef LABEL
};

static const char *const figure_units[] = {
#define UNIT(name, key, unit) unit,
    OFL_FIGURE_LIST(UNIT)
#undef UNIT
};

static bool is_figure(ofl_figure figure) { return (int)figure >= 0 && figure < OFL_FIGURE_COUNT; }

const char *ofl_figure_key(ofl_figure figure) { return is_figure(figure) ? figure_keys[figure] : "?"; }

const char *ofl_source_name(ofl_source source)
{
    switch (source) {
    case OFL_SOURCE_NONE: return "none";
    case OFL_SOURCE_ASSUMED: return "assumed";
    case OFL_SOURCE_GIVEN: return "given";
    case OFL_SOURCE_MEASURED: return "measured";
    }
    return "?";
}

double ofl_source_error_percent(ofl_source source)
{
    switch (source) {
    case OFL_SOURCE_MEASURED: return 2;
    case OFL_SOURCE_GIVEN: return 4;
    default: return 30;
    }
}

ofl_figure_unit ofl_figure_unit_of(ofl_figure figure)
{
    const char *unit = figure_units[figure];
    if (strcmp(unit, "bytes") == 0) return OFL_UNIT_BYTES;
    if (strcmp(unit, "bytes/s") == 0) return OFL_UNIT_BYTES_PER_SECOND;
    if (strcmp(unit, "s") == 0) return OFL_UNIT_SECONDS;
    return OFL_UNIT_OPERATIONS_PER_SECOND;
}

/* Name, kind, and each figure with its source: all that a plan can depend on. */
void ofl_machine_identify(ofl_machine *machine)
{
    char text[96];
    ofl_sha256 hash;
    ofl_sha256_init(&hash);
    ofl_sha256_add_text(&hash, machine->device);
    ofl_sha256_add_text(&hash, machine->simulated ? "simulated" : "real");
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        (void)snprintf(text, sizeof text, "%s %.17g %s", figure_keys[i], machine->values[i], ofl_source_name(machine->sources[i]));
        ofl_sha256_add_text(&hash, text);
    }
    ofl_sha256_finish_hex(&hash, machine->identity);
}

ofl_status ofl_machine_create(const char *device_name, ofl_machine **out)
{
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no place for the result");
    *out = NULL;
    if (device_name == NULL) device_name = "unknown device";
    ofl_machine *machine = ofl_alloc(1, sizeof *machine);
    if (machine == NULL) goto no_memory;
    machine->device = ofl_copy_string(device_name, strlen(device_name));
    if (machine->device == NULL) goto free_machine;
    ofl_make_printable(machine->device);
    machine->link.device_node = machine->link.pinned_node = -1;
    ofl_machine_identify(machine);
    *out = machine;
    return OFL_OK;

free_machine:
    ofl_free(machine);
no_memory:
    return ofl_fail(OFL_ERROR_HOST_MEMORY, "machine: out of host memory");
}

void ofl_machine_destroy(ofl_machine *machine)
{
    if (machine == NULL) return;
    ofl_free(machine->device);
    ofl_free(machine);
}

static ofl_status check_value(ofl_figure figure, double value)
{
    const char *key = figure_keys[figure];
    ofl_figure_unit unit = ofl_figure_unit_of(figure);
    bool zero_allowed = figure == OFL_FIGURE_COPY_START || figure == OFL_FIGURE_RUNTIME;
    if (value == 0 && figure == OFL_FIGURE_PINNABLE)
        return ofl_fail(OFL_ERROR_ARGUMENT,
                        "machine: %s is 0; where nothing can be page-locked say 1, where it is not known leave it out", key);
    if (!isfinite(value) || value < 0 || (value == 0 && !zero_allowed))
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: %s is %g; a number %s 0 is needed", key, value,
                        zero_allowed ? "of at least" : "above");
    if (unit == OFL_UNIT_BYTES && (value >= LARGEST_WHOLE || floor(value) != value))
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: %s is %g; a whole number of bytes below 2^53 is needed", key, value);
    if (unit == OFL_UNIT_SECONDS && value > OFL_SECONDS_MOST)
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: %s is %g; it is at most %g", key, value, OFL_SECONDS_MOST);
    if (unit > OFL_UNIT_BYTES && unit != OFL_UNIT_SECONDS && (value < OFL_RATE_LEAST || value > OFL_RATE_MOST))
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: %s is %g; a rate from %g to %g is needed", key, value, OFL_RATE_LEAST, OFL_RATE_MOST);
    return OFL_OK;
}

ofl_status ofl_machine_set(ofl_machine *machine, ofl_figure figure, double value, ofl_source source)
{
    if (machine == NULL || !is_figure(figure))
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no machine or no such figure (%d)", (int)figure);
    if (source != OFL_SOURCE_ASSUMED && source != OFL_SOURCE_GIVEN && source != OFL_SOURCE_MEASURED)
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: %s needs a source: assumed, given or measured", figure_keys[figure]);
    ofl_status status = check_value(figure, value);
    if (status != OFL_OK) return status;
    machine->values[figure] = value;
    machine->sources[figure] = source;
    ofl_machine_identify(machine);
    return OFL_OK;
}

double ofl_machine_get(const ofl_machine *machine, ofl_figure figure, ofl_source *source_out)
{
    bool known = machine != NULL && is_figure(figure);
    if (source_out != NULL) *source_out = known ? machine->sources[figure] : OFL_SOURCE_NONE;
    return known ? machine->values[figure] : 0;
}

const char *ofl_machine_device(const ofl_machine *machine) { return machine != NULL ? machine->device : ""; }
int ofl_machine_simulated(const ofl_machine *machine) { return machine != NULL && machine->simulated; }
const char *ofl_machine_identity(const ofl_machine *machine) { return machine != NULL ? machine->identity : ""; }

static bool is_path(ofl_path path) { return (int)path >= 0 && path < OFL_PATH_COUNT; }

const char *ofl_path_label(ofl_path path) { return is_path(path) ? path_labels[path] : "?"; }

ofl_status ofl_machine_line(const ofl_machine *machine, ofl_path path, ofl_link_line *out)
{
    if (machine == NULL || !is_path(path)) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no machine or no such path (%d)", (int)path);
    ofl_link_line line = machine->lines[path];
    line.struct_size = sizeof line;
    return ofl_struct_out(out, &line, sizeof line, "ofl_link_line");
}

ofl_status ofl_machine_link_state(const ofl_machine *machine, ofl_link_state *out)
{
    if (machine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no machine given");
    ofl_link_state state = machine->link;
    state.struct_size = sizeof state;
    return ofl_struct_out(out, &state, sizeof state, "ofl_link_state");
}

const char *ofl_machine_probed(const ofl_machine *machine) { return machine != NULL ? machine->probed : ""; }
uint32_t ofl_machine_note_count(const ofl_machine *machine) { return machine != NULL ? machine->note_count : 0; }

const char *ofl_machine_note(const ofl_machine *machine, uint32_t index)
{
    return index < ofl_machine_note_count(machine) ? machine->notes[index] : "";
}

void ofl_machine_add_note(ofl_machine *machine, const char *format, ...)
{
    va_list arguments;
    if (machine->note_count == OFL_MACHINE_NOTES_MAX) return;
    va_start(arguments, format);
    (void)vsnprintf(machine->notes[machine->note_count], OFL_MACHINE_NOTE_BYTES, format, arguments);
    va_end(arguments);
    ofl_make_printable(machine->notes[machine->note_count++]);
}

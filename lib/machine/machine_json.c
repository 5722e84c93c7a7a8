/* Schema ofload.machine/1: {"schema", "device", "simulated", "identity", FIGURE: number…, "sources": {FIGURE:
 * "measured"|"given"|"assumed"}, and of a probe what machine_probed.c lists}. A figure without a source counts as given, so a file written
 * by hand needs the figures alone. */
#include "machine/machine_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA "ofload.machine/1"
#define LARGEST_FILE_BYTES (1u << 20)

static bool add_figure(cJSON *tree, cJSON *sources, const ofl_machine *machine, ofl_figure figure)
{
    const char *key = ofl_figure_key(figure);
    double value = machine->values[figure];
    if (machine->sources[figure] == OFL_SOURCE_NONE) return true;
    bool added =
        ofl_figure_unit_of(figure) == OFL_UNIT_BYTES ? ofl_json_add_u64(tree, key, (uint64_t)value) : ofl_json_add_double(tree, key, value);
    return added && ofl_json_add_string(sources, key, ofl_source_name(machine->sources[figure]));
}

static bool fill(cJSON *tree, const ofl_machine *machine)
{
    cJSON *sources = cJSON_CreateObject();
    bool ok = sources != NULL && ofl_json_add_string(tree, "schema", SCHEMA) && ofl_json_add_string(tree, "device", machine->device) &&
              cJSON_AddBoolToObject(tree, "simulated", machine->simulated) != NULL &&
              ofl_json_add_string(tree, "identity", machine->identity);
    for (int i = 0; ok && i < OFL_FIGURE_COUNT; i++) ok = add_figure(tree, sources, machine, (ofl_figure)i);
    if (ok && cJSON_AddItemToObject(tree, "sources", sources)) return ofl_machine_add_probed(tree, machine);
    cJSON_Delete(sources);
    return false;
}

ofl_status ofl_machine_to_json(const ofl_machine *machine, char **json_out)
{
    if (machine == NULL || json_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no machine, or no place for its JSON");
    cJSON *tree = cJSON_CreateObject();
    char *text = NULL;
    if (tree != NULL && fill(tree, machine)) text = ofl_json_finish(tree);
    else cJSON_Delete(tree);
    if (text == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "machine: out of host memory while writing JSON");
    *json_out = text;
    return OFL_OK;
}

static bool find_figure(const char *key, ofl_figure *out)
{
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        if (strcmp(ofl_figure_key((ofl_figure)i), key) != 0) continue;
        *out = (ofl_figure)i;
        return true;
    }
    return false;
}

static ofl_status read_source(const cJSON *sources, const char *key, ofl_source *out)
{
    *out = OFL_SOURCE_GIVEN;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(sources, key);
    if (item == NULL) return OFL_OK;
    for (int source = OFL_SOURCE_ASSUMED; cJSON_IsString(item) && source <= OFL_SOURCE_MEASURED; source++) {
        if (strcmp(ofl_source_name((ofl_source)source), item->valuestring) != 0) continue;
        *out = (ofl_source)source;
        return OFL_OK;
    }
    return ofl_fail(OFL_ERROR_FORMAT, "machine: the source of \"%s\" is none of measured, given, assumed", key);
}

static ofl_status read_figure(ofl_machine *machine, ofl_figure figure, const cJSON *tree, const cJSON *sources)
{
    const char *key = ofl_figure_key(figure);
    double value = 0;
    ofl_source source = OFL_SOURCE_NONE;
    if (machine->sources[figure] != OFL_SOURCE_NONE) return ofl_fail(OFL_ERROR_FORMAT, "machine: \"%s\" is there twice", key);
    ofl_status status = ofl_json_get_double(tree, "machine", key, &value);
    if (status == OFL_OK) status = read_source(sources, key, &source);
    if (status == OFL_OK && ofl_machine_set(machine, figure, value, source) != OFL_OK)
        status = ofl_fail(OFL_ERROR_FORMAT, "%s", ofl_error_message());
    return status;
}

/* A misspelt figure must not fall back to a default in silence. */
static ofl_status refuse_unknown(const char *key)
{
    static const char *const others[] = {"schema", "device", "simulated", "identity", "sources", "probed", "link", "paths", "notes"};
    for (size_t i = 0; i < OFL_COUNT_OF(others); i++) {
        if (strcmp(others[i], key) == 0) return OFL_OK;
    }
    return ofl_fail(OFL_ERROR_FORMAT, "machine: \"%.64s\" is no figure of a machine; leave it out or correct its name", key);
}

static ofl_status read_tree(ofl_machine *machine, const cJSON *tree)
{
    const cJSON *sources = cJSON_GetObjectItemCaseSensitive(tree, "sources"),
                *simulated = cJSON_GetObjectItemCaseSensitive(tree, "simulated");
    if (sources != NULL && !cJSON_IsObject(sources)) return ofl_fail(OFL_ERROR_FORMAT, "machine: \"sources\" is no object");
    if (simulated != NULL && !cJSON_IsBool(simulated))
        return ofl_fail(OFL_ERROR_FORMAT, "machine: \"simulated\" is neither true nor false");
    machine->simulated = cJSON_IsTrue(simulated);
    ofl_machine_identify(machine);
    for (const cJSON *item = tree->child; item != NULL; item = item->next) {
        ofl_figure figure = OFL_FIGURE_COUNT;
        ofl_status status = find_figure(item->string, &figure) ? read_figure(machine, figure, tree, sources) : refuse_unknown(item->string);
        if (status != OFL_OK) return status;
    }
    return ofl_machine_read_probed(machine, tree);
}

static ofl_status read_header(const cJSON *tree, const char **device_out)
{
    const char *schema = NULL;
    if (!cJSON_IsObject(tree)) return ofl_fail(OFL_ERROR_FORMAT, "machine: no JSON object");
    ofl_status status = ofl_json_get_string(tree, "machine", "schema", &schema);
    if (status != OFL_OK) return status;
    if (strcmp(schema, SCHEMA) != 0)
        return ofl_fail(OFL_ERROR_FORMAT, "machine: the schema is \"%.64s\"; this version reads \"" SCHEMA "\"", schema);
    *device_out = "unknown device";
    if (cJSON_GetObjectItemCaseSensitive(tree, "device") == NULL) return OFL_OK;
    status = ofl_json_get_string(tree, "machine", "device", device_out);
    if (status != OFL_OK || ofl_is_printable(*device_out)) return status;
    return ofl_fail(OFL_ERROR_FORMAT, "machine: the name of the device is no text of one line");
}

static bool only_space(const char *from, const char *end)
{
    while (from < end && memchr(" \t\r\n", *from, 5) != NULL)
        from++; /* the literal's own NUL is a fifth: a file that ends in one is fine */
    return from == end;
}

ofl_status ofl_machine_from_json(const char *json, size_t bytes, ofl_machine **out)
{
    ofl_machine *machine = NULL;
    const char *device = NULL, *end = NULL;
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no place for the machine");
    *out = NULL;
    if (json == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no JSON given");
    cJSON *tree = cJSON_ParseWithLengthOpts(json, bytes, &end, 0);
    if (tree == NULL || !only_space(end, json + bytes)) {
        cJSON_Delete(tree);
        return ofl_fail(OFL_ERROR_FORMAT, "machine: no valid JSON near byte %zu", end != NULL ? (size_t)(end - json) : 0);
    }
    ofl_status status = read_header(tree, &device);
    if (status == OFL_OK) status = ofl_machine_create(device, &machine);
    if (status == OFL_OK) status = read_tree(machine, tree);
    cJSON_Delete(tree);
    if (status == OFL_OK) *out = machine;
    else ofl_machine_destroy(machine);
    return status;
}

static ofl_status write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) return ofl_fail_code(OFL_ERROR_IO, errno, "%s cannot be written: %s", path, strerror(errno));
    bool ok = fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    if (fclose(file) == 0 && ok) return OFL_OK;
    ofl_status status = ofl_fail_code(OFL_ERROR_IO, errno, "%s cannot be written: %s", path, strerror(errno));
    (void)remove(path);
    return status;
}

/* Written beside it and moved there, so that a reader never sees half a file. */
ofl_status ofl_machine_save(const ofl_machine *machine, const char *path)
{
    char *text = NULL;
    if (path == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no path to save to");
    ofl_status status = ofl_machine_to_json(machine, &text);
    if (status != OFL_OK) return status;
    char *beside = ofl_format("%s.new", path);
    status = beside != NULL ? write_text(beside, text) : ofl_fail(OFL_ERROR_HOST_MEMORY, "machine: out of host memory");
    if (status == OFL_OK && rename(beside, path) != 0) {
        status = ofl_fail_code(OFL_ERROR_IO, errno, "%s cannot be written: %s", path, strerror(errno));
        (void)remove(beside);
    }
    ofl_free(beside);
    ofl_free(text);
    return status;
}

static ofl_status read_text(FILE *file, const char *path, char *text, size_t *bytes_out)
{
    size_t bytes = fread(text, 1, LARGEST_FILE_BYTES + 1, file);
    if (ferror(file)) return ofl_fail_code(OFL_ERROR_IO, errno, "%s cannot be read: %s", path, strerror(errno));
    if (bytes > LARGEST_FILE_BYTES) return ofl_fail(OFL_ERROR_FORMAT, "%s is no machine file: it is larger than 1 MiB", path);
    *bytes_out = bytes;
    return OFL_OK;
}

ofl_status ofl_machine_load(const char *path, ofl_machine **out)
{
    size_t bytes = 0;
    ofl_status status;
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no place for the machine");
    *out = NULL;
    if (path == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no path to read from");
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return ofl_fail_code(errno == ENOENT ? OFL_ERROR_NOT_FOUND : OFL_ERROR_IO, errno, "%s cannot be opened: %s", path, strerror(errno));
    char *text = ofl_alloc(LARGEST_FILE_BYTES + 1, 1);
    status = text != NULL ? read_text(file, path, text, &bytes) : ofl_fail(OFL_ERROR_HOST_MEMORY, "machine: out of host memory");
    if (status == OFL_OK) status = ofl_machine_from_json(text, bytes, out);
    if (status == OFL_ERROR_FORMAT) status = ofl_fail(status, "%s: %s", path, ofl_error_message());
    ofl_free(text);
    (void)fclose(file);
    return status;
}

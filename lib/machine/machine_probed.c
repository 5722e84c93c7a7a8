/* What a probe saw beside the figures, in JSON:
 * "probed": "2026-09-30T12:00:00Z", "link": {KEY: number…}, "paths": {LABEL: {"start_seconds", "bytes_per_second",
 * "points": [{"bytes", "seconds"}…]}…}, "notes": ["…"]. All but the time may be missing. */
#include "machine/machine_state.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 4096 /* generations, widths and nodes are far below */

/* Of ofl_link_state. */
typedef struct link_field { const char *key; size_t offset; } link_field;
static const link_field unsigned_fields[] = {
    {"generation", offsetof(ofl_link_state, generation)},
    {"width", offsetof(ofl_link_state, width)},
    {"most_generation", offsetof(ofl_link_state, most_generation)},
    {"most_width", offsetof(ofl_link_state, most_width)},
    {"peer_direct", offsetof(ofl_link_state, peer_direct)},
};
static const link_field node_fields[] = {
    {"device_node", offsetof(ofl_link_state, device_node)},
    {"pinned_node", offsetof(ofl_link_state, pinned_node)},
};

static bool add_link(cJSON *tree, const ofl_link_state *link)
{
    cJSON *object = cJSON_AddObjectToObject(tree, "link");
    bool ok = object != NULL;
    for (size_t i = 0; ok && i < OFL_COUNT_OF(unsigned_fields); i++) {
        uint32_t value;
        memcpy(&value, (const char *)link + unsigned_fields[i].offset, sizeof value);
        ok = ofl_json_add_u64(object, unsigned_fields[i].key, value);
    }
    for (size_t i = 0; ok && i < OFL_COUNT_OF(node_fields); i++) {
        int32_t value;
        memcpy(&value, (const char *)link + node_fields[i].offset, sizeof value);
        ok = ofl_json_add_i64(object, node_fields[i].key, value);
    }
    return ok && ofl_json_add_u64(object, "pinned_bytes", link->pinned_bytes);
}

static bool add_line(cJSON *paths, const char *label, const ofl_link_line *line)
{
    cJSON *object = cJSON_AddObjectToObject(paths, label), *points = NULL;
    bool ok = object != NULL && ofl_json_add_double(object, "start_seconds", line->start_seconds) &&
              ofl_json_add_double(object, "bytes_per_second", line->bytes_per_second) &&
              (points = cJSON_AddArrayToObject(object, "points")) != NULL;
    for (uint32_t i = 0; ok && i < line->point_count; i++) {
        cJSON *point = cJSON_CreateObject();
        ok = point != NULL && cJSON_AddItemToArray(points, point) && ofl_json_add_u64(point, "bytes", line->points[i].bytes) &&
             ofl_json_add_double(point, "seconds", line->points[i].seconds);
    }
    return ok;
}

static bool add_paths(cJSON *tree, const ofl_machine *machine)
{
    cJSON *paths = cJSON_AddObjectToObject(tree, "paths");
    bool ok = paths != NULL;
    for (int i = 0; ok && i < OFL_PATH_COUNT; i++) {
        if (machine->lines[i].point_count != 0) ok = add_line(paths, ofl_path_label((ofl_path)i), &machine->lines[i]);
    }
    return ok;
}

static bool add_notes(cJSON *tree, const ofl_machine *machine)
{
    cJSON *notes = cJSON_AddArrayToObject(tree, "notes");
    bool ok = notes != NULL;
    for (uint32_t i = 0; ok && i < machine->note_count; i++) ok = cJSON_AddItemToArray(notes, cJSON_CreateString(machine->notes[i]));
    return ok;
}

/* A machine that was never probed has none of it. */
bool ofl_machine_add_probed(cJSON *tree, const ofl_machine *machine)
{
    if (machine->probed[0] == '\0') return true;
    return ofl_json_add_string(tree, "probed", machine->probed) && add_link(tree, &machine->link) && add_paths(tree, machine) &&
           add_notes(tree, machine);
}

static ofl_status malformed(const char *what) { return ofl_fail(OFL_ERROR_FORMAT, "machine: %s; leave it out or correct it", what); }

static ofl_status read_time(ofl_machine *machine, const cJSON *tree)
{
    static const char pattern[] = "0000-00-00T00:00:00Z";
    const char *text = NULL;
    ofl_status status = ofl_json_get_string(tree, "machine", "probed", &text);
    if (status != OFL_OK) return status;
    bool good = strlen(text) == sizeof pattern - 1;
    for (size_t i = 0; good && i < sizeof pattern - 1; i++)
        good = pattern[i] == '0' ? isdigit((unsigned char)text[i]) != 0 : text[i] == pattern[i];
    if (!good) return malformed("\"probed\" is no time such as 2026-09-30T12:00:00Z");
    (void)snprintf(machine->probed, sizeof machine->probed, "%s", text);
    return OFL_OK;
}

/* A whole number from `least` to MOST. */
static ofl_status read_small(const cJSON *object, const char *key, int least, int32_t *out)
{
    double value = 0;
    if (cJSON_GetObjectItemCaseSensitive(object, key) == NULL) return OFL_OK;
    ofl_status status = ofl_json_get_double(object, "machine: link", key, &value);
    if (status != OFL_OK) return status;
    if (!(value >= least && value <= MOST) || floor(value) != value)
        return ofl_fail(OFL_ERROR_FORMAT, "machine: link: \"%s\" is %g; a whole number from %d to %d is needed", key, value, least, MOST);
    *out = (int32_t)value;
    return OFL_OK;
}

static ofl_status read_link(ofl_link_state *link, const cJSON *object)
{
    ofl_status status = OFL_OK;
    if (!cJSON_IsObject(object)) return malformed("\"link\" is no object");
    for (size_t i = 0; status == OFL_OK && i < OFL_COUNT_OF(unsigned_fields); i++) {
        int32_t value = 0;
        status = read_small(object, unsigned_fields[i].key, 0, &value);
        memcpy((char *)link + unsigned_fields[i].offset, &value, sizeof value);
    }
    for (size_t i = 0; status == OFL_OK && i < OFL_COUNT_OF(node_fields); i++) {
        int32_t value = -1;
        status = read_small(object, node_fields[i].key, -1, &value);
        memcpy((char *)link + node_fields[i].offset, &value, sizeof value);
    }
    bool there = cJSON_GetObjectItemCaseSensitive(object, "pinned_bytes") != NULL;
    return status == OFL_OK && there ? ofl_json_get_u64(object, "machine: link", "pinned_bytes", &link->pinned_bytes) : status;
}

static ofl_status read_points(ofl_link_line *line, const cJSON *points)
{
    if (!cJSON_IsArray(points) || cJSON_GetArraySize(points) < 1 || cJSON_GetArraySize(points) > (int)OFL_LINE_POINTS_MAX)
        return malformed("the \"points\" of a path are no list of 1 to 8");
    for (const cJSON *point = points->child; point != NULL; point = point->next) {
        ofl_copy_time *to = &line->points[line->point_count++];
        ofl_status status = ofl_json_get_u64(point, "machine: points", "bytes", &to->bytes);
        if (status == OFL_OK) status = ofl_json_get_double(point, "machine: points", "seconds", &to->seconds);
        if (status != OFL_OK) return status;
        if (to->bytes == 0 || !(to->seconds > 0)) return malformed("a point of a path has no bytes or took no time");
    }
    return OFL_OK;
}

static ofl_status read_line(ofl_link_line *line, const cJSON *object)
{
    if (line->point_count != 0) return malformed("a path is there twice");
    ofl_status status = ofl_json_get_double(object, "machine: paths", "start_seconds", &line->start_seconds);
    if (status == OFL_OK) status = ofl_json_get_double(object, "machine: paths", "bytes_per_second", &line->bytes_per_second);
    if (status != OFL_OK) return status;
    if (line->start_seconds < 0 || !(line->bytes_per_second > 0)) return malformed("the fit of a path has no rate, or a start below 0");
    return read_points(line, cJSON_GetObjectItemCaseSensitive(object, "points"));
}

static ofl_status read_paths(ofl_machine *machine, const cJSON *paths)
{
    ofl_status status = OFL_OK;
    if (!cJSON_IsObject(paths)) return malformed("\"paths\" is no object");
    for (const cJSON *path = paths->child; status == OFL_OK && path != NULL; path = path->next) {
        int i = 0;
        while (i < OFL_PATH_COUNT && strcmp(ofl_path_label((ofl_path)i), path->string) != 0) i++;
        if (i == OFL_PATH_COUNT) return ofl_fail(OFL_ERROR_FORMAT, "machine: \"%.64s\" is no path of a copy", path->string);
        status = read_line(&machine->lines[i], path);
    }
    return status;
}

/* It will be printed: no control characters. */
static bool is_note(const cJSON *note)
{
    return cJSON_IsString(note) && strlen(note->valuestring) < OFL_MACHINE_NOTE_BYTES && ofl_is_printable(note->valuestring);
}

static ofl_status read_notes(ofl_machine *machine, const cJSON *notes)
{
    bool good = cJSON_IsArray(notes) && cJSON_GetArraySize(notes) <= (int)OFL_MACHINE_NOTES_MAX;
    if (!good) return malformed("\"notes\" is no list of up to 8");
    for (const cJSON *note = notes->child; note != NULL; note = note->next) {
        if (!is_note(note)) return malformed("a note is no short text of one line");
        ofl_machine_add_note(machine, "%s", note->valuestring);
    }
    return OFL_OK;
}

ofl_status ofl_machine_read_probed(ofl_machine *machine, const cJSON *tree)
{
    const cJSON *link = cJSON_GetObjectItemCaseSensitive(tree, "link"), *paths = cJSON_GetObjectItemCaseSensitive(tree, "paths"),
                *notes = cJSON_GetObjectItemCaseSensitive(tree, "notes");
    if (cJSON_GetObjectItemCaseSensitive(tree, "probed") == NULL)
        return link != NULL || paths != NULL || notes != NULL ? malformed("there is no time \"probed\" to what a probe saw") : OFL_OK;
    ofl_status status = read_time(machine, tree);
    if (status == OFL_OK && link != NULL) status = read_link(&machine->link, link);
    if (status == OFL_OK && paths != NULL) status = read_paths(machine, paths);
    return status == OFL_OK && notes != NULL ? read_notes(machine, notes) : status;
}

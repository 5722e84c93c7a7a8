/* A machine's figures, for the files of this folder. */
#ifndef OFLOAD_LIB_MACHINE_STATE_H
#define OFLOAD_LIB_MACHINE_STATE_H

#include <ofload/machine.h>

#include "base/base.h"
#include "base/json.h"
#include "base/sha256.h"

#define OFL_MACHINE_NOTES_MAX 8u
#define OFL_MACHINE_NOTE_BYTES 320u

struct ofl_machine {
    char *device; /* owned */
    bool simulated;
    double values[OFL_FIGURE_COUNT];
    ofl_source sources[OFL_FIGURE_COUNT];
    char identity[OFL_SHA256_HEX];
    /* Of the probe; outside the identity. */
    char probed[24];
    ofl_link_line lines[OFL_PATH_COUNT];
    ofl_link_state link;
    uint32_t note_count;
    char notes[OFL_MACHINE_NOTES_MAX][OFL_MACHINE_NOTE_BYTES];
};

/* What a figure is counted in. */
typedef enum ofl_figure_unit {
    OFL_UNIT_BYTES,
    OFL_UNIT_BYTES_PER_SECOND,
    OFL_UNIT_SECONDS,
    OFL_UNIT_OPERATIONS_PER_SECOND
} ofl_figure_unit;
ofl_figure_unit ofl_figure_unit_of(ofl_figure figure);

/* One more than there is room for is left out, a longer one is cut. */
void ofl_machine_add_note(ofl_machine *machine, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lines, link state, time and notes of a probe in JSON (machine_probed.c): "probed", "link", "paths", "notes". */
bool ofl_machine_add_probed(cJSON *tree, const ofl_machine *machine);
ofl_status ofl_machine_read_probed(ofl_machine *machine, const cJSON *tree);

/* Computes the identity anew; after every change of name, kind or figures. */
void ofl_machine_identify(ofl_machine *machine);

#endif

/* A machine's figures, for the files of this folder. */
#ifndef OFLOAD_LIB_MACHINE_STATE_H
#define OFLOAD_LIB_MACHINE_STATE_H

#include <ofload/machine.h>

#include "base/base.h"
#include "base/sha256.h"

struct ofl_machine {
    char *device; /* owned */
    bool simulated;
    double values[OFL_FIGURE_COUNT];
    ofl_source sources[OFL_FIGURE_COUNT];
    char identity[OFL_SHA256_HEX];
};

/* What a figure is counted in. */
typedef enum ofl_figure_unit { OFL_UNIT_BYTES, OFL_UNIT_BYTES_PER_SECOND, OFL_UNIT_SECONDS, OFL_UNIT_OPERATIONS_PER_SECOND } ofl_figure_unit;
ofl_figure_unit ofl_figure_unit_of(ofl_figure figure);

/* Computes the identity anew; after every change of name, kind or figures. */
void ofl_machine_identify(ofl_machine *machine);

#endif

/* How much host memory can be page-locked, by trying. */
#ifndef OFLOAD_LIB_MACHINE_PINNING_H
#define OFLOAD_LIB_MACHINE_PINNING_H

#include "machine/machine_state.h"

/* Page-locks up to `most` bytes in growing steps, on top of `held` that are page-locked already, and gives them back. A refusal sets PINNABLE as measured; without
 * one it stays as it was. Notes and link.pinned_bytes say what was tried. A refusal is no failure. */
ofl_status ofl_probe_pinning(ofl_device *device, uint64_t held, uint64_t most, ofl_machine *machine);

/* Windows' driver charges page-locked memory to the card and spills to host memory without an error. `root` as in hostmem.h: a kernel release that contains "microsoft". */
bool ofl_is_wsl(const char *root);
/* PINNABLE at most what the card has, with a note. */
ofl_status ofl_limit_pinning_on_wsl(ofl_machine *machine);

#endif

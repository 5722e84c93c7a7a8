/* How much host memory can be page-locked, by trying. */
#ifndef OFLOAD_LIB_MACHINE_PINNING_H
#define OFLOAD_LIB_MACHINE_PINNING_H

#include "machine/machine_state.h"

/* Page-locks up to `most` bytes in all, in growing steps, on top of `held` that are page-locked already, and gives them back. No step is
 * begun that would end later than `seconds` from now on the device's clock, at the pace so far. A refusal sets PINNABLE as measured and is
 * no failure; without one it stays as it was. What it took is PINNING. A note, or link.pinned_bytes, says what was tried. */
ofl_status ofl_probe_pinning(ofl_device *device, uint64_t held, uint64_t most, double seconds, ofl_machine *machine);

/* By the kernel's release. There Windows' driver charges page-locked memory to the card and moves to host memory what does not fit, without
 * an error. `root` as in hostmem.h. */
bool ofl_is_wsl(const char *root);
/* PINNABLE at most what the card has, with a note. */
ofl_status ofl_limit_pinning_on_wsl(ofl_machine *machine);

#endif

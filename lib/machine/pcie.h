/* Generation and width of a PCI Express link, as Linux shows them. */
#ifndef OFLOAD_LIB_MACHINE_PCIE_H
#define OFLOAD_LIB_MACHINE_PCIE_H

#include "machine/machine_state.h"

/* Into out->generation, width, most_generation, most_width; 0 for what the system does not say. `root`: "" for this system, or a folder
 * that holds sys/ (tests). Read it while a copy runs: an idle link saves power. */
void ofl_pcie_read(const char *root, const char *pci_id, ofl_link_state *out);
/* A note where the link is narrower or slower than the device could do; for a state that was read under load. */
void ofl_pcie_judge(ofl_machine *machine);

#endif

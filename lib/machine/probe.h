/* The probe with the system's files under another root (tests). */
#ifndef OFLOAD_LIB_MACHINE_PROBE_H
#define OFLOAD_LIB_MACHINE_PROBE_H

#include <ofload/machine.h>

/* root: "" for this system, or a folder that holds proc/ and sys/. */
ofl_status ofl_machine_probe_under(const char *root, ofl_device *device, const ofl_probe_options *options, ofl_machine **out);

#endif

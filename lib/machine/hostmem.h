/* How much host memory this process may still use: the least of what the host has available and what every control group above the process
 * leaves. */
#ifndef OFLOAD_LIB_MACHINE_HOSTMEM_H
#define OFLOAD_LIB_MACHINE_HOSTMEM_H

#include "base/base.h"

typedef struct ofl_host_room {
    uint64_t total_bytes;  /* of the host, or the smallest limit */
    uint64_t usable_bytes; /* now; page cache that can be dropped counts as free */
} ofl_host_room;

/* root: "" for this system, or a folder that holds proc/ and sys/ (tests). OFL_ERROR_UNSUPPORTED where the host does not say. */
ofl_status ofl_host_room_read(const char *root, ofl_host_room *out);

#endif

/* Where a device is in this machine: its NUMA node, and threads and memory near it. Page-locked memory cannot move afterwards, so it has
 * to be near when it is first touched:
 *
 *     struct hwloc_bitmap_s *before = ofl_locality_enter(locality);   the thread runs on the node's processors; what it
 *                                                                     touches first, or lets cudaHostAlloc take, is there
 *     … ofl_device_host_alloc; or fresh memory: ofl_locality_bind_area, touch it (from any thread), ofl_device_host_register …
 *     ofl_locality_leave(locality, before);                           as it was
 *
 * All of it is a wish. Where the node is unknown, has no processor that this process may use, or the system refuses, everything stays as
 * it is and the calls say so; none of that is a failure. A binding that the user made is only narrowed, never widened.
 *
 * Threads: opening and closing by one; the others from any number at once. */
#ifndef OFLOAD_LIB_LOCALITY_H
#define OFLOAD_LIB_LOCALITY_H

#include "base/base.h"

struct hwloc_bitmap_s;
struct hwloc_topology;

typedef struct ofl_locality ofl_locality;

/* The node of a device as ofl_device_info tells it: numa_node where it is known (>= 0), else the node that the PCI id ("" if none) is
 * attached to. A device that is attached to several nodes, or to none, counts as unknown. OFL_ERROR_HOST_MEMORY; a system that does not
 * tell its topology is opened as one without nodes. */
ofl_status ofl_locality_open(const char *pci_id, int32_t numa_node, ofl_locality **out);
/* The same on a loaded topology, which it takes over, on failure too (tests: synthetic and recorded ones). */
ofl_status ofl_locality_open_on(struct hwloc_topology *topology, const char *pci_id, int32_t numa_node, ofl_locality **out);
void ofl_locality_close(ofl_locality *locality); /* NULL is allowed, here and below: an unknown node */

int32_t ofl_locality_node(const ofl_locality *locality);   /* as the operating system numbers it; -1 unknown */
uint32_t ofl_locality_nodes(const ofl_locality *locality); /* how many nodes with memory there are; 0 unknown */

/* Binds the calling thread to the node's processors. Returns how it was bound before, for ofl_locality_leave on the same thread; NULL:
 * left alone. */
struct hwloc_bitmap_s *ofl_locality_enter(const ofl_locality *locality);
void ofl_locality_leave(const ofl_locality *locality, struct hwloc_bitmap_s *before); /* frees it; NULL is allowed */

/* Pages of the range that are touched from now on come from the node while it has any free. Whole pages around the range. false: left
 * alone. */
bool ofl_locality_bind_area(const ofl_locality *locality, const void *memory, uint64_t bytes);

/* Where memory is, by up to 64 pages spread over the range. */
typedef struct ofl_memory_place {
    int32_t node; /* that holds most of them; -1: unknown, or none is there yet */
    double share; /* of those pages, 0 to 1 */
} ofl_memory_place;
ofl_memory_place ofl_locality_place(const ofl_locality *locality, const void *memory, uint64_t bytes);

#endif

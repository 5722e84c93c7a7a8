#include "base/locality.h"

#include <hwloc.h>

#define SAMPLES 64u

struct ofl_locality {
    hwloc_topology_t topology; /* NULL: the system does not tell */
    hwloc_obj_t node;          /* NULL: unknown */
};

/* The one node that holds the memory of what the device is attached to. */
static hwloc_obj_t node_of_pci(hwloc_topology_t topology, const char *pci_id)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, pci_id);
    hwloc_obj_t parent = device != NULL ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    if (parent == NULL || parent->nodeset == NULL || hwloc_bitmap_weight(parent->nodeset) != 1) return NULL;
    return hwloc_get_numanode_obj_by_os_index(topology, (unsigned)hwloc_bitmap_first(parent->nodeset));
}

ofl_status ofl_locality_open_on(struct hwloc_topology *topology, const char *pci_id, int32_t numa_node, ofl_locality **out)
{
    ofl_locality *locality = ofl_alloc(1, sizeof *locality);
    *out = locality;
    if (locality == NULL) {
        if (topology != NULL) hwloc_topology_destroy(topology);
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "locality: out of host memory");
    }
    locality->topology = topology;
    if (topology == NULL) return OFL_OK;
    if (numa_node >= 0) locality->node = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)numa_node);
    else if (pci_id != NULL && *pci_id != '\0') locality->node = node_of_pci(topology, pci_id);
    return OFL_OK;
}

ofl_status ofl_locality_open(const char *pci_id, int32_t numa_node, ofl_locality **out)
{
    hwloc_topology_t topology = NULL;
    if (hwloc_topology_init(&topology) != 0) return ofl_locality_open_on(NULL, pci_id, numa_node, out);
    bool by_pci = numa_node < 0 && pci_id != NULL && *pci_id != '\0';
    if (by_pci) (void)hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) == 0) return ofl_locality_open_on(topology, pci_id, numa_node, out);
    hwloc_topology_destroy(topology);
    return ofl_locality_open_on(NULL, pci_id, numa_node, out);
}

void ofl_locality_close(ofl_locality *locality)
{
    if (locality == NULL) return;
    if (locality->topology != NULL) hwloc_topology_destroy(locality->topology);
    ofl_free(locality);
}

int32_t ofl_locality_node(const ofl_locality *locality)
{
    return locality != NULL && locality->node != NULL ? (int32_t)locality->node->os_index : -1;
}

uint32_t ofl_locality_nodes(const ofl_locality *locality)
{
    if (locality == NULL || locality->topology == NULL) return 0;
    int count = hwloc_get_nbobjs_by_type(locality->topology, HWLOC_OBJ_NUMANODE);
    return count > 0 ? (uint32_t)count : 0;
}

/* Only the topology of the machine that this runs on says anything about its threads and memory. */
static bool is_here(const ofl_locality *locality)
{
    return locality != NULL && locality->topology != NULL && hwloc_topology_is_thissystem(locality->topology);
}

/* The node's processors among those the thread runs on now; false: none. Control groups may leave a node without any. */
static bool narrow(const ofl_locality *locality, hwloc_const_bitmap_t before, hwloc_bitmap_t near)
{
    if (locality->node->cpuset == NULL || hwloc_bitmap_and(near, locality->node->cpuset, before) != 0) return false;
    return !hwloc_bitmap_iszero(near);
}

struct hwloc_bitmap_s *ofl_locality_enter(const ofl_locality *locality)
{
    if (!is_here(locality) || locality->node == NULL) return NULL;
    hwloc_bitmap_t before = hwloc_bitmap_alloc(), near = hwloc_bitmap_alloc();
    bool bound = before != NULL && near != NULL && hwloc_get_cpubind(locality->topology, before, HWLOC_CPUBIND_THREAD) == 0 &&
                 narrow(locality, before, near) && hwloc_set_cpubind(locality->topology, near, HWLOC_CPUBIND_THREAD) == 0;
    hwloc_bitmap_free(near);
    if (bound) return before;
    hwloc_bitmap_free(before);
    return NULL;
}

void ofl_locality_leave(const ofl_locality *locality, struct hwloc_bitmap_s *before)
{
    if (before == NULL) return;
    if (is_here(locality)) (void)hwloc_set_cpubind(locality->topology, before, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(before);
}

bool ofl_locality_bind_area(const ofl_locality *locality, const void *memory, uint64_t bytes)
{
    if (!is_here(locality) || locality->node == NULL || memory == NULL || bytes == 0) return false;
    /* Not strict: the node first, others when it is full. */
    return hwloc_set_area_membind(locality->topology, memory, (size_t)bytes, locality->node->nodeset, HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET) == 0;
}

/* Node of the page that holds `at`; -1: unknown. */
static int32_t node_of_page(hwloc_topology_t topology, const char *at, hwloc_bitmap_t nodes)
{
    hwloc_bitmap_zero(nodes);
    if (hwloc_get_area_memlocation(topology, at, 1, nodes, HWLOC_MEMBIND_BYNODESET) != 0) return -1;
    return hwloc_bitmap_weight(nodes) == 1 ? (int32_t)hwloc_bitmap_first(nodes) : -1;
}

ofl_memory_place ofl_locality_place(const ofl_locality *locality, const void *memory, uint64_t bytes)
{
    ofl_memory_place place = {.node = -1};
    int32_t nodes[SAMPLES];
    uint32_t known = 0, most = 0;
    if (!is_here(locality) || memory == NULL || bytes == 0) return place;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) return place;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        int32_t node = node_of_page(locality->topology, (const char *)memory + (bytes - 1) / (SAMPLES - 1) * i, set);
        if (node >= 0) nodes[known++] = node;
    }
    hwloc_bitmap_free(set);
    for (uint32_t i = 0; i < known; i++) {
        uint32_t same = 0;
        for (uint32_t j = 0; j < known; j++) same += nodes[j] == nodes[i];
        if (same > most) place.node = nodes[i];
        most = same > most ? same : most;
    }
    if (known > 0) place.share = (double)most / known;
    return place;
}

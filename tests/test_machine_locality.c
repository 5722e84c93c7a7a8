/* Which node a device is on, on recorded and made-up topologies; binding, on the machine that runs the test. */
#include "support/support.h"

#include <hwloc.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/locality.h"

#define TOPOLOGIES OFLOAD_SOURCE_DIR "/tests/golden/topology/"

static ofl_locality *open_xml(const char *path, const char *pci_id, int32_t node, unsigned long flags)
{
    hwloc_topology_t topology;
    ofl_locality *locality = NULL;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_xml(topology, path), 0);
    assert_int_equal(hwloc_topology_set_flags(topology, flags), 0);
    assert_int_equal(hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_ok(ofl_locality_open_on(topology, pci_id, node, &locality));
    return locality;
}

static ofl_locality *open_synthetic(const char *text, int32_t node, unsigned long flags)
{
    hwloc_topology_t topology;
    ofl_locality *locality = NULL;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, text), 0);
    assert_int_equal(hwloc_topology_set_flags(topology, flags), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_ok(ofl_locality_open_on(topology, "", node, &locality));
    return locality;
}

static void the_device_tells_its_node_or_its_slot_does(void **state)
{
    (void)state;
    static const struct { const char *file, *pci_id; int32_t given, node; } cases[] = {
        {"recorded_one_node.xml", "0000:00:02.0", -1, 0},
        {"recorded_one_node.xml", "0000:00:1f.0", -1, -1},
        {"recorded_one_node.xml", "", -1, -1},
        {"recorded_one_node.xml", NULL, 0, 0},
        {"recorded_one_node.xml", "", 1, -1},
        {"two_nodes.xml", "0000:17:00.0", -1, 0},
        {"two_nodes.xml", "0000:CA:00.0", -1, 1},
        {"two_nodes.xml", "0000:E0:00.0", -1, -1}, /* attached to the whole machine */
        {"two_nodes.xml", "0000:17:00.0", 1, 1},   /* the device knows best */
        {"two_nodes.xml", "nonsense", -1, -1},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, TOPOLOGIES "%s", cases[i].file);
        ofl_locality *locality = open_xml(path, cases[i].pci_id, cases[i].given, 0);
        if (ofl_locality_node(locality) != cases[i].node)
            fail_msg("%s %s: node %d instead of %d", cases[i].file, cases[i].pci_id, (int)ofl_locality_node(locality), (int)cases[i].node);
        assert_int_equal(ofl_locality_nodes(locality), cases[i].file[0] == 't' ? 2 : 1);
        ofl_locality_close(locality);
    }
}

/* What is said of another machine binds nothing on this one. */
static void other_machines_bind_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"pack:2 [numa] core:2 pu:1", "numa:4 core:8 pu:2", "pu:1"};
    for (size_t i = 0; i < OFL_COUNT_OF(texts); i++) {
        ofl_locality *locality = open_synthetic(texts[i], 0, 0);
        assert_int_equal(ofl_locality_node(locality), 0);
        assert_null(ofl_locality_enter(locality));
        assert_false(ofl_locality_bind_area(locality, state, 1));
        assert_int_equal(ofl_locality_place(locality, locality, 1).node, -1);
        ofl_locality_close(locality);
    }
    ofl_locality *far = open_synthetic(texts[1], 7, 0);
    assert_int_equal(ofl_locality_node(far), -1);
    ofl_locality_close(far);
}

static void read_binding(hwloc_topology_t topology, char *out, size_t bytes)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_THREAD), 0);
    (void)hwloc_bitmap_snprintf(out, bytes, set);
    hwloc_bitmap_free(set);
}

/* The thread may run on one processor alone, and the device's node in the file has only others. */
static void a_node_without_processors_leaves_the_thread_alone(void **state)
{
    (void)state;
    hwloc_topology_t here;
    char before[256], after[256];
    assert_int_equal(hwloc_topology_init(&here), 0);
    assert_int_equal(hwloc_topology_load(here), 0);
    hwloc_bitmap_t user = hwloc_bitmap_alloc(), first = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_get_cpubind(here, user, HWLOC_CPUBIND_THREAD), 0);
    hwloc_bitmap_only(first, (unsigned)hwloc_bitmap_first(user));
    assert_int_equal(hwloc_set_cpubind(here, first, HWLOC_CPUBIND_THREAD), 0);
    read_binding(here, before, sizeof before);
    int32_t other = hwloc_bitmap_first(user) < 2 ? 1 : 0;
    ofl_locality *locality = open_xml(TOPOLOGIES "two_nodes.xml", "", other, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    assert_true(ofl_locality_node(locality) >= 0);
    assert_null(ofl_locality_enter(locality));
    ofl_locality_leave(locality, NULL);
    read_binding(here, after, sizeof after);
    assert_string_equal(after, before);
    ofl_locality_close(locality);
    assert_int_equal(hwloc_set_cpubind(here, user, HWLOC_CPUBIND_THREAD), 0);
    hwloc_bitmap_free(first);
    hwloc_bitmap_free(user);
    hwloc_topology_destroy(here);
}

/* As if each of the first two processors were a node of its own. */
static void a_thread_is_narrowed_and_put_back(void **state)
{
    (void)state;
    hwloc_topology_t here;
    char before[256], after[256], inside[256];
    assert_int_equal(hwloc_topology_init(&here), 0);
    assert_int_equal(hwloc_topology_load(here), 0);
    read_binding(here, before, sizeof before);
    hwloc_bitmap_t now = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_get_cpubind(here, now, HWLOC_CPUBIND_THREAD), 0);
    int first = hwloc_bitmap_first(now);
    ofl_locality *locality = open_synthetic("numa:2 core:1 pu:1", first, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    struct hwloc_bitmap_s *was = ofl_locality_enter(locality);
    if (first < 2) assert_non_null(was);
    if (was != NULL) {
        assert_int_equal(hwloc_get_cpubind(here, now, HWLOC_CPUBIND_THREAD), 0);
        assert_int_equal(hwloc_bitmap_weight(now), 1);
        assert_int_equal(hwloc_bitmap_first(now), first);
        (void)hwloc_bitmap_snprintf(inside, sizeof inside, was);
        assert_string_equal(inside, before);
    }
    ofl_locality_leave(locality, was);
    read_binding(here, after, sizeof after);
    assert_string_equal(after, before);
    hwloc_bitmap_free(now);
    ofl_locality_close(locality);
    hwloc_topology_destroy(here);
}

static void memory_is_found_where_it_was_bound(void **state)
{
    (void)state;
    const size_t bytes = 8u << 20;
    hwloc_topology_t here;
    assert_int_equal(hwloc_topology_init(&here), 0);
    assert_int_equal(hwloc_topology_load(here), 0);
    int32_t node = (int32_t)hwloc_get_obj_by_type(here, HWLOC_OBJ_NUMANODE, 0)->os_index;
    ofl_locality *locality = NULL;
    assert_ok(ofl_locality_open("0000:ff:1f.7", node, &locality));
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(ofl_locality_place(locality, memory, bytes).node, -1); /* untouched: nowhere yet */
    bool bound = ofl_locality_bind_area(locality, memory, bytes);
    memset(memory, 1, bytes);
    ofl_memory_place place = ofl_locality_place(locality, memory, bytes);
    if (bound && place.node >= 0) {
        assert_int_equal(place.node, node);
        assert_true(place.share == 1);
    }
    assert_int_equal(munmap(memory, bytes), 0);
    ofl_locality_close(locality);
    hwloc_topology_destroy(here);
}

static void the_unknown_is_left_alone(void **state)
{
    (void)state;
    ofl_locality *locality = NULL;
    assert_ok(ofl_locality_open("", -1, &locality));
    assert_int_equal(ofl_locality_node(locality), -1);
    assert_null(ofl_locality_enter(locality));
    assert_false(ofl_locality_bind_area(locality, state, 8));
    ofl_locality_close(locality);
    assert_ok(ofl_locality_open_on(NULL, "0000:01:00.0", 0, &locality)); /* a system that does not tell */
    assert_int_equal(ofl_locality_node(locality), -1);
    assert_int_equal(ofl_locality_nodes(locality), 0);
    assert_null(ofl_locality_enter(locality));
    ofl_locality_close(locality);
    assert_int_equal(ofl_locality_node(NULL), -1);
    assert_null(ofl_locality_enter(NULL));
    assert_false(ofl_locality_bind_area(NULL, state, 8));
    assert_int_equal(ofl_locality_place(NULL, state, 8).node, -1);
    ofl_locality_close(NULL);
    (void)ofl_fault_allocation(1);
    assert_status(ofl_locality_open("", 0, &locality), OFL_ERROR_HOST_MEMORY);
    (void)ofl_fault_allocation(0);
    assert_null(locality);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_device_tells_its_node_or_its_slot_does),
    cmocka_unit_test(other_machines_bind_nothing),
    cmocka_unit_test(a_node_without_processors_leaves_the_thread_alone),
    cmocka_unit_test(a_thread_is_narrowed_and_put_back),
    cmocka_unit_test(memory_is_found_where_it_was_bound),
    cmocka_unit_test(the_unknown_is_left_alone),
};

TEST_MAIN(tests)

/* Measures an open device, step by step; each step sets the figures that it is about. */
#include "machine/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/locality.h"
#include "machine/hostmem.h"
#include "machine/hostrate.h"
#include "machine/pcie.h"
#include "machine/pinning.h"
#include "machine/rates.h"

#define CONTEXT_BYTES (UINT64_C(768) << 20) /* a context takes at most about this; what is taken beyond it is another process's */
#define PIN_BYTES (UINT64_C(1) << 30)
#define PIN_SECONDS 0.5
#define PIN_BYTES_PACED (UINT64_C(64) << 20) /* a simulated device on the wall clock touches all that it page-locks */

typedef struct probe {
    const char *root;
    ofl_device *device;
    ofl_device_info info;
    ofl_probe_options options;
    ofl_machine *machine;
    ofl_locality *locality; /* NULL: a simulated device is nowhere */
    uint64_t free_bytes;    /* device memory */
    uint64_t room_bytes;    /* host memory; 0: unknown */
} probe;

static ofl_status measured(const probe *p, ofl_figure figure, double value)
{
    return ofl_machine_set(p->machine, figure, value, OFL_SOURCE_MEASURED);
}

/* What is taken already is the context's up to a usual context's size, and another process's beyond. The simulated device has no other
 * processes. So VRAM − RUNTIME is what is free now, whoever holds the rest. */
static ofl_status measure_memory(probe *p)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_status status = ofl_device_memory_get(p->device, &memory);
    if (status != OFL_OK) return status;
    uint64_t there = memory.free_bytes + memory.used_bytes, taken = memory.total_bytes > there ? memory.total_bytes - there : 0;
    uint64_t runtime = p->info.simulated ? taken : ofl_min_u64(taken, CONTEXT_BYTES);
    p->free_bytes = memory.free_bytes;
    if (taken > runtime)
        ofl_machine_add_note(p->machine, "%s of the device's %s are taken by others; the plan is for what is free now",
                             ofl_bytes_text(taken - runtime).text, ofl_bytes_text(memory.total_bytes).text);
    status = measured(p, OFL_FIGURE_VRAM, (double)(there + runtime));
    return status == OFL_OK ? measured(p, OFL_FIGURE_RUNTIME, (double)runtime) : status;
}

/* A host that does not say leaves the figure to the defaults. */
static ofl_status measure_host(probe *p)
{
    ofl_host_room room;
    ofl_status status = ofl_host_room_read(p->root, &room);
    if (status == OFL_ERROR_UNSUPPORTED || (status == OFL_OK && room.usable_bytes == 0)) return OFL_OK;
    if (status != OFL_OK) return status;
    p->room_bytes = room.usable_bytes;
    return measured(p, OFL_FIGURE_HOST, (double)room.usable_bytes);
}

static ofl_status measure_host_rate(const probe *p)
{
    double rate = 0;
    if (p->info.simulated && !p->options.host_memory) return OFL_OK;
    ofl_status status = ofl_host_rate_measure(p->room_bytes, &rate);
    return status == OFL_OK && rate > 0 ? measured(p, OFL_FIGURE_HOST_BANDWIDTH, rate) : status;
}

/* A path's line, and its rate as a figure. */
static ofl_status measure_path(const probe *p, const ofl_rig *rig, ofl_path path, ofl_figure figure)
{
    ofl_link_line *line = &p->machine->lines[path];
    ofl_status status = ofl_measure_line(rig, path, line);
    return status == OFL_OK && figure != OFL_FIGURE_COUNT ? measured(p, figure, line->bytes_per_second) : status;
}

/* Nothing can be page-locked: the link is what pageable memory makes of it. */
static ofl_status measure_pageable_link(const probe *p, const ofl_rig *rig)
{
    const ofl_link_line *line = &p->machine->lines[OFL_PATH_PAGEABLE_TO_DEVICE];
    ofl_status status = measure_path(p, rig, OFL_PATH_PAGEABLE_TO_DEVICE, OFL_FIGURE_LINK_PAGEABLE);
    if (status == OFL_OK) status = measure_path(p, rig, OFL_PATH_DEVICE_TO_PAGEABLE, OFL_FIGURE_COUNT);
    if (status == OFL_OK) status = measured(p, OFL_FIGURE_LINK, line->bytes_per_second);
    if (status == OFL_OK) status = measured(p, OFL_FIGURE_COPY_START, line->start_seconds);
    ofl_machine_add_note(p->machine, "the host could page-lock no memory at all: what is streamed is copied at the rate of pageable "
                         "memory");
    return status == OFL_OK ? measured(p, OFL_FIGURE_PINNABLE, 1) : status; /* as good as none; a figure is above 0 */
}

static ofl_status measure_at_once(const probe *p, const ofl_rig *rig)
{
    ofl_link_line *lines = p->machine->lines, *there = &lines[OFL_PATH_TO_DEVICE_BOTH_WAYS], *back = &lines[OFL_PATH_FROM_DEVICE_BOTH_WAYS];
    ofl_link_line *computing = &lines[OFL_PATH_TO_DEVICE_COMPUTING];
    const ofl_link_line *down = &lines[OFL_PATH_PINNED_TO_DEVICE], *up = &lines[OFL_PATH_DEVICE_TO_PINNED];
    ofl_status status = ofl_measure_both_ways(rig, OFL_HOST_TO_DEVICE, down, up, there);
    if (status == OFL_OK && there->point_count > 0) status = measured(p, OFL_FIGURE_LINK_BOTH_WAYS, there->bytes_per_second);
    if (status == OFL_OK) status = ofl_measure_both_ways(rig, OFL_DEVICE_TO_HOST, up, down, back);
    if (status != OFL_OK || p->options.compute == NULL) return status;
    status = ofl_measure_computing(rig, &p->options, down, computing);
    if (status == OFL_OK && computing->point_count > 0) return measured(p, OFL_FIGURE_LINK_COMPUTING, computing->bytes_per_second);
    if (status == OFL_OK)
        ofl_machine_add_note(p->machine, "the computation given ended before the copies beside it: the rate while computing is not known");
    return status;
}

static ofl_status measure_link(const probe *p, const ofl_rig *rig)
{
    if (rig->pinned == NULL) return measure_pageable_link(p, rig);
    ofl_status status = measure_path(p, rig, OFL_PATH_PINNED_TO_DEVICE, OFL_FIGURE_LINK);
    if (status == OFL_OK) status = measured(p, OFL_FIGURE_COPY_START, p->machine->lines[OFL_PATH_PINNED_TO_DEVICE].start_seconds);
    if (status == OFL_OK) status = measure_path(p, rig, OFL_PATH_PAGEABLE_TO_DEVICE, OFL_FIGURE_LINK_PAGEABLE);
    if (status == OFL_OK) status = measure_path(p, rig, OFL_PATH_DEVICE_TO_PINNED, OFL_FIGURE_LINK_BACK);
    if (status == OFL_OK) status = measure_path(p, rig, OFL_PATH_DEVICE_TO_PAGEABLE, OFL_FIGURE_COUNT);
    return status == OFL_OK ? measure_at_once(p, rig) : status;
}

/* Generation and width while copies run. */
static ofl_status look_at_link(const probe *p, const ofl_rig *rig)
{
    const ofl_link_line *line = &p->machine->lines[rig->pinned != NULL ? OFL_PATH_PINNED_TO_DEVICE : OFL_PATH_PAGEABLE_TO_DEVICE];
    ofl_status status = ofl_rig_keep_busy(rig, line);
    if (status == OFL_OK) ofl_pcie_read(p->root, p->info.pci_id, &p->machine->link);
    ofl_status waited = ofl_stream_wait(p->device, rig->stream);
    if (status == OFL_OK && waited == OFL_OK) ofl_pcie_judge(p->machine);
    return status != OFL_OK ? status : waited;
}

static void look_at_memory(const probe *p, const ofl_rig *rig)
{
    ofl_link_state *link = &p->machine->link;
    ofl_memory_place place = ofl_locality_place(p->locality, rig->pinned, rig->bytes);
    link->device_node = ofl_locality_node(p->locality);
    link->pinned_node = place.node;
    if (link->device_node < 0 || place.node < 0 || (place.node == link->device_node && place.share > 0.9)) return;
    ofl_machine_add_note(p->machine, "the device is at NUMA node %d, but %.0f %% of the page-locked memory came from node %d: copies from "
                         "there are slower; free memory on node %d, or see to it that this process may use it",
                         (int)link->device_node, 100 * place.share, (int)place.node, (int)link->device_node);
}

static ofl_status measure_peer(const probe *p, const ofl_rig *rig)
{
    if (p->options.peer == NULL) return OFL_OK;
    ofl_status status = ofl_device_peer(p->device, p->options.peer, &p->machine->link.peer_direct);
    return status == OFL_OK ? measure_path(p, rig, OFL_PATH_DEVICE_TO_DEVICE, OFL_FIGURE_PEER) : status;
}

/* On top of the rig's own buffer. */
static ofl_status measure_pinnable(const probe *p, const ofl_rig *rig)
{
    bool paced = p->info.simulated && !p->info.virtual_clock;
    uint64_t asked = p->options.pin_bytes;
    if (rig->pinned == NULL) return OFL_OK;
    if (asked != 0) return ofl_probe_pinning(p->device, rig->bytes, ofl_min_u64(asked, p->room_bytes / 2), INFINITY, p->machine);
    uint64_t most = ofl_min_u64(paced ? PIN_BYTES_PACED : PIN_BYTES, p->room_bytes / 4);
    return ofl_probe_pinning(p->device, rig->bytes, most, PIN_SECONDS, p->machine);
}

static ofl_status measure_with_rig(const probe *p)
{
    ofl_rig rig;
    ofl_status status = ofl_rig_open(&rig, p->device, p->options.peer, p->free_bytes);
    if (status != OFL_OK) return status;
    status = ofl_rig_verify(&rig);
    if (status == OFL_OK) status = measure_link(p, &rig);
    if (status == OFL_OK) status = look_at_link(p, &rig);
    if (status == OFL_OK) look_at_memory(p, &rig);
    if (status == OFL_OK) status = measure_peer(p, &rig);
    if (status == OFL_OK) status = measure_pinnable(p, &rig);
    ofl_rig_close(&rig);
    return status;
}

static ofl_status measure_all(probe *p)
{
    ofl_status status = measure_host(p);
    if (status == OFL_OK) status = measure_memory(p);
    if (status == OFL_OK) status = measure_with_rig(p);
    return status == OFL_OK && !p->info.simulated && ofl_is_wsl(p->root) ? ofl_limit_pinning_on_wsl(p->machine) : status;
}

/* The thread is where the device is while it measures. */
static ofl_status measure_nearby(probe *p)
{
    ofl_status status = p->info.simulated ? OFL_OK : ofl_locality_open(p->info.pci_id, p->info.numa_node, &p->locality);
    if (status != OFL_OK) return status;
    struct hwloc_bitmap_s *before = ofl_locality_enter(p->locality);
    status = measure_all(p);
    ofl_locality_leave(p->locality, before);
    ofl_locality_close(p->locality);
    return status == OFL_OK ? measure_host_rate(p) : status; /* by all processors */
}

/* Name, and what tells it from another of the same name. */
static char *name_device(const ofl_device_info *info)
{
    if (info->simulated) return ofl_format("%s", info->spec);
    return ofl_format("%s%s%s%s%s", info->name, *info->pci_id ? ", " : "", info->pci_id, *info->uuid ? ", " : "", info->uuid);
}

static void stamp(ofl_machine *machine)
{
    struct tm utc;
    time_t now = time(NULL);
    if (gmtime_r(&now, &utc) != NULL) (void)strftime(machine->probed, sizeof machine->probed, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Opened twice, one device would be its own neighbour. */
static ofl_status check_peer(const probe *p)
{
    ofl_device_info other = {.struct_size = sizeof other};
    if (p->options.peer == NULL) return OFL_OK;
    ofl_status status = ofl_device_info_get(p->options.peer, &other);
    bool same = p->options.peer == p->device || (*other.pci_id != '\0' && strcmp(other.pci_id, p->info.pci_id) == 0);
    if (status != OFL_OK || !same) return status;
    return ofl_fail(OFL_ERROR_ARGUMENT, "probe: %.80s and %.80s are the same device; give another to copy to", p->info.spec, other.spec);
}

static ofl_status begin(probe *p, const ofl_probe_options *options)
{
    ofl_status status = ofl_device_info_get(p->device, &p->info);
    if (status == OFL_OK && options != NULL) status = ofl_struct_in(&p->options, sizeof p->options, options, "ofl_probe_options");
    if (status == OFL_OK) status = check_peer(p);
    if (status != OFL_OK) return status;
    char *name = name_device(&p->info);
    if (name == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "probe: out of host memory");
    status = ofl_machine_create(name, &p->machine);
    ofl_free(name);
    if (status != OFL_OK) return status;
    p->machine->simulated = p->info.simulated != 0;
    stamp(p->machine);
    return OFL_OK;
}

ofl_status ofl_machine_probe_under(const char *root, ofl_device *device, const ofl_probe_options *options, ofl_machine **out)
{
    probe p = {.root = root, .device = device, .info = {.struct_size = sizeof p.info}};
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "probe: no place for the machine");
    *out = NULL;
    if (device == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "probe: no device given");
    ofl_status status = begin(&p, options);
    if (status == OFL_OK) status = measure_nearby(&p);
    if (status == OFL_OK) *out = p.machine;
    else ofl_machine_destroy(p.machine);
    return status;
}

ofl_status ofl_machine_probe_with(ofl_device *device, const ofl_probe_options *options, ofl_machine **out)
{
    return ofl_machine_probe_under("", device, options, out);
}

ofl_status ofl_machine_probe(ofl_device *device, ofl_machine **out) { return ofl_machine_probe_under("", device, NULL, out); }

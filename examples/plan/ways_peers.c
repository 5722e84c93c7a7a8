/* GPUs found beside the one in use, and the rate from it to another one, measured. */
#include <stdio.h>
#include <string.h>

#include "common/app_error.h"
#include "plan/ways.h"

/* Another device than `one`, open. NULL: none can be opened. */
static ofl_device *open_other(const ofl_device *one, uint32_t count)
{
    ofl_device_info here = {.struct_size = sizeof here}, there = {.struct_size = sizeof there};
    if (ofl_device_info_get(one, &here) != OFL_OK) return NULL;
    for (uint32_t i = 0; i < count; i++) {
        char spec[24];
        ofl_device *other = NULL;
        (void)snprintf(spec, sizeof spec, "cuda:%u", i);
        if (ofl_device_open(spec, &other) != OFL_OK) continue;
        if (ofl_device_info_get(other, &there) == OFL_OK && strcmp(there.uuid, here.uuid) != 0) return other;
        ofl_device_close(other);
    }
    return NULL;
}

/* 0: it cannot be measured, and nothing is said about it. */
static double measure(ofl_device *device, uint32_t count)
{
    double rate = 0;
    ofl_machine *machine = NULL;
    ofl_device *other = open_other(device, count);
    const ofl_probe_options options = {.struct_size = sizeof options, .peer = other};
    if (other != NULL && ofl_machine_probe_with(device, &options, &machine) == OFL_OK)
        rate = ofl_machine_get(machine, OFL_FIGURE_PEER, NULL);
    ofl_machine_destroy(machine);
    ofl_device_close(other);
    return rate;
}

void ways_find_peers(ways_job *job)
{
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_source known = OFL_SOURCE_NONE;
    uint32_t count = 0;
    job->gpus = (uint32_t)job->options->gpus;
    if (job->given.device == NULL || ofl_device_info_get(job->given.device, &info) != OFL_OK || info.simulated) return;
    if (ofl_device_count("cuda", &count) != OFL_OK || count < 2) return;
    if (!job->options->given.gpus) job->gpus = count;
    (void)ways_rate(job, OFL_FIGURE_PEER, &known);
    if (known == OFL_SOURCE_NONE) job->peer_measured = measure(job->given.device, count);
}

/* The options that shape a plan, shared by the programs that make one: their table, and what they mean for machine and workload. */
#ifndef OFLOAD_PLAN_OPTIONS_H
#define OFLOAD_PLAN_OPTIONS_H

#include <ofload/ofload.h>

#include "common/cli.h"

#define PLAN_OPTION_COUNT 18

typedef struct plan_options {
    const char *device, *machine; /* NULL: not given */
    uint64_t vram_bytes, host_bytes, overhead_bytes;
    double link, link_pageable, device_bandwidth, device_flops;
    uint64_t context, prefill_chunk, resident_layers, queue;
    const char *sequences, *headroom, *cut;
    uint32_t kv_type, objective;
    struct {
        int vram, host, overhead, link, link_pageable, device_bandwidth, device_flops, context, prefill_chunk, resident_layers, queue,
            kv_type, objective;
    } given;
} plan_options;

/* Writes the PLAN_OPTION_COUNT rows that fill `options`, which must be zero and outlive the table. */
void plan_options_table(plan_options *options, cli_option rows[PLAN_OPTION_COUNT]);

/* Opens the device named, or else, where no machine and no memory size is given, the first GPU there is. *out is NULL when there is none to
 * open: "none", or figures given. */
ofl_status plan_options_device(const plan_options *options, ofl_device **out);

/* The machine: read from the file named, else probed from `device`, else empty; then the figures given, then the defaults for the rest.
 * `device` may be NULL. OFL_ERROR_ARGUMENT says what to give. */
ofl_status plan_options_machine(const plan_options *options, ofl_device *device, ofl_machine **out);
/* The same before the defaults: what was measured and given alone. */
ofl_status plan_options_figures(const plan_options *options, ofl_device *device, ofl_machine **out);

/* Before anything is opened: what no machine and no model could make right. */
ofl_status plan_options_check(const plan_options *options);
/* What this model makes wrong. */
ofl_status plan_options_check_model(const plan_options *options, const ofl_model *model);

/* The workload, all else zero. */
ofl_status plan_options_workload(const plan_options *options, ofl_workload *out);

#endif

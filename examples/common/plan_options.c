#include "common/plan_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KV_TYPES "f16|bf16|f32|q8_0|f8" /* in the order of ofl_kv_type */
#define OBJECTIVES "latency|throughput" /* in the order of ofl_objective */

void plan_options_table(plan_options *o, cli_option rows[PLAN_OPTION_COUNT])
{
    const cli_option table[PLAN_OPTION_COUNT] = {
        {"--device", CLI_TEXT, &o->device, NULL, "cuda:N|sim:…|none", NULL,
         "measure this device, e.g. sim:vram=64MiB,h2d=1GB/s (simulated)"},
        {"--machine", CLI_TEXT, &o->machine, NULL, "MACHINE.json", NULL, "figures saved earlier, from this or another computer"},
        {"--vram", CLI_SIZE, &o->vram_bytes, &o->given.vram, "SIZE", NULL, "device memory that may be used in all"},
        {"--host-ram", CLI_SIZE, &o->host_bytes, &o->given.host, "SIZE", NULL, "host memory that may be used"},
        {"--link", CLI_RATE, &o->link, &o->given.link, "RATE", NULL, "host to device, pinned memory, e.g. 12GB/s"},
        {"--link-pageable", CLI_RATE, &o->link_pageable, &o->given.link_pageable, "RATE", NULL,
         "of the host's copying out of pageable memory, which is before the link"},
        {"--device-bandwidth", CLI_RATE, &o->device_bandwidth, &o->given.device_bandwidth, "RATE", NULL, "device memory as read by the compute"},
        {"--device-flops", CLI_FLOPS, &o->device_flops, &o->given.device_flops, "RATE", NULL, "what products reach, e.g. 25TFLOP/s"},
        {"--context", CLI_COUNT, &o->context, &o->given.context, "N", NULL,
         "tokens per sequence, prompt and answer (default: 4096, or what it was trained for)"},
        {"--sequences", CLI_TEXT, &o->sequences, NULL, "N|auto", NULL,
         "sequences at once (default: auto: 1 for latency, chosen for throughput)"},
        {"--prefill-chunk", CLI_COUNT, &o->prefill_chunk, &o->given.prefill_chunk, "N", NULL,
         "most prompt tokens in a step (default: 512, less in small memories)"},
        {"--kv-type", CLI_CHOICE, &o->kv_type, &o->given.kv_type, KV_TYPES, KV_TYPES, "how the KV cache is stored (default: f16)"},
        {"--objective", CLI_CHOICE, &o->objective, &o->given.objective, OBJECTIVES, OBJECTIVES,
         "what the plan is best at (default: latency)"},
        {"--resident-layers", CLI_COUNT, &o->resident_layers, &o->given.resident_layers, "N", NULL,
         "force: N whole layers resident, the rest streamed whole"},
        {"--queue", CLI_COUNT, &o->queue, &o->given.queue, "N", NULL, "requests that wait (throughput; default: without end)"},
        {"--overhead", CLI_SIZE, &o->overhead_bytes, &o->given.overhead, "SIZE", NULL, "device memory taken by the driver and libraries"},
        {"--headroom", CLI_TEXT, &o->headroom, NULL, "SIZE|N%", NULL, "device memory left alone (default: 5%)"},
        {"--cut", CLI_TEXT, &o->cut, NULL, "auto|off|SIZE", NULL, "matrices in row parts: size chosen, none, or at most SIZE"},
    };
    memcpy(rows, table, sizeof table);
}

ofl_status plan_options_device(const plan_options *o, ofl_device **out)
{
    ofl_device *device = NULL;
    *out = NULL;
    bool named = o->device != NULL && strcmp(o->device, "none") != 0;
    if (named && ofl_device_open(o->device, &device) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    if (o->device == NULL && o->machine == NULL && !o->given.vram && ofl_device_open("cuda:0", &device) != OFL_OK) return OFL_OK;
    *out = device;
    return OFL_OK;
}

static ofl_status first_machine(const plan_options *o, ofl_device *device, ofl_machine **out)
{
    ofl_status status;
    if (o->machine != NULL) status = ofl_machine_load(o->machine, out);
    else if (device != NULL) status = ofl_machine_probe(device, out);
    else status = ofl_machine_create("no device", out);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status set_given(const plan_options *o, ofl_machine *machine)
{
    const struct { int given; ofl_figure figure; double value; const char *name; } figures[] = {
        {o->given.vram, OFL_FIGURE_VRAM, (double)o->vram_bytes, "--vram"},
        {o->given.host, OFL_FIGURE_HOST, (double)o->host_bytes, "--host-ram"},
        {o->given.link, OFL_FIGURE_LINK, o->link, "--link"},
        {o->given.link_pageable, OFL_FIGURE_LINK_PAGEABLE, o->link_pageable, "--link-pageable"},
        {o->given.device_bandwidth, OFL_FIGURE_DEVICE_BANDWIDTH, o->device_bandwidth, "--device-bandwidth"},
        {o->given.device_flops, OFL_FIGURE_DEVICE_FLOPS, o->device_flops, "--device-flops"},
        {o->given.overhead, OFL_FIGURE_RUNTIME, (double)o->overhead_bytes, "--overhead"},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (!figures[i].given) continue;
        ofl_status status = ofl_machine_set(machine, figures[i].figure, figures[i].value, OFL_SOURCE_GIVEN);
        if (status != OFL_OK) return app_fail(status, "%s: %s", figures[i].name, ofl_error_message());
    }
    return OFL_OK;
}

/* What can be page-locked was measured or assumed within the host memory of then; given less of it, it cannot be more. */
static ofl_status lower_pinnable(const plan_options *o, ofl_machine *machine)
{
    ofl_source source = OFL_SOURCE_NONE;
    double pinnable = ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    if (!o->given.host || source == OFL_SOURCE_NONE || pinnable <= (double)o->host_bytes) return OFL_OK;
    ofl_status status = ofl_machine_set(machine, OFL_FIGURE_PINNABLE, (double)o->host_bytes, OFL_SOURCE_GIVEN);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* The same holds for what the device has: more can be planned for, but only for a device that is not there. */
static ofl_status check_device_memory(const plan_options *o, const ofl_machine *machine)
{
    char wanted[32], there[32];
    double bytes = ofl_machine_get(machine, OFL_FIGURE_VRAM, NULL);
    if (!o->given.vram || (double)o->vram_bytes <= bytes) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "--vram %s is more than the %s that %s has for use; give less, or plan without it: --device none",
                    cli_show_bytes(wanted, o->vram_bytes, 0), cli_show_bytes(there, (uint64_t)bytes, 0), ofl_machine_device(machine));
}

ofl_status plan_options_figures(const plan_options *o, ofl_device *device, ofl_machine **out)
{
    ofl_machine *machine = NULL;
    ofl_source vram = OFL_SOURCE_NONE;
    ofl_status status = first_machine(o, device, &machine);
    if (status == OFL_OK && device != NULL && o->machine == NULL) status = check_device_memory(o, machine);
    if (status == OFL_OK) status = set_given(o, machine);
    if (status == OFL_OK) status = lower_pinnable(o, machine);
    if (status == OFL_OK) (void)ofl_machine_get(machine, OFL_FIGURE_VRAM, &vram);
    if (status == OFL_OK && vram == OFL_SOURCE_NONE)
        status = app_fail(OFL_ERROR_ARGUMENT, "there is no device to measure and no memory size to plan for: give --vram SIZE and --link "
                                              "RATE (such as --vram 12GB --link 12GB/s), "
                                              "or --device cuda:0, or --machine FILE");
    if (status == OFL_OK) *out = machine;
    else ofl_machine_destroy(machine);
    return status;
}

ofl_status plan_options_machine(const plan_options *o, ofl_device *device, ofl_machine **out)
{
    ofl_machine *machine = NULL;
    ofl_status status = plan_options_figures(o, device, &machine);
    if (status == OFL_OK && ofl_machine_assume(machine) != OFL_OK) status = app_forward(ofl_diagnostic_get()->status);
    if (status == OFL_OK) *out = machine;
    else ofl_machine_destroy(machine);
    return status;
}

static ofl_status read_headroom(const char *text, ofl_workload *out)
{
    char number[32];
    size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '%') {
        ofl_status status = cli_parse_size(text, &out->headroom_bytes);
        out->force_headroom = 1;
        return status;
    }
    if (length > sizeof number) return app_fail(OFL_ERROR_ARGUMENT, "\"%.40s\" is no percentage", text);
    (void)snprintf(number, sizeof number, "%.*s", (int)length - 1, text);
    ofl_status status = cli_parse_number(number, &out->headroom_percent);
    if (status == OFL_OK && !(out->headroom_percent >= 0 && out->headroom_percent < 100))
        return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is not between 0%% and 100%%", text);
    out->force_headroom = out->headroom_percent == 0;
    return status;
}

static ofl_status read_cut(const char *text, ofl_workload *out)
{
    if (strcmp(text, "auto") == 0) return OFL_OK;
    if (strcmp(text, "off") == 0) {
        out->cut = OFL_CUT_OFF;
        return OFL_OK;
    }
    out->cut = OFL_CUT_BYTES;
    ofl_status status = cli_parse_size(text, &out->part_bytes);
    if (status == OFL_OK && out->part_bytes == 0)
        return app_fail(OFL_ERROR_ARGUMENT, "a part of 0 bytes holds nothing; give auto, off or a size such as 16MB");
    return status;
}

static ofl_status read_sequences(const char *text, ofl_workload *out)
{
    uint64_t count = 0;
    if (strcmp(text, "auto") == 0) return OFL_OK;
    ofl_status status = cli_parse_count(text, &count);
    if (status == OFL_OK && (count == 0 || count > UINT32_MAX))
        return app_fail(OFL_ERROR_ARGUMENT, "\"%s\" is no count from 1 up, nor auto", text);
    out->sequences = (uint32_t)count;
    return status;
}

static ofl_status named(const char *name, ofl_status status)
{
    return status == OFL_OK ? OFL_OK : app_fail(status, "%s: %s", name, app_error());
}

/* A count that was given as 0, or is beyond 32 bits. */
static ofl_status check_count(const char *name, int given, uint64_t value, uint64_t least)
{
    if (!given || (value >= least && value <= UINT32_MAX)) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s: a count from %u to %u is needed", name, (unsigned)least, (unsigned)UINT32_MAX);
}

ofl_status plan_options_workload(const plan_options *o, ofl_workload *out)
{
    ofl_workload w = {.struct_size = sizeof w};
    ofl_status status = check_count("--context", o->given.context, o->context, 1);
    if (status == OFL_OK) status = check_count("--prefill-chunk", o->given.prefill_chunk, o->prefill_chunk, 1);
    if (status == OFL_OK) status = check_count("--queue", o->given.queue, o->queue, 1);
    if (status == OFL_OK) status = check_count("--resident-layers", o->given.resident_layers, o->resident_layers, 0);
    if (status == OFL_OK && o->sequences != NULL) status = named("--sequences", read_sequences(o->sequences, &w));
    if (status == OFL_OK && o->headroom != NULL) status = named("--headroom", read_headroom(o->headroom, &w));
    if (status == OFL_OK && o->cut != NULL) status = named("--cut", read_cut(o->cut, &w));
    if (status != OFL_OK) return status;
    w.objective = (ofl_objective)o->objective;
    w.kv_type = (ofl_kv_type)o->kv_type;
    w.context_tokens = o->context;
    w.prefill_chunk_tokens = (uint32_t)o->prefill_chunk;
    w.queue_length = o->queue;
    w.force_layers = (uint32_t)o->given.resident_layers;
    w.force_resident_layers = (uint32_t)o->resident_layers;
    *out = w;
    return OFL_OK;
}

ofl_status plan_options_check(const plan_options *o)
{
    ofl_workload unused;
    ofl_machine *scratch = NULL;
    ofl_status status = plan_options_workload(o, &unused);
    if (status == OFL_OK) status = app_forward(ofl_machine_create("scratch", &scratch));
    if (status == OFL_OK) status = set_given(o, scratch);
    ofl_machine_destroy(scratch);
    return status;
}

ofl_status plan_options_check_model(const plan_options *o, const ofl_model *model)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    if (!o->given.resident_layers) return OFL_OK;
    if (ofl_model_shape_get(model, &shape) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    if (o->resident_layers <= shape.block_count) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "--resident-layers: %u are too many: the model has %u; give at most that many",
                    (unsigned)o->resident_layers, shape.block_count);
}

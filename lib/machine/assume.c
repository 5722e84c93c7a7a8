/* Stated defaults for figures that were neither measured nor given. Constants only: the same input gives the same machine on every
 * computer. Device memory has none: a plan for a size that nobody named helps nobody. */
#include "machine/machine_state.h"

#include <math.h>

#define GIB 1073741824.0
#define MIB 1048576.0

/* A real or unknown GPU / the simulated one, whose "compute" is this computer's processor. */
typedef struct assumption {
    ofl_figure figure;
    double real, simulated;
    ofl_figure of; /* OFL_FIGURE_COUNT: a value of its own; else the factor on that figure, which stands before it or is set */
} assumption;

static const assumption assumptions[] = {
    /* Room is not the question that a plan without a host asks; the host line of the plan says what it needs. */
    {OFL_FIGURE_HOST, 1024 * GIB, 1024 * GIB, OFL_FIGURE_COUNT},
    /* The operating system keeps some; drivers lock up to nearly all on Linux, far less elsewhere. */
    {OFL_FIGURE_PINNABLE, 0.9, 0.9, OFL_FIGURE_HOST},
    /* PCIe 3.0 x16 or 4.0 x8, as measured (12.2 to 12.9 GB/s); half of 4.0 x16. */
    {OFL_FIGURE_LINK, 12e9, 12e9, OFL_FIGURE_COUNT},
    /* Pageable memory goes through a bounce buffer: 0.45 to 0.9 of pinned has been measured. */
    {OFL_FIGURE_LINK_PAGEABLE, 0.5, 0.5, OFL_FIGURE_LINK},
    {OFL_FIGURE_LINK_BACK, 1, 1, OFL_FIGURE_LINK},
    /* 2.3 to 7 microseconds a copy have been measured. */
    {OFL_FIGURE_COPY_START, 5e-6, 0, OFL_FIGURE_COUNT},
    /* Between a SATA disk (0.5) and an NVMe one (3 and more). */
    {OFL_FIGURE_FILE, 1e9, 1e9, OFL_FIGURE_COUNT},
    /* 0.1 to 0.6 seconds a gigabyte have been reported. */
    {OFL_FIGURE_PINNING, 4e9, 4e9, OFL_FIGURE_COUNT},
    /* What a 12 GB card of 360 GB/s reaches; two processor cores. */
    {OFL_FIGURE_DEVICE_BANDWIDTH, 300e9, 10e9, OFL_FIGURE_COUNT},
    /* What the same card reaches in bf16 products; two processor cores. */
    {OFL_FIGURE_DEVICE_FLOPS, 25e12, 100e9, OFL_FIGURE_COUNT},
    /* A context takes 250 MiB to over 1 GiB, libraries included; the simulated device takes nothing that it does not say. */
    {OFL_FIGURE_RUNTIME, 768 * MIB, 0, OFL_FIGURE_COUNT},
};

static double assumed_value(const ofl_machine *machine, const assumption *a)
{
    double value = machine->simulated ? a->simulated : a->real;
    if (a->of != OFL_FIGURE_COUNT) value *= machine->values[a->of];
    if (ofl_figure_unit_of(a->figure) == OFL_UNIT_SECONDS) return value;
    if (ofl_figure_unit_of(a->figure) != OFL_UNIT_BYTES) return fmax(value, OFL_RATE_LEAST);
    return value < 1 && a->of != OFL_FIGURE_COUNT ? 1 : floor(value);
}

ofl_status ofl_machine_assume(ofl_machine *machine)
{
    if (machine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "machine: no machine given");
    if (machine->sources[OFL_FIGURE_VRAM] == OFL_SOURCE_NONE)
        return ofl_fail(OFL_ERROR_ARGUMENT, "machine: the device memory is not known and has no default: probe a device, or set %s",
                        ofl_figure_key(OFL_FIGURE_VRAM));
    for (size_t i = 0; i < OFL_COUNT_OF(assumptions); i++) {
        const assumption *a = &assumptions[i];
        if (machine->sources[a->figure] != OFL_SOURCE_NONE) continue;
        ofl_status status = ofl_machine_set(machine, a->figure, assumed_value(machine, a), OFL_SOURCE_ASSUMED);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

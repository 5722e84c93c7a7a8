#include "plan/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app_error.h"
#include "common/cli.h"
#include "common/show.h"

char *head_model(const ofl_model *model, const facts *f)
{
    char *out = NULL, parameters[48], bytes[32], type[24];
    size_t length = 0;
    for (; f->main_type[length] != '\0' && length + 1 < sizeof type; length++) {
        char letter = f->main_type[length];
        type[length] = (char)(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    }
    type[length] = '\0';
    bool packed = strcmp(type, "u8") == 0 || strcmp(type, "i32") == 0; /* several weights in one of them */
    if (f->parameters >= 1e9) (void)snprintf(parameters, sizeof parameters, "%.2f billion", f->parameters / 1e9);
    else (void)snprintf(parameters, sizeof parameters, "%.1f million", f->parameters / 1e6);
    int used = asprintf(&out, "%s, %u layers, %s parameters, %s%s%s, %s", ofl_model_architecture(model), f->blocks, parameters,
                        f->one_type ? "" : "mostly ", type, packed ? " (packed)" : "", cli_show_bytes(bytes, f->weight_bytes, 0));
    return used < 0 ? NULL : out;
}

char *head_machine(const ofl_machine *machine)
{
    char *out = NULL;
    int used = asprintf(&out, "%s%s", ofl_machine_simulated(machine) ? "simulated device " : "", ofl_machine_device(machine));
    return used < 0 ? NULL : out;
}

/* "link 12.00 GB/s (given)"; nothing for the figure that is left out. */
static void add_figure(char *line, size_t room, const char *name, const char *value, ofl_source source)
{
    size_t used = strlen(line);
    (void)snprintf(line + used, room - used, "%s%s %s (%s)", used > 0 ? ", " : "", name, value, ofl_source_name(source));
}

char *head_figures(const ofl_machine *machine, ofl_figure varied)
{
    char line[256] = "", value[32];
    ofl_source source = OFL_SOURCE_NONE;
    double memory = ofl_machine_get(machine, OFL_FIGURE_VRAM, &source);
    if (varied != OFL_FIGURE_VRAM) add_figure(line, sizeof line, "memory", cli_show_bytes(value, (uint64_t)memory, 0), source);
    double link = ofl_machine_get(machine, OFL_FIGURE_LINK, &source);
    if (varied != OFL_FIGURE_LINK) add_figure(line, sizeof line, "link", cli_show_rate(value, link), source);
    double flops = ofl_machine_get(machine, OFL_FIGURE_DEVICE_FLOPS, &source);
    (void)snprintf(value, sizeof value, "%.3g %s", flops >= 1e12 ? flops / 1e12 : flops / 1e9, flops >= 1e12 ? "TFLOP/s" : "GFLOP/s");
    add_figure(line, sizeof line, "computing", value, source);
    double reads = ofl_machine_get(machine, OFL_FIGURE_DEVICE_BANDWIDTH, &source);
    add_figure(line, sizeof line, "reading its memory", cli_show_rate(value, reads), source);
    return strdup(line);
}

ofl_status head_print(const ofl_model *model, const ofl_machine *machine, const facts *f, ofl_figure varied)
{
    char *first = head_model(model, f), *name = head_machine(machine), *figures = head_figures(machine, varied), *label = NULL;
    bool made = first != NULL && name != NULL && figures != NULL && asprintf(&label, "%s: ", name) >= 0;
    if (made) {
        printf("%s  %s\n", ofl_model_name(model), first);
        show_wrapped(label, figures);
        free(label);
    }
    free(first);
    free(name);
    free(figures);
    return made ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
}

#include "machine/pcie.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096u

/* The first number in /sys/bus/pci/devices/ID/NAME; 0: none ("Unknown"). */
static double read_number(const char *root, const char *id, const char *name)
{
    char path[PATH_BYTES], text[64] = "";
    int length = snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, id, name);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "rb") : NULL;
    if (file == NULL) return 0;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    (void)fclose(file);
    /* "16.0 GT/s PCIe": digits by hand, strtod follows the program's locale */
    double value = (double)strtoul(text, NULL, 10);
    const char *point = strchr(text, '.');
    return point != NULL && isdigit((unsigned char)point[1]) ? value + (point[1] - '0') / 10.0 : value;
}

/* Gigatransfers per second and lane: 2.5, 5, 8, then doubling. */
static uint32_t generation_of(double speed)
{
    static const double speeds[] = {2.5, 5, 8, 16, 32, 64, 128};
    for (uint32_t i = 0; i < OFL_COUNT_OF(speeds); i++) {
        if (speed > speeds[i] - 0.1 && speed < speeds[i] + 0.1) return i + 1;
    }
    return 0;
}

/* 255 is what a device that is switched off shows. */
static uint32_t width_of(double lanes) { return lanes >= 1 && lanes <= 32 ? (uint32_t)lanes : 0; }

/* The runtime writes the id in capitals, the folder's name has small letters. false: not an id. */
static bool folder_name(const char *pci_id, char *out, size_t size)
{
    size_t length = strlen(pci_id);
    if (length == 0 || length >= size || strspn(pci_id, "0123456789abcdefABCDEF:.") != length || strstr(pci_id, "..") != NULL) return false;
    for (size_t i = 0; i <= length; i++) out[i] = (char)tolower((unsigned char)pci_id[i]);
    return true;
}

void ofl_pcie_read(const char *root, const char *pci_id, ofl_link_state *out)
{
    char id[32];
    if (!folder_name(pci_id, id, sizeof id)) return;
    out->generation = generation_of(read_number(root, id, "current_link_speed"));
    out->width = width_of(read_number(root, id, "current_link_width"));
    out->most_generation = generation_of(read_number(root, id, "max_link_speed"));
    out->most_width = width_of(read_number(root, id, "max_link_width"));
}

void ofl_pcie_judge(ofl_machine *machine)
{
    const ofl_link_state *link = &machine->link;
    if (link->width != 0 && link->width < link->most_width)
        ofl_machine_add_note(machine, "while it copied, the link ran %u lanes wide of the %u that the device has; another slot, or no card "
                             "beside it, may make it wider",
                             (unsigned)link->width, (unsigned)link->most_width);
    if (link->generation != 0 && link->generation < link->most_generation)
        ofl_machine_add_note(machine, "while it copied, the link ran as PCI Express generation %u of the %u that the device has; the slot, "
                             "a riser or a setting limits it",
                             (unsigned)link->generation, (unsigned)link->most_generation);
}

#include "machine/pinning.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BYTES (UINT64_C(64) << 20)
#define LEAST_BYTES (UINT64_C(64) << 10)
#define LEAST_TIMED (UINT64_C(16) << 20)
#define MOST_PIECES 48u

typedef struct pieces {
    void *memory[MOST_PIECES];
    uint32_t count;
    uint64_t bytes;
    double seconds; /* that they took */
    bool refused;
} pieces;

static bool is_refusal(ofl_status status) { return status == OFL_ERROR_PINNED_MEMORY || status == OFL_ERROR_UNSUPPORTED; }

/* The next piece is as large as all before it, and half as large after a refusal; none that would take longer than is left, at the pace so
 * far. */
static ofl_status take_pieces(ofl_device *device, uint64_t most, double seconds, pieces *p)
{
    uint64_t start = ofl_device_now_ns(device);
    uint64_t next = ofl_min_u64(FIRST_BYTES, most);
    for (uint32_t tries = 0; tries < MOST_PIECES && next >= LEAST_BYTES; tries++) {
        ofl_status status = ofl_device_host_alloc(device, next, &p->memory[p->count]);
        if (status != OFL_OK && !is_refusal(status)) return status;
        if (status == OFL_OK) p->bytes += next;
        if (status == OFL_OK) p->count++;
        p->refused = p->refused || status != OFL_OK;
        next = ofl_min_u64(p->refused ? next / 2 : p->bytes, most - p->bytes) / LEAST_BYTES * LEAST_BYTES;
        double spent = (double)(ofl_device_now_ns(device) - start) * 1e-9, per_byte = p->bytes > 0 ? spent / (double)p->bytes : 0;
        p->seconds = spent;
        if (spent + per_byte * (double)next > seconds) break;
    }
    return OFL_OK;
}

/* Where one refusal was followed by another of the least that there is, nothing can be page-locked any more. */
static ofl_status still_works(ofl_device *device, bool *out)
{
    void *memory = NULL;
    ofl_status status = ofl_device_host_alloc(device, LEAST_BYTES, &memory);
    ofl_device_host_free(device, memory);
    *out = status == OFL_OK;
    return is_refusal(status) ? OFL_OK : status;
}

static ofl_status judge(ofl_device *device, uint64_t pinned, ofl_machine *machine)
{
    bool works = false;
    ofl_status status = still_works(device, &works);
    if (status != OFL_OK) return status;
    if (works)
        ofl_machine_add_note(machine, "of the host's memory %s could be page-locked and more was refused; what is streamed beyond it is "
                             "copied at the rate of pageable memory", ofl_bytes_text(pinned).text);
    else
        ofl_machine_add_note(machine, "the host page-locked %s, refused more, and then refused any; what is streamed is copied at the "
                             "rate of pageable memory", ofl_bytes_text(pinned).text);
    return ofl_machine_set(machine, OFL_FIGURE_PINNABLE, works && pinned > 0 ? (double)pinned : 1, OFL_SOURCE_MEASURED);
}

ofl_status ofl_probe_pinning(ofl_device *device, uint64_t held, uint64_t most, double seconds, ofl_machine *machine)
{
    pieces p = {.count = 0};
    ofl_status status = take_pieces(device, most > held ? most - held : 0, seconds, &p);
    for (uint32_t i = 0; i < p.count; i++) ofl_device_host_free(device, p.memory[i]);
    if (status != OFL_OK) return status;
    machine->link.pinned_bytes = held + p.bytes;
    if (p.seconds > 0 && p.bytes >= LEAST_TIMED) /* the virtual clock does not see it */
        status = ofl_machine_set(machine, OFL_FIGURE_PINNING, (double)p.bytes / p.seconds, OFL_SOURCE_MEASURED);
    if (status != OFL_OK) return status;
    return p.refused ? judge(device, held + p.bytes, machine) : OFL_OK;
}

bool ofl_is_wsl(const char *root)
{
    char path[4096], text[256] = "";
    if (snprintf(path, sizeof path, "%s/proc/sys/kernel/osrelease", root) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    (void)fclose(file);
    for (char *at = text; *at != '\0'; at++) *at = (char)tolower((unsigned char)*at);
    return strstr(text, "microsoft") != NULL;
}

ofl_status ofl_limit_pinning_on_wsl(ofl_machine *machine)
{
    ofl_source source = OFL_SOURCE_NONE;
    double card = ofl_machine_get(machine, OFL_FIGURE_VRAM, NULL), pinnable = ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    ofl_machine_add_note(machine,
                         "this is Windows' Linux (WSL): its driver charges page-locked memory to the card and moves to host memory what "
                         "does not fit, slowly and without an error; keep resident and page-locked bytes together below %s",
                         ofl_bytes_text((uint64_t)card).text);
    if (source != OFL_SOURCE_NONE && pinnable <= card) return OFL_OK;
    ofl_source host_source = OFL_SOURCE_NONE;
    double host = ofl_machine_get(machine, OFL_FIGURE_HOST, &host_source);
    bool small = host_source != OFL_SOURCE_NONE && host <= card; /* what will be assumed is less than the host has */
    if (source == OFL_SOURCE_NONE && small) return OFL_OK;
    return ofl_machine_set(machine, OFL_FIGURE_PINNABLE, card, OFL_SOURCE_ASSUMED);
}

/* What a device has handed out or page-locked: ranges, and the bytes they count for. Not locked: its device does that. */
#ifndef OFLOAD_LIB_DEVICE_LEDGER_H
#define OFLOAD_LIB_DEVICE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ofl_ledger_kind { OFL_LEDGER_DEVICE, OFL_LEDGER_HOST, OFL_LEDGER_REGISTERED } ofl_ledger_kind;

typedef struct ofl_ledger_entry {
    char *pointer;
    uint64_t bytes;   /* as asked for */
    uint64_t counted; /* towards used or pinned */
    void *base;       /* sim: what to free */
    ofl_ledger_kind kind;
} ofl_ledger_entry;

typedef struct ofl_ledger {
    ofl_ledger_entry *entries;
    uint64_t count, capacity;
    uint64_t used, peak; /* device memory */
    uint64_t pinned;     /* host memory */
} ofl_ledger;

/* Makes room for one more, so that ofl_ledger_add cannot fail; false: out of memory. */
bool ofl_ledger_reserve(ofl_ledger *ledger);
void ofl_ledger_add(ofl_ledger *ledger, ofl_ledger_entry entry);
/* Takes the entry that starts at `pointer` out; false: there is none. */
bool ofl_ledger_take(ofl_ledger *ledger, const void *pointer, ofl_ledger_kind kind, ofl_ledger_entry *out);
/* The entry that holds all the bytes, of device memory or of host memory; or NULL. */
const ofl_ledger_entry *ofl_ledger_find(const ofl_ledger *ledger, bool host, const void *pointer, uint64_t bytes);

#endif

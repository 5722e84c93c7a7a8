#include "device/ledger.h"

#include "base/base.h"

bool ofl_ledger_reserve(ofl_ledger *ledger)
{
    void *entries = ledger->entries;
    bool grown = ofl_grow(&entries, &ledger->capacity, ledger->count + 1, sizeof *ledger->entries);
    ledger->entries = entries;
    return grown;
}

void ofl_ledger_add(ofl_ledger *ledger, ofl_ledger_entry entry)
{
    ledger->entries[ledger->count++] = entry;
    if (entry.kind != OFL_LEDGER_DEVICE) {
        ledger->pinned += entry.counted;
        return;
    }
    ledger->used += entry.counted;
    ledger->peak = ofl_max_u64(ledger->peak, ledger->used);
}

bool ofl_ledger_take(ofl_ledger *ledger, const void *pointer, ofl_ledger_kind kind, ofl_ledger_entry *out)
{
    for (uint64_t i = 0; i < ledger->count; i++) {
        if (ledger->entries[i].pointer != pointer || ledger->entries[i].kind != kind) continue;
        *out = ledger->entries[i];
        ledger->entries[i] = ledger->entries[--ledger->count];
        *(kind == OFL_LEDGER_DEVICE ? &ledger->used : &ledger->pinned) -= out->counted;
        return true;
    }
    return false;
}

const ofl_ledger_entry *ofl_ledger_find(const ofl_ledger *ledger, bool host, const void *pointer, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)pointer;
    for (uint64_t i = 0; i < ledger->count; i++) {
        const ofl_ledger_entry *entry = &ledger->entries[i];
        uintptr_t first = (uintptr_t)entry->pointer;
        if (host == (entry->kind == OFL_LEDGER_DEVICE)) continue;
        if (at >= first && at - first < entry->bytes && bytes <= entry->bytes - (at - first)) return entry;
    }
    return NULL;
}

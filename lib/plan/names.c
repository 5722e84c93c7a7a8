/* Names: of units, once the cut is chosen, and of kinds. The slices of each tensor. */
#include "plan/plan_state.h"

#include <stdio.h>
#include <string.h>

void ofl_plan_index_tensors(ofl_plan *plan)
{
    for (uint64_t i = 0; i < plan->facts.tensor_count; i++) plan->facts.tensors[i].slice_count = plan->facts.tensors[i].slice_first = 0;
    for (uint32_t i = 0; i < plan->draft.cut.slice_count; i++) {
        ofl_plan_tensor *tensor = &plan->facts.tensors[plan->draft.cut.slices[i].tensor];
        if (tensor->slice_count++ == 0) tensor->slice_first = i;
    }
}

/* The first matrix, else the first slice. */
static const ofl_slice *main_slice(const ofl_plan *plan, const ofl_unit *unit, uint32_t *others)
{
    const ofl_slice *slices = &plan->draft.cut.slices[unit->slice_first], *found = NULL;
    *others = 0;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        if (plan->facts.tensors[slices[i].tensor].small) continue;
        if (found == NULL) found = &slices[i];
        else ++*others;
    }
    return found != NULL ? found : slices;
}

static int write_name(const ofl_plan *plan, const ofl_unit *unit, char *to, size_t room)
{
    uint32_t others;
    const ofl_slice *slice = main_slice(plan, unit, &others);
    const ofl_plan_tensor *tensor = &plan->facts.tensors[slice->tensor];
    bool block = unit->block >= 0 && (uint32_t)unit->block < plan->facts.shape.block_count;
    if (plan->draft.cut.part_bytes == 0 && block) return snprintf(to, room, "block %d", (int)unit->block);
    if (plan->draft.cut.part_bytes == 0) return snprintf(to, room, "%s", unit->block < 0 ? "input" : "output");
    if (slice->row_count < tensor->rows) {
        uint32_t index = (uint32_t)(slice - plan->draft.cut.slices) - tensor->slice_first;
        return snprintf(to, room, "%s %u/%u", tensor->name, index + 1, tensor->slice_count);
    }
    return others != 0 ? snprintf(to, room, "%s +%u", tensor->name, others) : snprintf(to, room, "%s", tensor->name);
}

ofl_status ofl_plan_finish(ofl_plan *plan)
{
    uint64_t bytes = 0;
    ofl_plan_index_tensors(plan);
    for (uint64_t i = 0; i < plan->draft.cut.unit_count; i++) bytes += (uint64_t)write_name(plan, &plan->draft.cut.units[i], NULL, 0) + 1;
    char *to = plan->unit_names = ofl_alloc(bytes, 1);
    if (to == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
    for (uint64_t i = 0; i < plan->draft.cut.unit_count; i++) {
        ofl_unit *unit = &plan->draft.cut.units[i];
        unit->name = to;
        to += write_name(plan, unit, to, (size_t)(bytes - (uint64_t)(to - plan->unit_names))) + 1;
    }
    return OFL_OK;
}

const char *ofl_tier_name(ofl_tier tier)
{
    static const char *const names[] = {"device", "pinned", "pageable", "file"};
    return (unsigned)tier < OFL_COUNT_OF(names) ? names[tier] : "?";
}

const char *ofl_plan_class_name(ofl_tensor_class tensor_class)
{
    static const char *const names[] = {"dense", "lookup", "expert", "unused"};
    return (unsigned)tensor_class < OFL_COUNT_OF(names) ? names[tensor_class] : "?";
}

/* Cuts a model into slices and units: matrices in execution order, packed up to the part size, bigger ones cut by rows. */
#include "plan/plan_state.h"

#include <string.h>

#define ROW_STEP 16u    /* rows of a part are a multiple of it, or of half of it and so on, … */
#define UNITS_POSSIBLE (1u << 20)
#define STEPS_LEAST 32u /* … so that a part has at least so many steps, and parts differ by 3 % at most */

typedef struct cutter {
    const ofl_plan_facts *facts;
    ofl_plan_cut *cut;
    ofl_dtype compute_dtype;
    uint64_t pending;    /* first slice that no unit has yet */
    uint64_t open_bytes; /* of matrices in the last unit */
    bool open;           /* the last unit may take more matrices */
    bool block_has_unit;
    int32_t block;
} cutter;

void ofl_plan_cut_clear(ofl_plan_cut *cut)
{
    ofl_free(cut->slices);
    ofl_free(cut->units);
    ofl_free(cut->loads);
    ofl_free(cut->items);
    memset(cut, 0, sizeof *cut);
}

static bool push_slice(cutter *c, uint32_t tensor, uint64_t first, uint64_t rows)
{
    ofl_plan_cut *cut = c->cut;
    const ofl_plan_tensor *t = &c->facts->tensors[tensor];
    if (cut->slice_count >= OFL_NO_UNIT ||
        !ofl_grow((void **)&cut->slices, &cut->slice_capacity, cut->slice_count + 1, sizeof *cut->slices))
        return false;
    ofl_slice *slice = &cut->slices[cut->slice_count++];
    *slice = (ofl_slice){.struct_size = sizeof *slice, .tensor = tensor, .unit = OFL_NO_UNIT, .row_first = first, .row_count = rows};
    slice->bytes = rows * t->row_bytes;
    return true;
}

static bool start_unit(cutter *c)
{
    ofl_plan_cut *cut = c->cut;
    if (!ofl_grow((void **)&cut->units, &cut->unit_capacity, cut->unit_count + 1, sizeof *cut->units) ||
        !ofl_grow((void **)&cut->loads, &cut->load_capacity, cut->unit_count + 1, sizeof *cut->loads))
        return false;
    cut->units[cut->unit_count] = (ofl_unit){
        .struct_size = sizeof *cut->units, .name = "", .block = c->block, .slice_first = (uint32_t)c->pending};
    cut->loads[cut->unit_count++] = (ofl_unit_load){0};
    c->block_has_unit = true;
    return true;
}

/* All slices pushed so far belong to the last unit. */
static void fill_unit(cutter *c)
{
    ofl_unit *unit = &c->cut->units[c->cut->unit_count - 1];
    unit->slice_count = (uint32_t)c->cut->slice_count - unit->slice_first;
    c->pending = c->cut->slice_count;
}

static bool end_block(cutter *c)
{
    if (c->pending < c->cut->slice_count) {
        if (!c->block_has_unit && !start_unit(c)) return false;
        fill_unit(c);
    }
    c->open = c->block_has_unit = false;
    return true;
}

/* Rows of a part are a whole number of this many. */
static uint64_t row_step(uint64_t rows)
{
    uint64_t step = ROW_STEP;
    while (step > 1 && rows / step < STEPS_LEAST) step /= 2;
    return step;
}

/* How many parts, and of how many steps of rows in all. */
static uint64_t part_count(const ofl_plan_tensor *t, uint64_t part_bytes, uint64_t *step_out, uint64_t *steps_out)
{
    uint64_t rows = ofl_max_u64(1, part_bytes / t->row_bytes), step = row_step(rows);
    uint64_t steps = t->rows / step + (t->rows % step != 0), each = rows / step;
    *step_out = step;
    *steps_out = steps;
    return steps / each + (steps % each != 0);
}

uint64_t ofl_plan_parts_of(const ofl_plan_tensor *t, uint64_t part_bytes)
{
    uint64_t step, steps;
    return part_count(t, part_bytes, &step, &steps);
}

bool ofl_plan_parts_equal(const ofl_plan_tensor *t, uint64_t part_bytes)
{
    uint64_t step, steps, parts = part_count(t, part_bytes, &step, &steps);
    return steps % parts == 0;
}

uint64_t ofl_plan_even_part(const ofl_plan_tensor *t, uint64_t parts)
{
    uint64_t rows = (t->rows + parts - 1) / parts, step = row_step(rows);
    return (rows + step - 1) / step * step * t->row_bytes;
}

static bool push_parts(cutter *c, uint32_t tensor, uint64_t part_bytes)
{
    const ofl_plan_tensor *t = &c->facts->tensors[tensor];
    uint64_t step, steps, parts = part_count(t, part_bytes, &step, &steps), first = 0;
    for (uint64_t i = 0; i < parts; i++) {
        uint64_t end = ofl_min_u64(t->rows, first + (steps / parts + (i < steps % parts)) * step);
        if (!start_unit(c) || !push_slice(c, tensor, first, end - first)) return false;
        fill_unit(c);
        first = end;
    }
    c->open = false;
    return true;
}

static bool is_cut(const ofl_plan_tensor *t, uint64_t part_bytes) { return part_bytes != 0 && t->bytes > part_bytes && t->rows > 1; }

static bool push_matrix(cutter *c, uint32_t tensor)
{
    const ofl_plan_tensor *t = &c->facts->tensors[tensor];
    uint64_t part = c->cut->part_bytes;
    if (is_cut(t, part)) return push_parts(c, tensor, part);
    bool joins = c->open && (part == 0 || t->bytes <= part - ofl_min_u64(part, c->open_bytes));
    if (!joins && !start_unit(c)) return false;
    c->open_bytes = joins ? c->open_bytes + t->bytes : t->bytes;
    c->open = true;
    if (!push_slice(c, tensor, 0, t->rows)) return false;
    fill_unit(c);
    return true;
}

static bool push_tensor(cutter *c, uint32_t tensor)
{
    const ofl_plan_tensor *t = &c->facts->tensors[tensor];
    if (t->block != c->block) {
        if (!end_block(c)) return false;
        c->block = t->block;
    }
    return t->small ? push_slice(c, tensor, 0, t->rows) : push_matrix(c, tensor);
}

static void add_load(const cutter *c, ofl_unit_load *load, const ofl_slice *slice)
{
    const ofl_plan_tensor *t = &c->facts->tensors[slice->tensor];
    if (t->vector) return;
    double bytes = (double)slice->bytes, elements = (double)(t->elements / t->rows * slice->row_count);
    load->head |= t->also_lookup || t->block >= (int64_t)c->facts->shape.block_count;
    if (t->tensor_class == OFL_CLASS_EXPERT) {
        load->expert_bytes += bytes;
        load->expert_elements += elements;
    } else {
        load->bytes += bytes;
        load->elements += elements;
    }
}

static void add_sizes(const cutter *c, const ofl_slice *slice, uint64_t *movable)
{
    const ofl_plan_tensor *t = &c->facts->tensors[slice->tensor];
    uint64_t aligned = ofl_plan_align(slice->bytes);
    if (t->small) c->cut->small_bytes += aligned;
    else *movable += aligned;
    if (!t->vector && t->dtype != c->compute_dtype)
        c->cut->workspace_elements = ofl_max_u64(c->cut->workspace_elements, t->elements / t->rows * slice->row_count);
}

static void sum_unit(const cutter *c, uint32_t index)
{
    const ofl_unit *unit = &c->cut->units[index];
    uint64_t movable = 0;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        ofl_slice *slice = &c->cut->slices[unit->slice_first + i];
        slice->unit = index;
        add_load(c, &c->cut->loads[index], slice);
        add_sizes(c, slice, &movable);
    }
    c->cut->movable_bytes += movable;
    uint64_t *largest = c->cut->loads[index].head ? &c->cut->largest_unit : &c->cut->largest_block_unit;
    *largest = ofl_max_u64(*largest, movable);
}

/* Attention runs just before a block's output product; without such a tensor, with the block's first unit. */
static void place_attention(const cutter *c)
{
    ofl_plan_cut *cut = c->cut;
    for (uint64_t first = 0, end; first < cut->unit_count; first = end) {
        uint64_t at = first;
        for (end = first; end < cut->unit_count && cut->units[end].block == cut->units[first].block; end++) {
            for (uint32_t i = 0; at == first && i < cut->units[end].slice_count; i++) {
                if (c->facts->tensors[cut->slices[cut->units[end].slice_first + i].tensor].role == OFL_ROLE_ATTN_OUTPUT) at = end;
            }
        }
        int32_t block = cut->units[first].block;
        if (block >= 0 && (uint32_t)block < c->facts->shape.block_count) cut->loads[at].attention = true;
    }
}

static bool push_lookups(cutter *c)
{
    for (uint32_t i = 0; i < c->facts->tensor_count; i++) {
        const ofl_plan_tensor *t = &c->facts->tensors[i];
        if (t->tensor_class == OFL_CLASS_LOOKUP && t->bytes != 0 && !push_slice(c, i, 0, t->rows)) return false;
    }
    return true;
}

static uint64_t most_slices(const ofl_plan_facts *facts, uint64_t part_bytes)
{
    uint64_t most = facts->tensor_count, step, steps;
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        const ofl_plan_tensor *t = &facts->tensors[i];
        if (ofl_plan_is_dense(t) && !t->small && is_cut(t, part_bytes)) most += part_count(t, part_bytes, &step, &steps);
    }
    return most;
}

ofl_status ofl_plan_cut_make(const ofl_plan_facts *facts, uint64_t part_bytes, ofl_compute_type compute_type, ofl_plan_cut *out)
{
    ofl_plan_cut cut = {.part_bytes = part_bytes};
    uint64_t most = most_slices(facts, part_bytes);
    if (most > facts->tensor_count + UNITS_POSSIBLE)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: parts of %s make more than %u units of this model; give a larger part size",
                        ofl_bytes_text(part_bytes).text, UNITS_POSSIBLE);
    cutter c = {.facts = facts, .cut = &cut, .block = OFL_BLOCK_INPUT};
    c.compute_dtype = compute_type == OFL_COMPUTE_F32 ? OFL_DTYPE_F32 : OFL_DTYPE_BF16;
    if (!ofl_grow((void **)&cut.slices, &cut.slice_capacity, most, sizeof *cut.slices)) goto failed;
    for (uint32_t i = 0; i < facts->tensor_count; i++) {
        if (ofl_plan_is_dense(&facts->tensors[i]) && !push_tensor(&c, i)) goto failed;
    }
    if (!end_block(&c)) goto failed;
    cut.unit_slice_count = (uint32_t)cut.slice_count;
    for (uint32_t i = 0; i < cut.unit_count; i++) sum_unit(&c, i);
    cut.largest_unit = ofl_max_u64(cut.largest_unit, cut.largest_block_unit);
    place_attention(&c);
    if (!push_lookups(&c)) goto failed;
    *out = cut;
    return OFL_OK;

failed:
    ofl_plan_cut_clear(&cut);
    return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory while cutting %u tensors", (unsigned)facts->tensor_count);
}

static uint64_t lay_out_unit(ofl_plan_cut *cut, ofl_unit *unit)
{
    unit->piece_bytes = unit->streamed_bytes = 0;
    for (uint32_t j = 0; j < unit->slice_count; j++) {
        ofl_slice *slice = &cut->slices[unit->slice_first + j];
        slice->piece_offset = 0;
        if (slice->tier == OFL_TIER_DEVICE) continue;
        slice->piece_offset = unit->piece_bytes;
        unit->piece_bytes += ofl_plan_align(slice->bytes);
        unit->streamed_bytes += slice->bytes;
    }
    return unit->piece_bytes;
}

/* Pieces of nearly the largest size take as much room as that one: equal pieces leave no gaps at the ring's end. */
void ofl_plan_cut_layout(ofl_plan_cut *cut)
{
    uint64_t largest = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) largest = ofl_max_u64(largest, lay_out_unit(cut, &cut->units[i]));
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        if (cut->units[i].piece_bytes > largest / 16 * 15) cut->units[i].piece_bytes = largest;
    }
}

uint64_t ofl_plan_piece_data(const ofl_plan_cut *cut, const ofl_unit *unit)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->tier != OFL_TIER_DEVICE) end = slice->piece_offset + slice->bytes;
    }
    return end;
}

uint64_t ofl_plan_piece_copies(const ofl_plan_facts *facts, const ofl_plan_cut *cut, const ofl_unit *unit, uint64_t most)
{
    uint64_t copies = 0;
    ofl_copy_run last = {0};
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        const ofl_copy_run run = {slice->piece_offset, slice->bytes,
                                  ofl_is_packed(slice->tier, facts->tensors[slice->tensor].callers, slice->bytes)};
        if (ofl_copy_run_takes(&last, &run)) continue;
        copies += ofl_copy_count(last.bytes, most);
        last = run;
    }
    return copies + ofl_copy_count(last.bytes, most);
}

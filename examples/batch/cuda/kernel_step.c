/* A step's tables for the kernels, made on the host. */
#include <string.h>

#include "batch/cuda/kernels.h"
#include "common/app_error.h"

uint64_t kernel_partial_bytes(uint32_t dim) { return ((uint64_t)dim + 2) * sizeof(float); }

ofl_status kernel_supports(ofl_kv_type type, uint32_t dim)
{
    ofl_status status = kv_supports(type, dim);
    if (status != OFL_OK || dim % 2 == 0) return status;
    return app_fail(OFL_ERROR_UNSUPPORTED, "attention on a GPU: heads of %u elements are not supported; even numbers are", dim);
}

/* Tokens of a share that one part holds. */
static uint32_t tokens_a_part(const kernel_step_limits *limits)
{
    uint32_t group = limits->heads / limits->kv_heads;
    return group < KERNEL_ATTENTION_ROWS ? KERNEL_ATTENTION_ROWS / group : 1;
}

static uint64_t take(uint64_t *end, uint64_t count, uint64_t each)
{
    uint64_t at = *end;
    *end = (at + count * each + 15) / 16 * 16;
    return at;
}

ofl_status kernel_step_layout_make(const kernel_step_limits *limits, kernel_step_layout *out)
{
    if (limits->kv_heads == 0 || limits->heads % limits->kv_heads != 0 || limits->block_tokens == 0 ||
        limits->split_positions % KV_SPAN != 0)
        return app_fail(OFL_ERROR_ARGUMENT, "step tables: %u heads over %u, blocks of %u tokens, parts of %u positions", limits->heads,
                        limits->kv_heads, limits->block_tokens, limits->split_positions);
    uint64_t cut = limits->split_positions == 0 ? 0 : limits->partial_rows / limits->heads;
    uint64_t whole = (uint64_t)limits->tokens / tokens_a_part(limits) + limits->sequences;
    uint64_t parts = (whole < limits->tokens ? whole : limits->tokens) + cut, merges = cut / 2;
    if (parts > INT32_MAX || limits->partial_rows > UINT32_MAX)
        return app_fail(OFL_ERROR_ARGUMENT, "step tables: %llu parts are too many", (unsigned long long)parts);
    kernel_step_layout layout = {.max_parts = (uint32_t)parts,
                                 .max_merges = (uint32_t)(merges < limits->sequences ? merges : limits->sequences)};
    layout.counts = take(&layout.bytes, 1, sizeof(kernel_counts));
    layout.places = take(&layout.bytes, limits->tokens, sizeof(kernel_place));
    layout.blocks = take(&layout.bytes, limits->blocks, sizeof(uint32_t));
    layout.row_tokens = take(&layout.bytes, limits->rows, sizeof(uint32_t));
    layout.parts = take(&layout.bytes, layout.max_parts, sizeof(kernel_part));
    layout.merges = take(&layout.bytes, layout.max_merges, sizeof(kernel_merge));
    *out = layout;
    return OFL_OK;
}

typedef struct filling { /* how far the tables are */
    const kernel_step_limits *limits;
    const kernel_step_layout *layout;
    kernel_counts *counts;
    kernel_place *places;
    uint32_t *blocks, *row_tokens;
    kernel_part *parts;
    kernel_merge *merges;
    uint32_t block_count, partial_rows;
} filling;

static void add_part(filling *f, kernel_part part) { f->parts[f->counts->parts++] = part; }

/* How many parts a context of `positions` is cut into: one where it is short, or where the room for partial results is used up. */
static uint32_t parts_of(const filling *f, uint32_t positions)
{
    uint32_t length = f->limits->split_positions;
    if (length == 0 || positions <= length) return 1;
    uint32_t parts = (positions - 1) / length + 1;
    uint64_t rows = f->partial_rows + (uint64_t)parts * f->limits->heads;
    return rows > f->limits->partial_rows || f->counts->merges == f->layout->max_merges ? 1 : parts;
}

static void add_decoding(filling *f, uint32_t token, uint32_t position, uint32_t blocks)
{
    uint32_t parts = parts_of(f, position + 1), length = f->limits->split_positions;
    kernel_part part = {token, 1, position, blocks, 0, position + 1, KERNEL_WHOLE, 0};
    if (parts == 1) {
        add_part(f, part);
        return;
    }
    f->merges[f->counts->merges++] = (kernel_merge){token, f->partial_rows, parts};
    for (uint32_t i = 0; i < parts; i++, f->partial_rows += f->limits->heads) {
        part.from = i * length;
        part.to = i + 1 < parts ? part.from + length : position + 1;
        part.partial = f->partial_rows;
        add_part(f, part);
    }
}

static void add_prefilling(filling *f, const ofl_step_item *item, uint32_t token, uint32_t blocks)
{
    uint32_t each = tokens_a_part(f->limits);
    for (uint32_t t = 0; t < item->token_count; t += each) {
        uint32_t tokens = item->token_count - t < each ? item->token_count - t : each, position = item->first_position + t;
        add_part(f, (kernel_part){token + t, tokens, position, blocks, 0, position + tokens, KERNEL_WHOLE, 0});
    }
}

/* Only the blocks that hold something: those of the positions up to the share's last. */
static ofl_status add_item(filling *f, const ofl_step_item *item)
{
    uint64_t end = (uint64_t)item->first_position + item->token_count;
    uint64_t blocks = (end + f->limits->block_tokens - 1) / f->limits->block_tokens;
    uint32_t token = f->counts->tokens;
    if (item->token_count == 0 || item->token_count > f->limits->tokens - token || blocks > item->block_count ||
        blocks > f->limits->blocks - f->block_count || (item->wants_logits != 0 && f->counts->rows == f->limits->rows))
        return app_fail(OFL_ERROR_ARGUMENT, "step tables: a share of %u tokens from position %u goes beyond their limits",
                        item->token_count, item->first_position);
    for (uint32_t t = 0; t < item->token_count; t++) f->places[token + t] = (kernel_place){item->first_position + t, f->block_count};
    if (item->token_count == 1)
        add_decoding(f, token, item->first_position, f->block_count);
    else
        add_prefilling(f, item, token, f->block_count);
    memcpy(f->blocks + f->block_count, item->blocks, (size_t)blocks * sizeof *item->blocks);
    f->block_count += (uint32_t)blocks;
    f->counts->tokens += item->token_count;
    if (item->wants_logits != 0) f->row_tokens[f->counts->rows++] = f->counts->tokens - 1;
    return OFL_OK;
}

ofl_status kernel_step_fill(const kernel_step_limits *limits, const kernel_step_layout *layout, const ofl_step *step, void *to)
{
    uint8_t *base = to;
    filling f = {.limits = limits,
                 .layout = layout,
                 .counts = (void *)(base + layout->counts),
                 .places = (void *)(base + layout->places),
                 .blocks = (void *)(base + layout->blocks),
                 .row_tokens = (void *)(base + layout->row_tokens),
                 .parts = (void *)(base + layout->parts),
                 .merges = (void *)(base + layout->merges)};
    ofl_status status = OFL_OK;
    *f.counts = (kernel_counts){0};
    if (step->item_count > limits->sequences)
        return app_fail(OFL_ERROR_ARGUMENT, "step tables: %u shares, room for %u", step->item_count, limits->sequences);
    for (uint32_t i = 0; i < step->item_count && status == OFL_OK; i++) status = add_item(&f, &step->items[i]);
    return status;
}

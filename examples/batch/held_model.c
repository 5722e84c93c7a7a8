#include "batch/held_model.h"

#include <stdlib.h>

#include "batch/supports.h"
#include "common/app_error.h"

#define VECTORS_MOST 8u /* of a block: norms and biases */
#define MATRICES 7u

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some"); }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static ofl_status tensor_info(const held_model *h, uint32_t tensor, ofl_tensor_info *out)
{
    *out = (ofl_tensor_info){.struct_size = sizeof *out};
    ofl_status status = ofl_model_tensor_get(h->model, tensor, out);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static void hold(held_model *h, uint32_t tensor, uint64_t row_first, uint64_t row_count)
{
    h->held[h->held_count++] = (weights_held){.tensor = tensor, .row_first = row_first, .row_count = row_count};
}

static void hold_matrices(held_model *h)
{
    for (uint32_t i = 0; i < h->blocks; i++) {
        for (uint32_t k = 0; k < MATRICES; k++) {
            uint64_t rows, columns;
            matrix_size(&h->shape, block_matrices[k], &rows, &columns);
            hold(h, tensor_of(h->model, i, block_matrices[k]), 0, rows);
        }
    }
}

/* Vectors have one row. */
static void hold_vectors(held_model *h)
{
    static const ofl_tensor_role roles[VECTORS_MOST] = {
        OFL_ROLE_ATTN_NORM,   OFL_ROLE_FFN_NORM,    OFL_ROLE_ATTN_Q_NORM, OFL_ROLE_ATTN_K_NORM,
        OFL_ROLE_ATTN_Q_BIAS, OFL_ROLE_ATTN_K_BIAS, OFL_ROLE_ATTN_V_BIAS, OFL_ROLE_OUTPUT_NORM,
    };
    for (uint32_t i = 0; i <= h->blocks; i++) {
        uint32_t block = i < h->blocks ? i : h->shape.block_count;
        for (uint32_t k = 0; k < VECTORS_MOST; k++) {
            uint32_t tensor = tensor_of(h->model, block, roles[k]);
            if (tensor != NO_TENSOR) hold(h, tensor, 0, 1);
        }
    }
}

/* How many blocks are held, and what one of the model's reads. */
static ofl_status count_blocks(held_model *h, uint64_t most_bytes)
{
    const ofl_model_shape *s = &h->shape;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->block_count; i++) {
        for (uint32_t k = 0; k < MATRICES; k++) {
            ofl_tensor_info info;
            ofl_status status = tensor_info(h, tensor_of(h->model, i, block_matrices[k]), &info);
            if (status != OFL_OK) return status;
            h->block_elements += (double)info.elements / s->block_count;
            bytes += info.bytes;
        }
        if (h->blocks == i && (i == 0 || bytes <= most_bytes)) h->blocks++;
    }
    return h->blocks != 0 ? OFL_OK : app_fail(OFL_ERROR_UNSUPPORTED, "measuring: the model has no blocks");
}

static ofl_status hold_all(held_model *h, const held_size *size)
{
    ofl_tensor_info info;
    uint32_t head = tensor_of(h->model, h->shape.block_count, OFL_ROLE_OUTPUT);
    ofl_status status = count_blocks(h, size->block_bytes);
    if (status == OFL_OK) status = tensor_info(h, head, &info);
    if (status != OFL_OK) return status;
    uint64_t rows = smaller(larger(size->head_elements / info.dims[0] / size->head_rows, 1) * size->head_rows, info.row_count);
    h->parts = (uint32_t)smaller(larger(size->head_bytes / (rows * info.row_bytes), 1), info.row_count / rows);
    h->head_elements = (double)rows * (double)info.dims[0];
    h->held = calloc((uint64_t)h->blocks * (MATRICES + VECTORS_MOST) + VECTORS_MOST + h->parts, sizeof *h->held);
    if (h->held == NULL) return no_memory();
    hold_matrices(h);
    for (uint32_t i = 0; i < h->parts; i++) hold(h, head, i * rows, rows);
    hold_vectors(h);
    return OFL_OK;
}

/* Of the cache: a block for each of up to 64 sequences and three for each 32 tokens beyond, or the long contexts of 16. */
static ofl_status make_step(held_model *h)
{
    h->kv_block_count = (uint32_t)larger(64 + ((uint64_t)h->max_tokens / 32 + 1) * 3, 16 * (HELD_CONTEXT / HELD_KV_BLOCK_TOKENS));
    h->items = calloc(larger(h->max_tokens, h->max_rows), sizeof *h->items);
    h->kv_blocks = calloc(h->kv_block_count, sizeof *h->kv_blocks);
    if (h->items == NULL || h->kv_blocks == NULL) return no_memory();
    for (uint32_t i = 0; i < h->kv_block_count; i++) h->kv_blocks[i] = i;
    return OFL_OK;
}

ofl_status held_open(const forward_measure_job *job, const held_size *size, held_model *out)
{
    *out = (held_model){.model = job->model, .max_tokens = job->max_tokens, .max_rows = (uint32_t)smaller(job->max_rows, HELD_ROWS)};
    out->shape.struct_size = sizeof out->shape;
    ofl_status status = ofl_model_shape_get(job->model, &out->shape);
    if (status != OFL_OK) return app_forward(status);
    status = hold_all(out, size);
    return status == OFL_OK ? make_step(out) : status;
}

void held_close(held_model *h)
{
    free(h->held);
    free(h->items);
    free(h->kv_blocks);
    *h = (held_model){0};
}

uint64_t held_bytes(const held_model *h, uint32_t index)
{
    ofl_tensor_info info;
    return tensor_info(h, h->held[index].tensor, &info) == OFL_OK ? h->held[index].row_count * info.row_bytes : 0;
}

ofl_status held_read(const held_model *h, uint32_t index, void *to)
{
    const weights_held *held = &h->held[index];
    ofl_tensor_info info;
    ofl_status status = tensor_info(h, held->tensor, &info);
    if (status != OFL_OK) return status;
    status = ofl_model_tensor_read(h->model, held->tensor, held->row_first * info.row_bytes, held->row_count * info.row_bytes, to);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* Each sequence's own blocks of the cache, and as many of the tokens as it has. */
static uint32_t share_out(const held_model *h, const ofl_compute_run *run)
{
    uint32_t count = 0, kv_at = 0;
    for (uint32_t left = run->tokens; left > 0; count++) {
        uint32_t tokens = count < run->decoding ? 1 : (uint32_t)smaller(run->share_tokens, left);
        uint32_t room = (run->context_tokens + tokens + HELD_KV_BLOCK_TOKENS - 1) / HELD_KV_BLOCK_TOKENS;
        h->items[count] = (ofl_step_item){
            .first_position = run->context_tokens, .token_count = tokens, .block_count = room, .blocks = h->kv_blocks + kv_at};
        kv_at += room;
        left -= tokens;
    }
    return count;
}

void held_step(held_model *h, const ofl_compute_run *run, weights *walk, ofl_step *out, uint32_t *block_out)
{
    *out = (ofl_step){.struct_size = sizeof *out, .items = h->items, .shape = {.struct_size = sizeof out->shape, .tokens = run->tokens}};
    if (run->part == OFL_COMPUTE_HEAD) {
        out->item_count = run->tokens;
        for (uint32_t i = 0; i < run->tokens; i++)
            h->items[i] = (ofl_step_item){.token_count = 1, .wants_logits = 1, .block_count = 1, .blocks = h->kv_blocks};
        weights_seek(walk, h->blocks * MATRICES + h->part_at);
        h->part_at = (h->part_at + 1) % h->parts;
        *block_out = h->shape.block_count;
    } else {
        out->item_count = share_out(h, run);
        weights_seek(walk, h->block_at * MATRICES);
        *block_out = h->block_at;
        h->block_at = (h->block_at + 1) % h->blocks;
    }
}

void held_enliven(float *to, uint64_t count)
{
    uint32_t random = 1;
    for (uint64_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        to[i] = (float)(random >> 8) / (float)(1 << 23) - 1;
    }
}

typedef struct callback { /* its failure is the program's own, in words of its own */
    ofl_status (*run)(void *context, const ofl_compute_run *run);
    void *context;
    ofl_status failed;
} callback;

static ofl_status call(void *context, const ofl_compute_run *run)
{
    callback *c = context;
    c->failed = c->run(c->context, run);
    return c->failed;
}

ofl_status held_measure(const held_model *h, ofl_device *device, ofl_stream *stream, uint32_t token_step,
                        ofl_status (*run)(void *context, const ofl_compute_run *run), void *context, ofl_compute_figures *out)
{
    callback c = {run, context, OFL_OK};
    ofl_compute_probe probe = {.struct_size = sizeof probe,
                               .block_count = h->shape.block_count,
                               .run = call,
                               .context = &c,
                               .stream = stream,
                               .block_elements = h->block_elements,
                               .head_elements = h->head_elements,
                               .max_tokens = h->max_tokens,
                               .max_rows = h->max_rows,
                               .context_tokens = HELD_CONTEXT,
                               .token_step = token_step};
    ofl_status status = ofl_compute_measure(device, &probe, out);
    if (c.failed != OFL_OK) return c.failed;
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

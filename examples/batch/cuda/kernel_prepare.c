/* Checks a launch's args and counts its workgroups. */
#include "batch/cuda/kernel_launch.h"

#include "batch/cpu/expand.h"
#include "common/app_error.h"

static ofl_status grid(kernel_launch *out, kernel_id id, uint64_t rows, uint64_t each, uint64_t shared_bytes)
{
    if (each != 0 && rows > INT32_MAX / each)
        return app_fail(OFL_ERROR_ARGUMENT, "kernel: %llu rows of %llu workgroups are too many", (unsigned long long)rows,
                        (unsigned long long)each);
    out->id = id;
    out->blocks = (uint32_t)(rows * each);
    out->shared_bytes = (uint32_t)shared_bytes;
    return OFL_OK;
}

static uint64_t divide_up(uint64_t count, uint64_t by) { return count / by + (count % by != 0); }

static ofl_status check_blocks(ofl_dtype dtype, uint64_t elements)
{
    if (!expand_knows(dtype)) return app_fail(OFL_ERROR_UNSUPPORTED, "kernel: weights of type %s", ofl_dtype_name(dtype));
    if (elements % ofl_dtype_block_elements(dtype) == 0) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "kernel: %llu elements are no whole blocks of %s", (unsigned long long)elements,
                    ofl_dtype_name(dtype));
}

ofl_status kernel_prepare_embed(const kernel_embed_args *a, kernel_launch *out)
{
    uint64_t strips = divide_up(a->columns, EXPAND_ELEMENTS);
    ofl_status status = check_blocks(a->dtype, a->columns);
    if (status != OFL_OK) return status;
    out->job.embed = (embed_job){*a, ofl_dtype_block_elements(a->dtype), ofl_dtype_block_bits(a->dtype) / 8, (uint32_t)strips};
    return grid(out, KERNEL_ID_embed, a->tokens, strips, sizeof(embed_shared));
}

ofl_status kernel_prepare_expand(const kernel_expand_args *a, kernel_launch *out)
{
    ofl_status status = check_blocks(a->dtype, a->elements);
    if (status != OFL_OK) return status;
    out->job.expand = (expand_job){*a, ofl_dtype_block_elements(a->dtype), ofl_dtype_block_bits(a->dtype) / 8};
    return grid(out, KERNEL_ID_expand, divide_up(a->elements, EXPAND_ELEMENTS), 1, sizeof(expand_shared));
}

ofl_status kernel_prepare_norm(const kernel_norm_args *a, kernel_launch *out)
{
    out->job.norm = (norm_job){*a};
    return grid(out, KERNEL_ID_norm, a->rows, 1, sizeof(norm_shared));
}

ofl_status kernel_prepare_gate(const kernel_gate_args *a, kernel_launch *out)
{
    uint64_t strips = divide_up(a->columns, STRIP_COLUMNS);
    out->job.gate = (gate_job){*a, (uint32_t)strips};
    return grid(out, KERNEL_ID_gate, a->rows, strips, 0);
}

ofl_status kernel_prepare_add(const kernel_add_args *a, kernel_launch *out)
{
    uint64_t strips = divide_up(a->columns, STRIP_COLUMNS);
    out->job.add = (add_job){*a, (uint32_t)strips};
    return grid(out, KERNEL_ID_add, a->rows, strips, 0);
}

ofl_status kernel_prepare_rope(const kernel_rope_args *a, kernel_launch *out)
{
    out->job.rope = (rope_job){*a};
    return grid(out, KERNEL_ID_rope, a->tokens, 1, 0);
}

ofl_status kernel_prepare_turn(const kernel_turn_args *a, kernel_launch *out)
{
    ofl_status status = kernel_supports(a->cache.type, a->cache.dim);
    if (status != OFL_OK) return status;
    if (a->rope_dim % 2 != 0 || a->rope_dim > a->cache.dim)
        return app_fail(OFL_ERROR_ARGUMENT, "kernel: %u rotated elements of a head of %u", a->rope_dim, a->cache.dim);
    out->job.turn = (turn_job){*a};
    return grid(out, KERNEL_ID_turn, a->tokens, (uint64_t)a->heads + 2 * (uint64_t)a->cache.heads, sizeof(turn_shared));
}

static kernel_id attention_of(ofl_kv_type type)
{
    return type == OFL_KV_F32    ? KERNEL_ID_attention_f32
           : type == OFL_KV_F16  ? KERNEL_ID_attention_f16
           : type == OFL_KV_BF16 ? KERNEL_ID_attention_bf16
                                 : KERNEL_ID_attention_q8_0;
}

ofl_status kernel_prepare_attention(const kernel_attention_args *a, kernel_launch *out)
{
    ofl_status status = kernel_supports(a->cache.type, a->cache.dim);
    if (status != OFL_OK) return status;
    if (a->cache.heads == 0 || a->heads % a->cache.heads != 0)
        return app_fail(OFL_ERROR_ARGUMENT, "kernel: %u query heads over %u", a->heads, a->cache.heads);
    uint32_t group = a->heads / a->cache.heads, head_parts = (uint32_t)divide_up(group, KERNEL_ATTENTION_ROWS);
    uint64_t shared = offsetof(attention_shared, rows) + sizeof(float) * KERNEL_ATTENTION_ROWS * a->cache.dim;
    out->job.attention = (attention_job){*a, group, head_parts};
    return grid(out, attention_of(a->cache.type), a->max_parts, (uint64_t)a->cache.heads * head_parts, shared);
}

ofl_status kernel_prepare_merge_parts(const kernel_merge_args *a, kernel_launch *out)
{
    out->job.merge = (merge_job){*a};
    return grid(out, KERNEL_ID_merge, a->max_merges, a->heads, 0);
}

ofl_status kernel_prepare_sample(const kernel_sample_args *a, kernel_launch *out)
{
    if (a->usable == 0) return app_fail(OFL_ERROR_ARGUMENT, "kernel: no token to choose from");
    out->job.sample = (sample_job){*a};
    return grid(out, KERNEL_ID_sample, a->rows, 1, sizeof(sample_shared));
}

#include "batch/contents.h"

#include <stdbool.h>
#include <string.h>

#define SAMPLES_MOST 8u /* of a role */
#define SAMPLE_BYTES 4096u

/* Of `count` tensors the first, the last, and evenly some between. */
static bool is_sampled(uint64_t index, uint64_t count)
{
    if (index == 0) return true;
    uint64_t steps = SAMPLES_MOST - 1;
    return index * steps / (count - 1) != (index - 1) * steps / (count - 1);
}

static ofl_status add_sample(const ofl_model *model, uint32_t tensor, const ofl_tensor_info *info, hash128 *hash)
{
    unsigned char bytes[SAMPLE_BYTES];
    uint64_t count = info->bytes < SAMPLE_BYTES ? info->bytes : SAMPLE_BYTES;
    ofl_status status = ofl_model_tensor_read(model, tensor, (info->bytes - count) / 2, count, bytes);
    if (status != OFL_OK) return app_forward(status);
    *hash = hash128_add(*hash, bytes, (size_t)count);
    return OFL_OK;
}

/* Unused tensors have no part in the answers. */
static ofl_status next_used(const ofl_model *model, uint32_t *tensor, ofl_tensor_info *info)
{
    for (; *tensor < ofl_model_tensor_count(model); ++*tensor) {
        *info = (ofl_tensor_info){.struct_size = sizeof *info};
        ofl_status status = ofl_model_tensor_get(model, *tensor, info);
        if (status != OFL_OK) return app_forward(status);
        if (info->tensor_class != OFL_CLASS_UNUSED) return OFL_OK;
    }
    return OFL_END;
}

ofl_status contents_hash(const ofl_model *model, char hex_out[HASH128_HEX_BYTES])
{
    uint64_t counts[OFL_ROLE_COUNT] = {0}, seen[OFL_ROLE_COUNT] = {0};
    const char *identity = ofl_model_identity(model);
    hash128 hash = hash128_add(HASH128_START, identity, strlen(identity));
    ofl_tensor_info info;
    ofl_status status;
    for (uint32_t i = 0; (status = next_used(model, &i, &info)) == OFL_OK; i++) counts[info.role]++;
    if (status != OFL_END) return status;
    for (uint32_t i = 0; (status = next_used(model, &i, &info)) == OFL_OK; i++) {
        if (is_sampled(seen[info.role]++, counts[info.role])) status = add_sample(model, i, &info, &hash);
        if (status != OFL_OK) return status;
    }
    if (status != OFL_END) return status;
    (void)hash128_hex(hex_out, hash);
    return OFL_OK;
}

/* What a checkpoint's elements stand for: several weights may be packed into one element, and scales are no weights. Bytes are never
 * touched by this. */
#include "model/hf.h"

#include <string.h>

static bool ends(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

static bool is_scale(const char *name)
{
    static const char *const endings[] = {
        ".weight_scale_inv", ".weight_scale", ".weight_scale_2", ".input_scale",       ".scales",
        "_scales",           ".qzeros",       ".g_idx",          ".weight_zero_point", ".weight_shape",
        ".weight_g_idx",     ".absmax",       ".quant_map",      ".nested_absmax",     ".nested_quant_map"};
    for (size_t i = 0; i < OFL_COUNT_OF(endings); i++) {
        if (ends(name, endings[i])) return true;
    }
    return false;
}

/* Bits of a packed weight: from the config, 4 where it says nothing. */
static ofl_status read_bits(const ofl_hf_config *config, uint32_t *bits_out)
{
    const cJSON *quantisation = ofl_hf_find(config, "quantization_config");
    const cJSON *bits = cJSON_GetObjectItemCaseSensitive(quantisation, "bits");
    const cJSON *group;
    if (bits == NULL) bits = cJSON_GetObjectItemCaseSensitive(quantisation, "w_bit");
    cJSON_ArrayForEach (group, cJSON_GetObjectItemCaseSensitive(quantisation, "config_groups")) {
        const cJSON *weights = cJSON_GetObjectItemCaseSensitive(group, "weights");
        if (bits == NULL) bits = cJSON_GetObjectItemCaseSensitive(weights, "num_bits");
    }
    *bits_out = 4;
    if (bits != NULL && (!ofl_hf_number(bits, bits_out) || *bits_out < 1 || *bits_out > 16))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: quantization_config: bits from 1 to 16 are needed", config->path);
    return OFL_OK;
}

/* Weights in the bits of a packed tensor, or 0 when it is not packed. */
static uint64_t packed_weights(const ofl_tensor *tensor, const ofl_hf_config *config, uint32_t bits)
{
    bool words = tensor->dtype == OFL_DTYPE_I32 && (ends(tensor->name, ".qweight") || ends(tensor->name, ".weight_packed"));
    bool blocks = tensor->dtype == OFL_DTYPE_U8 && ends(tensor->name, "_blocks");
    bool bytes = tensor->dtype == OFL_DTYPE_U8 && ends(tensor->name, ".weight") && ofl_hf_find(config, "quantization_config") != NULL;
    if (words) return tensor->bytes / bits * 8 + tensor->bytes % bits * 8 / bits;
    return blocks || bytes ? tensor->bytes * 2 : 0;
}

ofl_status ofl_hf_count_parameters(ofl_model *model, const ofl_hf_config *config)
{
    uint32_t bits = 4;
    uint64_t parameters = 0, packed = 0;
    ofl_status status = read_bits(config, &bits);
    for (uint64_t i = 0; i < model->tensor_count && status == OFL_OK; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (ofl_tensor_is_buffer(model, tensor) || tensor->dropped || is_scale(tensor->name)) continue;
        uint64_t elements = packed_weights(tensor, config, bits);
        packed += elements > 0;
        if (elements == 0) elements = ofl_tensor_elements(tensor);
        if (!ofl_add_u64(parameters, elements, &parameters))
            return ofl_fail(OFL_ERROR_OVERFLOW, "model %s: its elements overflow 64 bits", model->path);
    }
    if (status != OFL_OK) return status;
    model->shape.parameter_count = parameters;
    if (packed == 0) return OFL_OK;
    return ofl_model_add_note(
        model, "%llu tensors hold packed weights: parameters are counted unpacked, without scales; bytes are those of the files",
        (unsigned long long)packed);
}

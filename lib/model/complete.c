/* The last step of making a model: tie, order, counts, identity. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static ofl_tensor *first_of_role(ofl_model *model, ofl_tensor_role role)
{
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        ofl_tensor *tensor = &model->tensors[i];
        if (tensor->role == role && tensor->tensor_class != OFL_CLASS_UNUSED && !tensor->dropped) return tensor;
    }
    return NULL;
}

ofl_status ofl_model_resolve_tie(ofl_model *model)
{
    ofl_tensor *embedding = first_of_role(model, OFL_ROLE_EMBEDDING);
    ofl_tensor *output = first_of_role(model, OFL_ROLE_OUTPUT);
    const ofl_tensor *rows = output != NULL ? output : embedding;
    model->shape.tied_output = output == NULL && embedding != NULL;
    if (model->shape.tied_output) {
        embedding->tensor_class = OFL_CLASS_DENSE;
        embedding->also_lookup = true;
        embedding->block = (int32_t)model->shape.block_count;
    }
    if (rows != NULL && rows->n_dims == 2 && rows->dims[1] <= UINT32_MAX) model->shape.vocab_size = (uint32_t)rows->dims[1];
    return OFL_OK;
}

static int compare_names(const void *a, const void *b, void *context)
{
    const ofl_tensor *tensors = context;
    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

ofl_status ofl_model_check_names(ofl_model *model, uint32_t **by_name_out)
{
    uint32_t *order = ofl_alloc(model->tensor_count, sizeof *order);
    if (order == NULL) return ofl_model_out_of_memory(model);
    for (uint32_t i = 0; i < model->tensor_count; i++) order[i] = i;
    qsort_r(order, (size_t)model->tensor_count, sizeof *order, compare_names, model->tensors);
    for (uint64_t i = 1; i < model->tensor_count; i++) {
        const ofl_tensor *a = &model->tensors[order[i - 1]], *b = &model->tensors[order[i]];
        if (strcmp(a->name, b->name) != 0) continue;
        ofl_status status = a->file != b->file && a->file != OFL_NO_FILE && b->file != OFL_NO_FILE
                                ? ofl_fail(OFL_ERROR_FORMAT, "model %s: tensor %s is in %s and in %s", model->path, a->name,
                                           model->files[a->file].path, model->files[b->file].path)
                                : ofl_fail(OFL_ERROR_FORMAT, "model %s: two tensors are named %s", model->path, a->name);
        ofl_free(order);
        return status;
    }
    model->names_checked = true;
    if (by_name_out != NULL) *by_name_out = order;
    else ofl_free(order);
    return OFL_OK;
}

/* A tied embedding is executed as the head. */
static unsigned place_in_block(const ofl_tensor *tensor)
{
    return tensor->role == OFL_ROLE_EMBEDDING && tensor->also_lookup ? OFL_ROLE_OUTPUT : tensor->role;
}

static int compare_execution(const void *left, const void *right, void *context)
{
    const ofl_tensor *a = left, *b = right;
    bool as_added = *(const bool *)context;
    bool unused_a = a->tensor_class == OFL_CLASS_UNUSED, unused_b = b->tensor_class == OFL_CLASS_UNUSED;
    if (unused_a != unused_b) return unused_a - unused_b;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    unsigned place_a = place_in_block(a), place_b = place_in_block(b);
    if (!as_added && place_a != place_b) return place_a < place_b ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static bool in_order(const ofl_model *model, bool as_added)
{
    for (uint64_t i = 1; i < model->tensor_count; i++) {
        if (compare_execution(&model->tensors[i - 1], &model->tensors[i], &as_added) > 0) return false;
    }
    return true;
}

static void drop(ofl_model *model)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        if (!model->tensors[i].dropped) model->tensors[kept++] = model->tensors[i];
    }
    model->tensor_count = kept;
}

static void number(ofl_model *model)
{
    bool as_added = model->format == OFL_FORMAT_BUILDER || model->format == OFL_FORMAT_DESCRIPTION;
    if (!in_order(model, as_added))
        qsort_r(model->tensors, (size_t)model->tensor_count, sizeof *model->tensors, compare_execution, &as_added);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (tensor->role == OFL_ROLE_EMBEDDING && tensor->also_lookup && tensor->tensor_class == OFL_CLASS_DENSE) model->tied_tensor = i;
    }
}

static ofl_status count(ofl_model *model)
{
    uint64_t parameters = 0, total = 0;
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (!ofl_add_u64(total, tensor->bytes, &total))
            return ofl_fail(OFL_ERROR_OVERFLOW, "model %s: the bytes of all tensors overflow 64 bits", model->path);
        if (ofl_tensor_is_buffer(model, tensor)) continue;
        if (!ofl_add_u64(parameters, ofl_tensor_elements(tensor), &parameters))
            return ofl_fail(OFL_ERROR_OVERFLOW, "model %s: its elements overflow 64 bits", model->path);
    }
    if (model->shape.parameter_count == 0) model->shape.parameter_count = parameters;
    return OFL_OK;
}

/* Never dropped in silence. */
static ofl_status note_unused(ofl_model *model)
{
    uint64_t bytes = 0, unused = 0;
    ofl_tensor_info first = {.struct_size = sizeof first};
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (tensor->tensor_class != OFL_CLASS_UNUSED) continue;
        if (unused == 0) (void)ofl_model_tensor_get(model, (uint32_t)i, &first);
        bytes += tensor->bytes; /* the sum of all was checked */
        unused++;
    }
    if (unused == 0) return OFL_OK;
    return ofl_model_add_note(model, "no step reads these, so they take no memory: %s %s%s (%llu in all, %s)", first.unused_why, first.name,
                              unused > 1 ? ", …" : "", (unsigned long long)unused, ofl_bytes_text(bytes).text);
}

static ofl_status check_blocks(const ofl_model *model)
{
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (tensor->tensor_class != OFL_CLASS_UNUSED &&
            (tensor->block < OFL_BLOCK_INPUT || tensor->block > (int64_t)model->shape.block_count))
            return ofl_fail(OFL_ERROR_FORMAT, "model %s: tensor %s is of block %d, but the model has %u blocks", model->path, tensor->name,
                            (int)tensor->block, (unsigned)model->shape.block_count);
    }
    return OFL_OK;
}

static void add_double(ofl_sha256 *hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    ofl_sha256_add_u64(hash, bits);
}

static void add_shape(ofl_sha256 *hash, const ofl_model_shape *shape)
{
    const uint64_t whole[] = {shape->block_count,          shape->hidden_size,       shape->head_count,   shape->head_count_kv,
                              shape->head_dim_k,           shape->head_dim_v,        shape->ffn_size,     shape->vocab_size,
                              shape->expert_count,         shape->expert_used_count, shape->tied_output,  shape->trained_context_tokens,
                              shape->parameter_count,      shape->rope_pairing,      shape->rope_scaling, shape->rope_dim,
                              shape->rope_original_context};
    const double real[] = {shape->norm_epsilon,          shape->rope_freq_base,
                           shape->rope_factor,           shape->rope_low_freq_factor,
                           shape->rope_high_freq_factor, shape->rope_attention_factor,
                           shape->rope_beta_fast,        shape->rope_beta_slow,
                           shape->attention_scale,       shape->attention_softcap,
                           shape->final_softcap,         shape->embedding_scale,
                           shape->residual_scale,        shape->logit_scale};
    for (size_t i = 0; i < OFL_COUNT_OF(whole); i++) ofl_sha256_add_u64(hash, whole[i]);
    for (size_t i = 0; i < OFL_COUNT_OF(real); i++) add_double(hash, real[i]);
}

static void add_tensor(ofl_sha256 *hash, const ofl_tensor *tensor)
{
    ofl_sha256_add_text(hash, tensor->name);
    uint64_t kinds = tensor->dtype | (uint64_t)tensor->tensor_class << 8 | (uint64_t)tensor->role << 16 | (uint64_t)tensor->n_dims << 24 |
                     (uint64_t)tensor->also_lookup << 32;
    const uint64_t fields[] = {kinds, (uint64_t)tensor->file << 32 | (uint32_t)tensor->block,
                               tensor->file == OFL_NO_FILE ? 0 : tensor->at.offset};
    for (size_t i = 0; i < OFL_COUNT_OF(fields); i++) ofl_sha256_add_u64(hash, fields[i]);
    for (unsigned d = 0; d < tensor->n_dims; d++) ofl_sha256_add_u64(hash, tensor->dims[d]);
}

/* Not the name nor the path: a folder that is moved or renamed stays the same model. */
static void identify(ofl_model *model)
{
    ofl_sha256 hash;
    ofl_sha256_init(&hash);
    ofl_sha256_add_text(&hash, "ofload.model.identity/1");
    ofl_sha256_add_text(&hash, model->architecture);
    add_shape(&hash, &model->shape);
    for (uint32_t i = 0; i < model->shape.block_count; i++) {
        const ofl_kv_layer *layer = &model->kv[i];
        const uint64_t fields[] = {layer->kind,       layer->head_count_kv, layer->k_elements,
                                   layer->v_elements, layer->window_tokens, layer->state_bytes};
        for (size_t f = 0; f < OFL_COUNT_OF(fields); f++) ofl_sha256_add_u64(&hash, fields[f]);
    }
    ofl_sha256_add_u64(&hash, model->tensor_count);
    for (uint64_t i = 0; i < model->tensor_count; i++) add_tensor(&hash, &model->tensors[i]);
    ofl_sha256_finish_hex(&hash, model->identity);
}

ofl_status ofl_model_complete(ofl_model *model)
{
    drop(model);
    if (model->tensor_count == 0) return ofl_fail(OFL_ERROR_FORMAT, "model %s: no tensors", model->path);
    ofl_status status = model->names_checked ? OFL_OK : ofl_model_check_names(model, NULL);
    if (status == OFL_OK) status = check_blocks(model);
    if (status == OFL_OK) status = count(model);
    if (status == OFL_OK) status = note_unused(model);
    if (status != OFL_OK) return status;
    number(model);
    model->shape.struct_size = sizeof model->shape;
    identify(model);
    return OFL_OK;
}

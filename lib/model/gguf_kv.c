/* What the keys say about each layer's cache: windows, latent vectors, shared caches, recurrent states. */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

typedef struct kv_keys {
    ofl_model *model;
    const ofl_gguf_metadata *metadata;
    char text[256];
    uint32_t window, chunked, k_swa, v_swa;          /* sliding layers */
    uint32_t latent_rank, latent_rope, indexer;      /* latent attention */
    uint32_t shared, interval;                       /* layers */
    uint32_t conv, inner, state, groups, short_conv; /* recurrent layers */
    uint32_t wkv;
} kv_keys;

static const char *key(kv_keys *at, const char *name)
{
    (void)snprintf(at->text, sizeof at->text, "%s.%s", at->model->architecture, name);
    return at->text;
}

static bool is_architecture(const kv_keys *at, const char *name) { return strcmp(at->model->architecture, name) == 0; }

static ofl_status read_keys(kv_keys *at)
{
    const struct {
        const char *name;
        uint32_t *out;
    } fields[] = {{"attention.sliding_window", &at->window},
                  {"attention.chunk_size", &at->chunked},
                  {"attention.key_length_swa", &at->k_swa},
                  {"attention.value_length_swa", &at->v_swa},
                  {"attention.kv_lora_rank", &at->latent_rank},
                  {"rope.dimension_count", &at->latent_rope},
                  {"attention.indexer.key_length", &at->indexer},
                  {"attention.shared_kv_layers", &at->shared},
                  {"full_attention_interval", &at->interval},
                  {"ssm.conv_kernel", &at->conv},
                  {"ssm.inner_size", &at->inner},
                  {"ssm.state_size", &at->state},
                  {"ssm.group_count", &at->groups},
                  {"shortconv.l_cache", &at->short_conv},
                  {"wkv.head_size", &at->wkv}};
    at->k_swa = at->model->shape.head_dim_k;
    at->v_swa = at->model->shape.head_dim_v;
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < OFL_COUNT_OF(fields) && status == OFL_OK; i++)
        status = ofl_gguf_get_u32(at->metadata, key(at, fields[i].name), fields[i].out);
    if (status != OFL_OK) return status;
    if (at->latent_rank > 0 && at->latent_rope == 0)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s is missing, which latent attention needs", at->metadata->file.path,
                        key(at, "rope.dimension_count"));
    if (is_architecture(at, "mamba") || is_architecture(at, "jamba")) at->groups = 0; /* the convolution sees the inner vector only */
    return OFL_OK;
}

/* Bytes of one layer's fixed state: recurrent part in float32, convolution part in 16 bits. */
static uint64_t state_bytes(const kv_keys *at)
{
    uint64_t hidden = at->model->shape.hidden_size, bytes = 0, channels, width;
    if (at->short_conv > 0) return ofl_mul_u64((uint64_t)(at->short_conv - 1) * hidden, 2, &bytes) ? bytes : UINT64_MAX;
    if (at->wkv > 0) return ofl_mul_u64(hidden * at->wkv, 4, &bytes) && ofl_add_u64(bytes, 2 * hidden * 4, &bytes) ? bytes : UINT64_MAX;
    channels = (uint64_t)at->groups * at->state;
    width = at->conv > 0 ? at->conv - 1 : 0;
    if (!ofl_mul_u64((uint64_t)at->inner * at->state, 4, &bytes)) return UINT64_MAX;
    if (channels > UINT64_MAX / 4 - at->inner || !ofl_mul_u64((at->inner + 2 * channels) * 2, width, &channels)) return UINT64_MAX;
    return ofl_add_u64(bytes, channels, &bytes) ? bytes : UINT64_MAX;
}

/* Every n-th layer sees all tokens where a file gives a window but no pattern; 0: none does. */
static uint32_t usual_period(const kv_keys *at)
{
    static const struct {
        const char *architecture;
        uint32_t period;
    } known[] = {{"gemma2", 2}, {"gemma3", 6}, {"gemma3n", 5}, {"gpt-oss", 2}, {"cohere2", 4}, {"llama4", 4}, {"olmo2", 4}, {"exaone4", 4}};
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        if (is_architecture(at, known[i].architecture)) return known[i].period;
    }
    return 0;
}

/* flags: one per stored block, 1 where the layer slides. */
static ofl_status read_pattern(kv_keys *at, uint32_t *flags, uint32_t stored)
{
    int given = 0;
    ofl_status status = ofl_gguf_get_layers(at->metadata, key(at, "attention.sliding_window_pattern"), stored, flags, &given);
    if (status != OFL_OK || given == 2) return status;
    uint32_t period = given == 1 ? flags[0] : usual_period(at);
    for (uint32_t i = 0; i < stored; i++) flags[i] = period == 0 || i % period < period - 1;
    if (given == 0 && period == 0)
        return ofl_model_add_note(at->model, "a sliding window of %u tokens without a pattern: every layer is taken to keep no more",
                                  (unsigned)at->window);
    return OFL_OK;
}

static ofl_status apply_windows(kv_keys *at)
{
    ofl_model *model = at->model;
    uint32_t stored = model->shape.block_count + model->prediction_blocks;
    bool chunks = is_architecture(at, "llama4");
    if (chunks && at->window == 0) at->window = at->chunked > 0 ? at->chunked : 8192;
    if (at->window == 0) return OFL_OK;
    uint32_t *flags = ofl_alloc(stored, sizeof *flags);
    if (flags == NULL) return ofl_model_out_of_memory(model);
    ofl_status status = read_pattern(at, flags, stored);
    for (uint32_t i = 0; i < model->shape.block_count && status == OFL_OK; i++) {
        ofl_kv_layer *layer = &model->kv[i];
        if (flags[i] == 0 || layer->kind != OFL_KV_FULL) continue;
        layer->kind = chunks ? OFL_KV_CHUNKED : OFL_KV_SLIDING;
        layer->window_tokens = at->window;
        layer->k_elements = (uint64_t)layer->head_count_kv * at->k_swa;
        layer->v_elements = (uint64_t)layer->head_count_kv * at->v_swa;
    }
    ofl_free(flags);
    return status;
}

static void set_layer(const kv_keys *at, ofl_kv_layer *layer, uint32_t index, uint32_t heads)
{
    const ofl_model_shape *shape = &at->model->shape;
    bool linear = at->interval > 0 && (index + 1) % at->interval != 0;
    layer->head_count_kv = heads;
    layer->k_elements = (uint64_t)heads * shape->head_dim_k;
    layer->v_elements = (uint64_t)heads * shape->head_dim_v;
    if (heads == 0 || linear) {
        *layer = (ofl_kv_layer){.struct_size = sizeof *layer, .kind = OFL_KV_NONE};
    } else if (at->latent_rank > 0) {
        layer->kind = OFL_KV_LATENT;
        layer->head_count_kv = 1;
        layer->k_elements = (uint64_t)at->latent_rank + at->latent_rope + at->indexer;
        layer->v_elements = 0;
    }
}

/* Layers that are neither attention nor recurrent keep nothing: nemotron_h names them by a feed-forward width of their own. */
static ofl_status apply_states(kv_keys *at)
{
    ofl_model *model = at->model;
    uint32_t stored = model->shape.block_count + model->prediction_blocks;
    uint64_t bytes = state_bytes(at);
    bool everywhere = is_architecture(at, "falcon-h1");
    if (bytes == UINT64_MAX) return ofl_fail(OFL_ERROR_OVERFLOW, "%s: the recurrent state overflows 64 bits", at->metadata->file.path);
    if (bytes == 0) return OFL_OK;
    uint32_t *widths = ofl_alloc(stored, sizeof *widths);
    if (widths == NULL) return ofl_model_out_of_memory(model);
    int given = 0;
    ofl_status status = is_architecture(at, "nemotron_h") || is_architecture(at, "nemotron_h_moe")
                            ? ofl_gguf_get_layers(at->metadata, key(at, "feed_forward_length"), stored, widths, &given)
                            : OFL_OK;
    for (uint32_t i = 0; i < model->shape.block_count && status == OFL_OK; i++) {
        ofl_kv_layer *layer = &model->kv[i];
        if (everywhere || (layer->kind == OFL_KV_NONE && widths[i] == 0)) layer->state_bytes = bytes;
    }
    ofl_free(widths);
    return status;
}

static ofl_status apply_shared(const kv_keys *at)
{
    uint32_t blocks = at->model->shape.block_count;
    if (at->shared >= blocks) return ofl_fail(OFL_ERROR_FORMAT, "%s: more layers share a cache than there are", at->metadata->file.path);
    for (uint32_t i = blocks - at->shared; i < blocks; i++) at->model->kv[i].kind = OFL_KV_SHARED;
    return OFL_OK;
}

ofl_status ofl_gguf_read_kv(ofl_model *model, const ofl_gguf_metadata *metadata, const uint32_t *kv_heads)
{
    kv_keys at = {.model = model, .metadata = metadata};
    ofl_status status = read_keys(&at);
    if (status == OFL_OK) status = ofl_model_make_kv(model);
    if (status != OFL_OK) return status;
    for (uint32_t i = 0; i < model->shape.block_count; i++) set_layer(&at, &model->kv[i], i, kv_heads[i]);
    status = apply_windows(&at);
    if (status == OFL_OK) status = apply_states(&at);
    if (status == OFL_OK && at.shared > 0) status = apply_shared(&at);
    if (status == OFL_OK && at.latent_rank > 0)
        status = ofl_model_add_note(model,
                                    "latent attention: the KV cache is sized as the compressed vector, %u elements a token and layer",
                                    (unsigned)(at.latent_rank + at.latent_rope + at.indexer));
    return status;
}

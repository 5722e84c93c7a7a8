/* What each layer keeps, from config.json: first its kind, then its sizes. */
#include "model/hf.h"

#include <string.h>

/* A layer may keep tokens, a state, or both. */
typedef struct layer_plan {
    ofl_kv_kind kind;
    bool state;
} layer_plan;

typedef struct kv_fields {
    uint32_t window, chunk, max_window_layers, period, interval, attention_period, attention_offset;
    uint32_t latent_rank, latent_rope, indexer, shared, full_heads, full_dim;
    bool use_window;
    uint64_t state_bytes;
} kv_fields;

static ofl_status refuse(const ofl_hf_config *config, const char *key, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\": %s", config->path, key, why);
}

static ofl_status read_fields(const ofl_model *model, const ofl_hf_config *config, kv_fields *out)
{
    bool qwen = ofl_hf_is(config, "qwen"), pattern = cJSON_IsNumber(ofl_hf_find(config, "sliding_window_pattern|_sliding_window_pattern"));
    *out = (kv_fields){.use_window = !qwen};
    out->max_window_layers = qwen ? model->shape.block_count : 0;
    const struct {
        const char *keys;
        uint32_t *out;
    } fields[] = {{"sliding_window", &out->window},
                  {"attention_chunk_size", &out->chunk},
                  {"max_window_layers", qwen ? &out->max_window_layers : NULL},
                  {"sliding_window_pattern|_sliding_window_pattern", pattern ? &out->period : NULL},
                  {"full_attention_interval", &out->interval},
                  {"attn_layer_period", &out->attention_period},
                  {"attn_layer_offset", &out->attention_offset},
                  {"kv_lora_rank", &out->latent_rank},
                  {"qk_rope_head_dim", &out->latent_rope},
                  {"index_head_dim", &out->indexer},
                  {"num_kv_shared_layers", &out->shared},
                  {"num_global_key_value_heads", &out->full_heads},
                  {"global_head_dim", &out->full_dim}};
    ofl_status status = ofl_hf_get_bool(config, "use_sliding_window", &out->use_window);
    for (size_t i = 0; i < OFL_COUNT_OF(fields) && status == OFL_OK; i++) {
        if (fields[i].out != NULL) status = ofl_hf_get_u32(config, fields[i].keys, fields[i].out);
    }
    if (out->interval == 0 && (ofl_hf_is(config, "qwen3_next") || ofl_hf_is(config, "qwen3_5"))) out->interval = 4;
    return status;
}

/* Multiplies up to four numbers; UINT64_MAX when that overflows. */
static uint64_t product(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t out;
    return ofl_mul_u64(a, b, &out) && ofl_mul_u64(out, c, &out) && ofl_mul_u64(out, d, &out) ? out : UINT64_MAX;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t out;
    return ofl_add_u64(a, b, &out) ? out : UINT64_MAX;
}

/* State-space layers: heads of the second kind, or one wide vector of the first. */
static ofl_status read_mamba_state(const ofl_model *model, const ofl_hf_config *config, uint64_t *bytes_out)
{
    uint32_t heads = 0, head_dim = 0, width = 0, state = 0, groups = 0, kernel = 0, expand = 0;
    bool second = ofl_hf_is(config, "mamba2"), automatic = cJSON_IsString(ofl_hf_find(config, "mamba_d_head"));
    const struct {
        const char *keys;
        uint32_t *out;
    } fields[] = {{"mamba_num_heads|n_mamba_heads|mamba_n_heads", &heads},
                  {"mamba_head_dim|mamba_headdim|mamba_d_head", automatic ? NULL : &head_dim},
                  {"mamba_d_ssm", &width},
                  {"ssm_state_size|mamba_d_state|state_size", &state},
                  {"n_groups|mamba_ngroups|mamba_n_groups", &groups},
                  {"conv_kernel|mamba_d_conv", &kernel},
                  {"mamba_expand|expand", &expand}};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < OFL_COUNT_OF(fields) && status == OFL_OK; i++) {
        if (fields[i].out != NULL) status = ofl_hf_get_u32(config, fields[i].keys, fields[i].out);
    }
    if (status != OFL_OK || state == 0) return status;
    uint64_t inner = width > 0                   ? width
                     : heads > 0 && head_dim > 0 ? (uint64_t)heads * head_dim
                                                 : (uint64_t)expand * model->shape.hidden_size;
    uint64_t channels = heads > 0 || second ? sum(inner, product(2, groups, state, 1)) : inner;
    *bytes_out = sum(product(inner, state, 4, 1), product(kernel > 0 ? kernel - 1 : 0, channels, 2, 1));
    return OFL_OK;
}

/* Gated linear attention as qwen3_next has it. */
static ofl_status read_linear_state(const ofl_hf_config *config, uint64_t *bytes_out)
{
    uint32_t values = 0, keys = 0, key_dim = 0, value_dim = 0, kernel = 0;
    const struct {
        const char *keys;
        uint32_t *out;
    } fields[] = {{"linear_num_value_heads", &values},
                  {"linear_num_key_heads", &keys},
                  {"linear_key_head_dim", &key_dim},
                  {"linear_value_head_dim", &value_dim},
                  {"linear_conv_kernel_dim", &kernel}};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < OFL_COUNT_OF(fields) && status == OFL_OK; i++) status = ofl_hf_get_u32(config, fields[i].keys, fields[i].out);
    if (status != OFL_OK || values == 0) return status;
    uint64_t channels = sum(product(2, keys, key_dim, 1), product(values, value_dim, 1, 1));
    *bytes_out = sum(product(values, key_dim, value_dim, 4), product(kernel > 0 ? kernel - 1 : 0, channels, 2, 1));
    return OFL_OK;
}

static ofl_status read_state(const ofl_model *model, const ofl_hf_config *config, kv_fields *fields)
{
    uint32_t short_conv = 0;
    ofl_status status = ofl_hf_get_u32(config, "conv_L_cache", &short_conv);
    if (status == OFL_OK) status = read_linear_state(config, &fields->state_bytes);
    if (status == OFL_OK && fields->state_bytes == 0) status = read_mamba_state(model, config, &fields->state_bytes);
    if (short_conv > 0) fields->state_bytes = product(short_conv - 1, model->shape.hidden_size, 2, 1);
    if (status == OFL_OK && fields->state_bytes == UINT64_MAX)
        return ofl_fail(OFL_ERROR_OVERFLOW, "%s: the recurrent state overflows 64 bits", config->path);
    return status;
}

static ofl_status kind_by_name(const ofl_hf_config *config, const cJSON *item, layer_plan *out)
{
    static const struct {
        const char *name;
        layer_plan plan;
    } known[] = {{"full_attention", {OFL_KV_FULL, false}},
                 {"attention", {OFL_KV_FULL, false}},
                 {"global_attention", {OFL_KV_FULL, false}},
                 {"sliding_attention", {OFL_KV_SLIDING, false}},
                 {"local_attention", {OFL_KV_SLIDING, false}},
                 {"chunked_attention", {OFL_KV_CHUNKED, false}},
                 {"linear_attention", {OFL_KV_NONE, true}},
                 {"mamba", {OFL_KV_NONE, true}},
                 {"mamba2", {OFL_KV_NONE, true}},
                 {"conv", {OFL_KV_NONE, true}},
                 {"hybrid", {OFL_KV_FULL, true}},
                 {"mlp", {OFL_KV_NONE, false}},
                 {"moe", {OFL_KV_NONE, false}}};
    for (size_t i = 0; i < OFL_COUNT_OF(known) && cJSON_IsString(item); i++) {
        if (strcmp(item->valuestring, known[i].name) != 0) continue;
        *out = known[i].plan;
        return OFL_OK;
    }
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: a layer of type \"%s\" is not known", config->path,
                    cJSON_IsString(item) ? item->valuestring : "?");
}

static ofl_status plan_by_names(const ofl_hf_config *config, const cJSON *names, layer_plan *plan, uint32_t blocks)
{
    uint32_t i = 0;
    const cJSON *item;
    if (!cJSON_IsArray(names) || cJSON_GetArraySize(names) != (int)blocks)
        return refuse(config, names->string, "one entry for each layer is needed");
    cJSON_ArrayForEach (item, names) {
        ofl_status status = kind_by_name(config, item, &plan[i++]);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

/* "M-M*-": state, feed-forward alone, attention; E: experts alone. */
static ofl_status plan_by_letters(const ofl_hf_config *config, const char *letters, layer_plan *plan, uint32_t blocks)
{
    if (strlen(letters) != blocks || strspn(letters, "M*-E") != blocks)
        return refuse(config, "hybrid_override_pattern", "one of M * - E for each layer is needed");
    for (uint32_t i = 0; i < blocks; i++) plan[i] = (layer_plan){letters[i] == '*' ? OFL_KV_FULL : OFL_KV_NONE, letters[i] == 'M'};
    return OFL_OK;
}

/* The layers listed have attention, all others a state. */
static ofl_status plan_by_indices(const ofl_hf_config *config, const cJSON *indices, layer_plan *plan, uint32_t blocks)
{
    const cJSON *item;
    for (uint32_t i = 0; i < blocks; i++) plan[i] = (layer_plan){OFL_KV_NONE, true};
    cJSON_ArrayForEach (item, indices) {
        uint32_t index = 0;
        if (!ofl_hf_number(item, &index) || index >= blocks) return refuse(config, indices->string, "numbers of layers are needed");
        plan[index] = (layer_plan){OFL_KV_FULL, false};
    }
    return OFL_OK;
}

/* Every n-th layer is full where a family's config gives a window but no list; 0: no layer is. */
static uint32_t usual_period(const ofl_hf_config *config)
{
    static const struct {
        const char *model_type;
        uint32_t period;
    } known[] = {{"gemma2", 2}, {"gemma3n", 5}, {"gemma3", 6}, {"gemma4", 6}, {"gpt_oss", 2}, {"cohere2", 4}, {"exaone4", 4}, {"olmo3", 4}};
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        if (ofl_hf_is(config, known[i].model_type)) return known[i].period;
    }
    return 0;
}

static void plan_windows(const ofl_hf_config *config, const kv_fields *fields, layer_plan *plan, uint32_t blocks)
{
    const char *letters = ofl_hf_get_text(config, "sliding_window_pattern");
    size_t count = strspn(letters, "LG");
    uint32_t period = fields->period > 0 ? fields->period : usual_period(config);
    if (fields->window == 0 || !fields->use_window) return;
    for (uint32_t i = 0; i < blocks; i++) {
        bool slides = count > 0 ? letters[i % count] == 'L' : period > 0 ? (i + 1) % period != 0 : i >= fields->max_window_layers;
        if (slides) plan[i].kind = OFL_KV_SLIDING;
    }
}

static void plan_chunks(const ofl_hf_config *config, layer_plan *plan, uint32_t blocks)
{
    const cJSON *rotated = ofl_hf_find(config, "no_rope_layers");
    bool given = cJSON_IsArray(rotated) && cJSON_GetArraySize(rotated) == (int)blocks;
    const cJSON *item = given ? rotated->child : NULL;
    for (uint32_t i = 0; i < blocks; i++) {
        bool chunked = item != NULL ? cJSON_IsNumber(item) && item->valuedouble != 0 : (i + 1) % 4 != 0;
        if (chunked) plan[i].kind = OFL_KV_CHUNKED;
        if (item != NULL) item = item->next;
    }
}

static ofl_status plan_layers(const ofl_hf_config *config, const kv_fields *fields, layer_plan *plan, uint32_t blocks)
{
    const char *letters = ofl_hf_get_text(config, "hybrid_override_pattern");
    const cJSON *names = ofl_hf_find(config, "layer_types|layers_block_type"),
                *indices = ofl_hf_find(config, "full_attn_idxs|attn_layer_indices");
    const cJSON *unknown = ofl_hf_find(config, "block_types|linear_attn_config|attn_type_list");
    bool recurrent = ofl_hf_is(config, "mamba") || ofl_hf_is(config, "falcon_mamba"), both = ofl_hf_is(config, "falcon_h1");
    if (letters[0] != '\0') return plan_by_letters(config, letters, plan, blocks);
    if (names != NULL) return plan_by_names(config, names, plan, blocks);
    if (indices != NULL) return plan_by_indices(config, indices, plan, blocks);
    if (unknown != NULL)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: \"%s\": layers of these kinds cannot be sized", config->path, unknown->string);
    for (uint32_t i = 0; i < blocks; i++) {
        bool attention = fields->attention_period > 0 ? i % fields->attention_period == fields->attention_offset
                         : fields->interval > 0       ? (i + 1) % fields->interval == 0
                                                      : !recurrent;
        plan[i] = (layer_plan){attention ? OFL_KV_FULL : OFL_KV_NONE, !attention || both};
    }
    if (fields->attention_period > 0 || fields->interval > 0 || recurrent) return OFL_OK;
    if (fields->chunk > 0 && ofl_hf_is(config, "llama4")) plan_chunks(config, plan, blocks);
    else plan_windows(config, fields, plan, blocks);
    return OFL_OK;
}

static void apply(ofl_kv_layer *layer, const layer_plan *plan, const kv_fields *fields)
{
    layer->kind = plan->kind;
    layer->window_tokens = plan->kind == OFL_KV_SLIDING ? fields->window : plan->kind == OFL_KV_CHUNKED ? fields->chunk : 0;
    if (layer->window_tokens == 0 && (plan->kind == OFL_KV_SLIDING || plan->kind == OFL_KV_CHUNKED)) layer->kind = OFL_KV_FULL;
    if (plan->state) layer->state_bytes = fields->state_bytes;
    if (layer->kind == OFL_KV_NONE) {
        layer->head_count_kv = 0;
        layer->k_elements = layer->v_elements = 0;
    } else if (fields->latent_rank > 0) {
        if (layer->kind == OFL_KV_FULL) layer->kind = OFL_KV_LATENT;
        layer->head_count_kv = 1;
        layer->k_elements = (uint64_t)fields->latent_rank + fields->latent_rope + fields->indexer;
        layer->v_elements = 0;
    } else if (layer->kind == OFL_KV_FULL && (fields->full_heads > 0 || fields->full_dim > 0)) {
        uint64_t dim = fields->full_dim > 0 ? fields->full_dim : layer->k_elements / layer->head_count_kv;
        if (fields->full_heads > 0) layer->head_count_kv = fields->full_heads;
        layer->k_elements = layer->v_elements = layer->head_count_kv * dim;
    }
}

static ofl_status apply_all(ofl_model *model, const ofl_hf_config *config, const kv_fields *fields, const layer_plan *plan)
{
    uint32_t blocks = model->shape.block_count, without_window = 0;
    if (fields->shared > 0 && fields->shared >= blocks) return refuse(config, "num_kv_shared_layers", "not below the number of layers");
    for (uint32_t i = 0; i < blocks; i++) {
        bool windowed = plan[i].kind == OFL_KV_SLIDING || plan[i].kind == OFL_KV_CHUNKED;
        apply(&model->kv[i], &plan[i], fields);
        without_window += windowed && model->kv[i].window_tokens == 0;
        if (i >= blocks - fields->shared) model->kv[i].kind = OFL_KV_SHARED;
    }
    if (without_window > 0)
        return ofl_model_add_note(model, "%u layers slide, but no window is given: they are sized as keeping every token",
                                  (unsigned)without_window);
    return OFL_OK;
}

static ofl_status note_latent(ofl_model *model, const kv_fields *fields)
{
    if (fields->latent_rank == 0) return OFL_OK;
    return ofl_model_add_note(model, "latent attention: the KV cache is sized as the compressed vector, %llu elements a token and layer",
                              (unsigned long long)fields->latent_rank + fields->latent_rope + fields->indexer);
}

ofl_status ofl_hf_read_kv(ofl_model *model, const ofl_hf_config *config)
{
    kv_fields fields;
    ofl_status status = ofl_model_make_kv(model);
    if (status == OFL_OK) status = read_fields(model, config, &fields);
    if (status == OFL_OK) status = read_state(model, config, &fields);
    if (status != OFL_OK) return status;
    layer_plan *plan = ofl_alloc(model->shape.block_count, sizeof *plan);
    if (plan == NULL) return ofl_model_out_of_memory(model);
    status = plan_layers(config, &fields, plan, model->shape.block_count);
    if (status == OFL_OK) status = apply_all(model, config, &fields, plan);
    if (status == OFL_OK) status = note_latent(model, &fields);
    ofl_free(plan);
    return status;
}

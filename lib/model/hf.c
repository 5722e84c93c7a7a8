/* Opening a Hugging Face folder. */
#include "model/hf.h"

#include <string.h>

/* GGUF's names for the families that have one. */
static const char *architecture_of(const ofl_hf_config *config)
{
    static const struct {
        const char *model_type, *architecture;
    } known[] = {{"llama", "llama"},           {"mistral", "llama"},         {"mixtral", "llama"},
                 {"smollm", "llama"},          {"qwen2", "qwen2"},           {"qwen2_moe", "qwen2moe"},
                 {"qwen3", "qwen3"},           {"qwen3_moe", "qwen3moe"},    {"qwen3_next", "qwen3next"},
                 {"gemma3_text", "gemma3"},    {"gemma3n_text", "gemma3n"},  {"gemma4_text", "gemma4"},
                 {"gpt_oss", "gpt-oss"},       {"deepseek_v2", "deepseek2"}, {"deepseek_v3", "deepseek2"},
                 {"kimi_k2", "deepseek2"},     {"llama4_text", "llama4"},    {"glm4_moe", "glm4moe"},
                 {"gpt_bigcode", "starcoder"}, {"qwen2_5_vl", "qwen2vl"},    {"qwen2_5_vl_text", "qwen2vl"},
                 {"cohere", "command-r"},      {"falcon_h1", "falcon-h1"}};
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        if (strcmp(config->model_type, known[i].model_type) == 0) return known[i].architecture;
    }
    return config->model_type[0] != '\0' ? config->model_type : "unknown";
}

/* The folder's own name; trailing slashes are passed. */
static const char *folder_name(ofl_model *model)
{
    size_t end = strlen(model->path), start;
    while (end > 1 && model->path[end - 1] == '/') end--;
    for (start = end; start > 0 && model->path[start - 1] != '/'; start--) continue;
    return ofl_model_text(model, model->path + start, end - start);
}

static ofl_status check_tie(ofl_model *model, const ofl_hf_config *config)
{
    bool flag = false;
    ofl_status status = ofl_hf_get_bool(config, "tie_word_embeddings", &flag);
    bool given = ofl_hf_find(config, "tie_word_embeddings") != NULL;
    if (status == OFL_OK && flag && model->shape.tied_output == 0)
        return ofl_model_add_note(model, "tie_word_embeddings is true, but an output matrix is stored: both matrices are counted");
    if (status == OFL_OK && given && !flag && model->shape.tied_output == 1)
        return ofl_model_add_note(model, "tie_word_embeddings is false, but no output matrix is stored: the embedding serves");
    return status;
}

static ofl_status describe(ofl_model *model, const ofl_hf_config *config)
{
    const char *name = folder_name(model);
    if (name == NULL) return ofl_model_out_of_memory(model);
    ofl_status status = ofl_model_set_texts(model, name, architecture_of(config));
    if (status == OFL_OK) status = ofl_hf_read_shape(model, config);
    if (status == OFL_OK) status = ofl_hf_read_kv(model, config);
    if (status == OFL_OK) status = ofl_hf_read_files(model, model->path);
    if (status == OFL_OK) status = ofl_hf_place_tensors(model, config);
    if (status == OFL_OK) status = ofl_model_resolve_tie(model);
    if (status == OFL_OK) status = check_tie(model, config);
    if (status == OFL_OK) status = ofl_hf_count_parameters(model, config);
    return status == OFL_OK ? ofl_model_complete(model) : status;
}

ofl_status ofl_hf_open(const char *folder, ofl_model **out)
{
    ofl_model *model = NULL;
    ofl_hf_config config = {0};
    ofl_status status = ofl_model_new(OFL_FORMAT_HF, folder, &model);
    if (status != OFL_OK) return status;
    char *path = ofl_format("%s/config.json", folder);
    status = path != NULL ? ofl_hf_config_read(model, path, &config) : ofl_model_out_of_memory(model);
    ofl_free(path);
    if (status == OFL_OK) {
        status = describe(model, &config);
        ofl_hf_config_end(&config);
    }
    if (status == OFL_OK) *out = model;
    else ofl_model_destroy(model);
    return status;
}

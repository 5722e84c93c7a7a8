/* config.json: read with a limit, made safe for the parser, and the text model's object found in it. */
#include "model/hf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES (UINT64_C(1) << 20)
#define MAX_CONFIG_DEPTH 64u
#define LAYER_KEYS "num_hidden_layers|n_layer|n_layers|num_layers"

static ofl_status read_text(const char *path, char **out)
{
    ofl_reader reader;
    ofl_status status = ofl_reader_open(&reader, path);
    if (status == OFL_ERROR_NOT_FOUND)
        return ofl_fail(OFL_ERROR_NOT_FOUND, "%s: is missing; a model folder holds it beside its safetensors files", path);
    if (status != OFL_OK) return status;
    uint64_t bytes = reader.end;
    char *text = NULL;
    if (bytes > MAX_CONFIG_BYTES)
        status = ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: %llu bytes; a config of at most 1 MiB is read", path, (unsigned long long)bytes);
    else if ((text = ofl_alloc(bytes + 1, 1)) == NULL)
        status = ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory for reading it", path);
    else status = ofl_reader_take(&reader, text, bytes, "config.json");
    if (status == OFL_OK && strlen(text) != bytes) status = ofl_fail(OFL_ERROR_FORMAT, "%s: byte %zu is a NUL", path, strlen(text));
    ofl_reader_close(&reader);
    if (status == OFL_OK) *out = text;
    else ofl_free(text);
    return status;
}

/* Some writers leave words that JSON does not have: each becomes something of the same length that no field accepts. */
static size_t replace_word(char *at)
{
    static const struct {
        const char *word, *by;
    } words[] = {{"-Infinity", "null     "}, {"Infinity", "null    "}, {"NaN", "\"\" "}};
    for (size_t i = 0; i < OFL_COUNT_OF(words); i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(at, words[i].word, length) != 0) continue;
        memcpy(at, words[i].by, length);
        return length;
    }
    return 1;
}

/* The end of a string that begins at `at` (after the quote), or NULL for a NUL in it. */
static char *pass_string(char *at)
{
    while (*at != '\0' && *at != '"') {
        if (at[0] == '\\' && strncmp(at + 1, "u0000", 5) == 0) return NULL;
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    }
    return *at == '"' ? at + 1 : at;
}

/* Depth and NULs that the parser would get wrong are found first. */
static ofl_status prepare(const char *path, char *text)
{
    uint32_t depth = 0;
    for (char *at = text; *at != '\0';) {
        if (*at == '"') {
            at = pass_string(at + 1);
            if (at == NULL) return ofl_fail(OFL_ERROR_FORMAT, "%s: a NUL in a string", path);
            continue;
        }
        if ((*at == '[' || *at == '{') && ++depth > MAX_CONFIG_DEPTH)
            return ofl_fail(OFL_ERROR_FORMAT, "%s: nested more than %u deep", path, MAX_CONFIG_DEPTH);
        if ((*at == ']' || *at == '}') && depth > 0) depth--;
        at += replace_word(at);
    }
    return OFL_OK;
}

static ofl_status parse(const char *path, char *text, cJSON **out)
{
    const char *end = NULL;
    ofl_status status = prepare(path, text);
    if (status != OFL_OK) return status;
    cJSON *tree = cJSON_ParseWithOpts(text, &end, 1);
    if (tree == NULL)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: no valid JSON at byte %lld", path, end != NULL ? (long long)(end - text) : 0LL);
    if (!cJSON_IsObject(tree)) {
        cJSON_Delete(tree);
        return ofl_fail(OFL_ERROR_FORMAT, "%s: not an object", path);
    }
    *out = tree;
    return OFL_OK;
}

/* The first key of "a|b|c" that the object has with a value other than null. */
static const cJSON *first_of(const cJSON *object, const char *keys)
{
    while (*keys != '\0') {
        char key[64];
        size_t length = strcspn(keys, "|");
        (void)snprintf(key, sizeof key, "%.*s", (int)length, keys);
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
        if (item != NULL && !cJSON_IsNull(item)) return item;
        keys += length + (keys[length] == '|');
    }
    return NULL;
}

/* Multimodal models keep the text model's fields in an object of their own. */
static const cJSON *find_text_model(const cJSON *tree)
{
    const cJSON *thinker = cJSON_GetObjectItemCaseSensitive(tree, "thinker_config");
    const cJSON *candidates[] = {first_of(tree, "text_config"), first_of(tree, "language_config"), first_of(tree, "llm_config"),
                                 cJSON_IsObject(thinker) ? first_of(thinker, "text_config") : NULL, tree};
    for (size_t i = 0; i < OFL_COUNT_OF(candidates); i++) {
        if (cJSON_IsObject(candidates[i]) && first_of(candidates[i], LAYER_KEYS "|hybrid_override_pattern") != NULL) return candidates[i];
    }
    return NULL;
}

ofl_status ofl_hf_config_read(ofl_model *model, const char *path, ofl_hf_config *out)
{
    char *text = NULL;
    ofl_hf_config config = {.path = ofl_model_text(model, path, strlen(path)), .model_type = ""};
    if (config.path == NULL) return ofl_model_out_of_memory(model);
    ofl_status status = read_text(path, &text);
    if (status != OFL_OK) return status;
    status = parse(path, text, &config.tree);
    ofl_free(text);
    if (status != OFL_OK) return status;
    config.text = find_text_model(config.tree);
    if (config.text == NULL) {
        cJSON_Delete(config.tree);
        return ofl_fail(OFL_ERROR_FORMAT, "%s: describes no text model: num_hidden_layers is neither here nor in a text_config", path);
    }
    const cJSON *type = first_of(config.text, "model_type");
    if (type == NULL) type = first_of(config.tree, "model_type");
    if (cJSON_IsString(type)) config.model_type = type->valuestring;
    *out = config;
    return OFL_OK;
}

void ofl_hf_config_end(ofl_hf_config *config)
{
    cJSON_Delete(config->tree);
    config->tree = NULL;
}

const cJSON *ofl_hf_find(const ofl_hf_config *config, const char *keys)
{
    const cJSON *item = first_of(config->text, keys);
    return item != NULL ? item : first_of(config->tree, keys);
}

bool ofl_hf_number(const cJSON *item, uint32_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > (double)UINT32_MAX ||
        floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint32_t)item->valuedouble;
    return true;
}

ofl_status ofl_hf_get_u32(const ofl_hf_config *config, const char *keys, uint32_t *out)
{
    const cJSON *item = ofl_hf_find(config, keys);
    if (item == NULL || ofl_hf_number(item, out)) return OFL_OK;
    return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\": a whole number below 2^32 is needed", config->path, item->string);
}

ofl_status ofl_hf_get_double(const ofl_hf_config *config, const char *keys, double *out)
{
    const cJSON *item = ofl_hf_find(config, keys);
    if (item == NULL) return OFL_OK;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\": a number is needed", config->path, item->string);
    *out = item->valuedouble;
    return OFL_OK;
}

ofl_status ofl_hf_get_bool(const ofl_hf_config *config, const char *keys, bool *out)
{
    const cJSON *item = ofl_hf_find(config, keys);
    if (item == NULL) return OFL_OK;
    if (!cJSON_IsBool(item)) return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\": true or false is needed", config->path, item->string);
    *out = cJSON_IsTrue(item);
    return OFL_OK;
}

const char *ofl_hf_get_text(const ofl_hf_config *config, const char *keys)
{
    const cJSON *item = ofl_hf_find(config, keys);
    return cJSON_IsString(item) ? item->valuestring : "";
}

bool ofl_hf_is(const ofl_hf_config *config, const char *prefix) { return strncmp(config->model_type, prefix, strlen(prefix)) == 0; }

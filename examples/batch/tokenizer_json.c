/* tokenizer.json: vocabulary, merges, added tokens, and whether prompts start with BOS. */
#include "batch/tokenizer_json.h"

static ofl_status broken(const char *name, const char *why) { return app_fail(OFL_ERROR_FORMAT, "%s: %s", name, why); }

/* Settings of the BPE model that this reader does not carry out. */
static ofl_status check_model(const cJSON *model, const char *name)
{
    static const char *const unknown[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = json_text(model, "type");
    if (!cJSON_IsObject(model)) return broken(name, "model: missing");
    if (type != NULL && strcmp(type, "BPE") != 0) return app_fail(OFL_ERROR_UNSUPPORTED, "%s: model type \"%s\" is not known; BPE is", name, type);
    if (type == NULL && json_member(model, "merges") == NULL) return broken(name, "model.type: missing");
    for (size_t i = 0; i < 2; i++) {
        const char *text = json_text(model, unknown[i]);
        if (text != NULL && *text != 0) return app_fail(OFL_ERROR_UNSUPPORTED, "%s: model.%s is not supported", name, unknown[i]);
    }
    const cJSON *dropout = json_member(model, "dropout");
    if (dropout != NULL && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
        return app_fail(OFL_ERROR_UNSUPPORTED, "%s: model.dropout is not supported", name);
    return OFL_OK;
}

static bool is_set(const tokenizer *t, int64_t id) { return (size_t)id < t->words.count && t->words.tokens[id].kind != TOKEN_NONE; }

/* Ids leave few gaps; one far beyond the number of tokens would cost memory for nothing. */
static int64_t id_limit(const cJSON *root)
{
    const cJSON *vocab = json_member(json_member(root, "model"), "vocab"), *added = json_member(root, "added_tokens");
    return 4 * ((int64_t)cJSON_GetArraySize(vocab) + cJSON_GetArraySize(added)) + 1024;
}

static ofl_status read_vocabulary(tokenizer *t, const cJSON *root, const char *name)
{
    const cJSON *vocab = json_member(json_member(root, "model"), "vocab");
    ofl_status status = OFL_OK;
    int64_t limit = id_limit(root);
    if (!cJSON_IsObject(vocab)) return broken(name, "model.vocab: not an object");
    for (const cJSON *item = vocab->child; item != NULL && status == OFL_OK; item = item->next) {
        int64_t id = json_id(item);
        if (id < 0 || id > limit) return app_fail(OFL_ERROR_FORMAT, "%s: model.vocab: \"%.40s\" has no valid id", name, item->string);
        if (is_set(t, id)) return app_fail(OFL_ERROR_FORMAT, "%s: model.vocab: id %lld is given twice", name, (long long)id);
        status = tokenizer_set_token(t, id, TOKEN_NORMAL, item->string, strlen(item->string));
    }
    return status;
}

static ofl_status read_added(tokenizer *t, const cJSON *root, const char *name)
{
    const cJSON *list = json_member(root, "added_tokens");
    ofl_status status = OFL_OK;
    int64_t limit = id_limit(root);
    if (list == NULL) return OFL_OK;
    if (!cJSON_IsArray(list)) return broken(name, "added_tokens: not a list");
    for (const cJSON *item = list->child; item != NULL && status == OFL_OK; item = item->next) {
        const char *text = json_text(item, "content");
        int64_t id = json_id(json_member(item, "id"));
        if (text == NULL || *text == 0 || id < 0 || id > limit) return broken(name, "added_tokens: an entry has no content or no valid id");
        bool control = json_flag(item, "special", false) || tokenizer_looks_like_control(text, strlen(text), false);
        status = tokenizer_set_token(t, id, control ? TOKEN_CONTROL : TOKEN_ADDED, text, strlen(text));
    }
    return status;
}

/* "a b", or ["a", "b"]. */
static ofl_status read_merge(tokenizer *t, const cJSON *item, uint32_t rank, const char *name)
{
    const char *both = cJSON_GetStringValue(item);
    if (both != NULL) {
        const char *gap = *both == 0 ? NULL : strchr(both + 1, ' ');
        if (gap == NULL || gap[1] == 0) return app_fail(OFL_ERROR_FORMAT, "%s: model.merges: \"%.40s\" is not two tokens with a space between", name, both);
        return tokenizer_add_merge(t, rank, both, (size_t)(gap - both), gap + 1, strlen(gap + 1));
    }
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL, *second = first == NULL ? NULL : first->next;
    const char *left = cJSON_GetStringValue(first), *right = cJSON_GetStringValue(second);
    if (left == NULL || right == NULL || second->next != NULL) return app_fail(OFL_ERROR_FORMAT, "%s: model.merges: entry %u is not a pair of tokens", name, rank);
    return tokenizer_add_merge(t, rank, left, strlen(left), right, strlen(right));
}

static ofl_status read_merges(tokenizer *t, const cJSON *model, const char *name)
{
    const cJSON *merges = json_member(model, "merges");
    ofl_status status = OFL_OK;
    uint32_t rank = 0;
    if (!cJSON_IsArray(merges)) return broken(name, "model.merges: not a list");
    for (const cJSON *item = merges->child; item != NULL && status == OFL_OK; item = item->next) status = read_merge(t, item, rank++, name);
    if (status == OFL_OK && rank != 0 && t->merges.pair_count == 0) return broken(name, "model.merges: none is made of the vocabulary's tokens");
    return status;
}

static void read_unknown(tokenizer *t, const cJSON *model)
{
    const char *text = json_text(model, "unk_token");
    if (text == NULL) return;
    t->merges.unknown = tokenizer_find(t, text);
    if (t->merges.unknown < 0) t->merges.unknown = vocabulary_find(&t->words, text, strlen(text));
}

/* The special token that the post-processor's template for one text starts with; NULL: none. */
static const char *first_of_template(const cJSON *processor)
{
    const char *type = json_text(processor, "type");
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        const cJSON *list = json_member(processor, "processors");
        for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item != NULL; item = item->next) {
            const char *inner = json_text(item, "type"), *text = inner != NULL && strcmp(inner, "TemplateProcessing") == 0 ? first_of_template(item) : NULL;
            if (text != NULL) return text;
        }
        return NULL;
    }
    if (type == NULL || strcmp(type, "TemplateProcessing") != 0) return NULL;
    const cJSON *single = json_member(processor, "single");
    return cJSON_IsArray(single) ? json_text(json_member(single->child, "SpecialToken"), "id") : NULL;
}

ofl_status tokenizer_json_read(tokenizer *t, const cJSON *root, const char *name)
{
    const cJSON *model = json_member(root, "model");
    ofl_status status = check_model(model, name);
    if (status == OFL_OK) status = tokenizer_json_rules(t, root, name);
    if (status == OFL_OK) status = read_vocabulary(t, root, name);
    if (status == OFL_OK) status = read_added(t, root, name);
    if (status == OFL_OK) status = tokenizer_index(t);
    if (status == OFL_OK) status = read_merges(t, model, name);
    if (status != OFL_OK) return status;
    t->merges.characters = !t->byte_level;
    t->merges.whole_words = json_flag(model, "ignore_merges", false);
    t->merges.fuse_unknown = json_flag(model, "fuse_unk", false);
    if (!json_flag(model, "byte_fallback", false)) {
        for (size_t i = 0; i < 256; i++) t->words.byte_ids[i] = -1;
    }
    read_unknown(t, model);
    const char *begin = first_of_template(json_member(root, "post_processor"));
    if (begin != NULL) t->begin = tokenizer_find(t, begin);
    return OFL_OK;
}

/* A tokenizer from a GGUF file's metadata. */
#include "batch/tokenizer_parts.h"
#include "common/utf8.h"

#define KEY(name) "tokenizer.ggml." name

typedef struct gguf_reading {
    tokenizer *t;
    const ofl_model *model;
    uint64_t count;          /* of tokens */
    unsigned char *types;    /* one a token, 0 where the file has none */
    float *scores;
    ofl_status status;       /* of an item that stopped a walk */
} gguf_reading;

static ofl_status broken(const gguf_reading *r, const char *key, const char *why)
{
    return app_fail(OFL_ERROR_FORMAT, "%s: %s: %s", ofl_model_path(r->model), key, why);
}

static bool get(const gguf_reading *r, const char *key, ofl_metadata *out)
{
    *out = (ofl_metadata){.struct_size = sizeof *out};
    return ofl_model_metadata_get(r->model, key, out) == OFL_OK;
}

static bool whole_number(const ofl_metadata *value, int64_t *out)
{
    if (value->kind == OFL_METADATA_INT) *out = value->signed_value;
    else if (value->kind == OFL_METADATA_UINT && value->unsigned_value <= INT64_MAX) *out = (int64_t)value->unsigned_value;
    else return false;
    return true;
}

static ofl_status get_flag(const gguf_reading *r, const char *key, bool *inout)
{
    ofl_metadata value;
    if (!get(r, key, &value)) return OFL_OK;
    if (value.kind != OFL_METADATA_BOOL) return broken(r, key, "not true or false");
    *inout = value.unsigned_value != 0;
    return OFL_OK;
}

/* A token's id; *out stays where the file has none. */
static ofl_status get_id(const gguf_reading *r, const char *key, int64_t *inout)
{
    ofl_metadata value;
    if (!get(r, key, &value)) return OFL_OK;
    int64_t id;
    if (!whole_number(&value, &id) || id < 0 || (uint64_t)id >= r->count) return broken(r, key, "not the number of a token");
    *inout = id;
    return OFL_OK;
}

static ofl_status get_name(const gguf_reading *r, const char *key, const char **out)
{
    ofl_metadata value;
    if (!get(r, key, &value)) return app_fail(OFL_ERROR_UNSUPPORTED, "%s: %s is missing", ofl_model_path(r->model), key);
    if (value.kind != OFL_METADATA_STRING || value.string == NULL || strlen(value.string) != value.count) return broken(r, key, "not a name");
    *out = value.string;
    return OFL_OK;
}

static ofl_status walk(gguf_reading *r, const char *key, int (*item)(void *, uint64_t, const ofl_metadata *))
{
    r->status = OFL_OK;
    ofl_status status = ofl_model_metadata_each(r->model, key, item, r);
    if (r->status != OFL_OK) return r->status;
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static int take_type(void *context, uint64_t index, const ofl_metadata *value)
{
    gguf_reading *r = context;
    int64_t type = 0;
    if (!whole_number(value, &type) || type < 0 || type > 6) {
        r->status = broken(r, KEY("token_type"), "a type outside 0…6");
        return 1;
    }
    r->types[index] = (unsigned char)type;
    return 0;
}

static int take_score(void *context, uint64_t index, const ofl_metadata *value)
{
    gguf_reading *r = context;
    if (value->kind != OFL_METADATA_FLOAT || value->float_value != value->float_value) {
        r->status = broken(r, KEY("scores"), "not a number");
        return 1;
    }
    r->scores[index] = (float)value->float_value;
    return 0;
}

static token_kind kind_of(const gguf_reading *r, uint64_t index, const char *text, size_t bytes)
{
    static const token_kind kinds[] = {TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_ADDED, TOKEN_NONE, TOKEN_BYTE};
    token_kind kind = kinds[r->types[index]];
    bool told = r->types[index] == 1; /* files exist that call <|im_end|> normal text */
    if (kind == TOKEN_ADDED || kind == TOKEN_NORMAL) return tokenizer_looks_like_control(text, bytes, told) ? TOKEN_CONTROL : kind;
    return kind;
}

static int take_token(void *context, uint64_t index, const ofl_metadata *value)
{
    gguf_reading *r = context;
    if (value->kind != OFL_METADATA_STRING || value->string == NULL) r->status = broken(r, KEY("tokens"), "an entry is not text");
    else r->status = tokenizer_set_token(r->t, (int64_t)index, kind_of(r, index, value->string, (size_t)value->count), value->string, (size_t)value->count);
    if (r->status == OFL_OK) r->t->words.tokens[index].score = r->scores[index];
    return r->status != OFL_OK;
}

static int take_merge(void *context, uint64_t index, const ofl_metadata *value)
{
    gguf_reading *r = context;
    const char *gap = value->kind == OFL_METADATA_STRING && value->string != NULL && value->count > 2
                          ? memchr(value->string + 1, ' ', (size_t)value->count - 2)
                          : NULL;
    if (gap == NULL || index > UINT32_MAX) {
        r->status = broken(r, KEY("merges"), "an entry is not two tokens with a space between");
        return 1;
    }
    size_t left = (size_t)(gap - value->string), right = (size_t)value->count - left - 1;
    r->status = tokenizer_add_merge(r->t, (uint32_t)index, value->string, left, gap + 1, right);
    return r->status != OFL_OK;
}

/* A list with one entry a token. *found_out: the file has it. */
static ofl_status read_column(gguf_reading *r, const char *key, int (*item)(void *, uint64_t, const ofl_metadata *), bool *found_out)
{
    ofl_metadata value;
    *found_out = get(r, key, &value);
    if (!*found_out) return OFL_OK;
    if (value.kind != OFL_METADATA_ARRAY || value.count != r->count) return broken(r, key, "not a list with one entry a token");
    return walk(r, key, item);
}

static ofl_status read_tokens(gguf_reading *r)
{
    ofl_metadata value;
    bool typed, scored = false;
    if (!get(r, KEY("tokens"), &value)) return app_fail(OFL_ERROR_UNSUPPORTED, "%s: the file has no tokenizer (tokenizer.ggml.tokens)", ofl_model_path(r->model));
    if (value.kind != OFL_METADATA_ARRAY || value.count > VOCABULARY_MAX_ID) return broken(r, KEY("tokens"), "not a list of tokens");
    r->count = value.count;
    r->types = calloc((size_t)r->count + 1, sizeof *r->types);
    r->scores = calloc((size_t)r->count + 1, sizeof *r->scores);
    if (r->types == NULL || r->scores == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory");
    ofl_status status = read_column(r, KEY("token_type"), take_type, &typed);
    if (status == OFL_OK) status = read_column(r, KEY("scores"), take_score, &scored);
    if (status == OFL_OK && r->t->merges.by_score && !scored) status = broken(r, KEY("scores"), "missing");
    return status == OFL_OK ? walk(r, KEY("tokens"), take_token) : status;
}

static ofl_status read_merges(gguf_reading *r)
{
    ofl_metadata value;
    if (r->t->merges.by_score) return OFL_OK;
    if (!get(r, KEY("merges"), &value)) return broken(r, KEY("merges"), "missing");
    if (value.kind != OFL_METADATA_ARRAY) return broken(r, KEY("merges"), "not a list");
    ofl_status status = walk(r, KEY("merges"), take_merge);
    if (status == OFL_OK && value.count != 0 && r->t->merges.pair_count == 0) return broken(r, KEY("merges"), "none of them is made of the vocabulary's tokens");
    return status;
}

/* What the ids of special tokens say about them: they are control tokens, whatever their type. */
static ofl_status read_special(gguf_reading *r, int64_t *begin_out, int64_t ends[3])
{
    static const char *const keys[] = {KEY("eos_token_id"), KEY("eot_token_id"), KEY("eom_token_id")};
    ofl_status status = get_id(r, KEY("bos_token_id"), begin_out);
    for (size_t i = 0; i < 3 && status == OFL_OK; i++) status = get_id(r, keys[i], &ends[i]);
    for (size_t i = 0; i < 4 && status == OFL_OK; i++) {
        int64_t id = i == 3 ? *begin_out : ends[i];
        if (id >= 0) tokenizer_make_control(r->t, (int32_t)id);
    }
    return status;
}

/* What kind of tokenizer it is. */
static ofl_status read_kind(gguf_reading *r, pretokenizer_traits *traits)
{
    const char *model = NULL, *pre = NULL;
    ofl_status status = get_name(r, KEY("model"), &model);
    if (status != OFL_OK) return status;
    if (strcmp(model, "llama") == 0) {
        bool prefix = true;
        *traits = (pretokenizer_traits){.begin = true, .characters = true};
        status = get_flag(r, KEY("add_space_prefix"), &prefix);
        r->t->merges.by_score = true;
        r->t->prefix = prefix ? PREFIX_ALWAYS : PREFIX_NEVER;
    } else if (strcmp(model, "gpt2") == 0) {
        status = get_name(r, KEY("pre"), &pre);
        if (status == OFL_OK) status = pretokenizer_add_named(r->t->splitter, pre, traits);
    } else {
        status = app_fail(OFL_ERROR_UNSUPPORTED, "%s: tokenizer \"%s\" is not known; gpt2 and llama are", ofl_model_path(r->model), model);
    }
    r->t->byte_level = !traits->characters;
    r->t->mark_spaces = r->t->merges.characters = traits->characters;
    r->t->merges.whole_words = traits->whole_words;
    r->t->nfc = traits->nfc;
    return status;
}

static ofl_status read_template(const gguf_reading *r)
{
    ofl_metadata value;
    if (!get(r, "tokenizer.chat_template", &value) || value.kind != OFL_METADATA_STRING || value.string == NULL) return OFL_OK;
    r->t->chat_template = strndup(value.string, (size_t)value.count);
    return r->t->chat_template != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory");
}

static ofl_status read_all(gguf_reading *r)
{
    pretokenizer_traits traits = {0};
    int64_t begin = -1, ends[3] = {-1, -1, -1}, unknown = -1;
    ofl_status status = read_kind(r, &traits);
    if (status == OFL_OK) status = read_tokens(r);
    if (status == OFL_OK) status = read_special(r, &begin, ends);
    if (status == OFL_OK) status = tokenizer_index(r->t);
    if (status == OFL_OK) status = read_merges(r);
    if (status == OFL_OK) status = get_id(r, KEY("unknown_token_id"), &unknown);
    if (status == OFL_OK) status = get_flag(r, KEY("add_bos_token"), &traits.begin);
    if (status == OFL_OK) status = read_template(r);
    for (size_t i = 0; i < 3 && status == OFL_OK; i++) {
        if (ends[i] >= 0) status = tokenizer_add_end(r->t, ends[i]);
    }
    if (status == OFL_OK) status = tokenizer_add_known_ends(r->t);
    if (status != OFL_OK) return status;
    if (begin < 0 && r->t->merges.by_score) begin = tokenizer_find(r->t, "<s>");
    if (unknown < 0 && r->t->merges.by_score) unknown = tokenizer_find(r->t, "<unk>");
    if (traits.begin) r->t->begin = (int32_t)begin;
    if (traits.characters) r->t->merges.unknown = (int32_t)unknown;
    return OFL_OK;
}

ofl_status tokenizer_load_gguf(tokenizer *t, const ofl_model *model)
{
    gguf_reading r = {.t = t, .model = model};
    ofl_status status = read_all(&r);
    free(r.types);
    free(r.scores);
    return status;
}

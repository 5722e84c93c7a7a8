#include "model/description.h"

#include <string.h>
#include <strings.h>

#define SCHEMA "ofload.model/1"
#define OUTPUT_BLOCK INT32_MAX /* until the number of blocks is known */

/* Layers first … first + count − 1 are like this. */
typedef struct kv_entry {
    uint64_t first, count;
    ofl_kv_layer layer;
} kv_entry;

typedef struct description {
    ofl_model *model;
    ofl_json_pull pull;
    char *name, *architecture;
    bool has_schema, has_shape;
    uint64_t kv_layers; /* that entries of kv give, all together: bounds the work */
    kv_entry *kv;
    uint64_t kv_count, kv_capacity;
} description;

static ofl_status refuse(const description *from, const char *what, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: %s: %s", from->pull.reader->path, what, why);
}

static bool key_is(const description *from, const char *name) { return strcmp(ofl_json_pull_text(&from->pull), name) == 0; }

/* Index of a word in a list of names; upper and lower case are the same. */
static bool find_word(const char *text, const char *const *words, unsigned count, unsigned *out)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcasecmp(text, words[i]) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

static const char *const class_words[] = {"dense", "lookup", "expert", "unused"};
static const char *const kind_words[] = {"full", "sliding", "chunked", "latent", "shared", "none"};
static const char *const role_words[] = {
#define WORD(name, text) #name,
    OFL_ROLE_LIST(WORD)
#undef WORD
};

static ofl_status read_word(description *from, const char *what, const char *const *words, unsigned count, unsigned *out)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(&from->pull, what, &text);
    if (status == OFL_OK && !find_word(text, words, count, out))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: %s \"%s\" is not known", from->pull.reader->path, what, text);
    return status;
}

static ofl_status read_text(description *from, const char *what, char **out)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(&from->pull, what, &text);
    if (status != OFL_OK) return status;
    if (*out != NULL) return refuse(from, what, "given twice");
    *out = ofl_copy_string(text, strlen(text));
    return *out != NULL ? OFL_OK : ofl_model_out_of_memory(from->model);
}

/* A number, "input" or "output". */
static ofl_status read_block(description *from, int32_t *out)
{
    ofl_json_event event = OFL_JSON_END;
    ofl_status status = ofl_json_pull_next(&from->pull, &event);
    if (status != OFL_OK) return status;
    const char *text = ofl_json_pull_text(&from->pull);
    uint32_t block = 0, digits = 0;
    while (event == OFL_JSON_NUMBER && text[digits] >= '0' && text[digits] <= '9' && digits < 6)
        block = block * 10 + (uint32_t)(text[digits++] - '0');
    if (event == OFL_JSON_STRING && strcmp(text, "input") == 0) *out = OFL_BLOCK_INPUT;
    else if (event == OFL_JSON_STRING && strcmp(text, "output") == 0) *out = OUTPUT_BLOCK;
    else if (event == OFL_JSON_NUMBER && digits > 0 && text[digits] == '\0') *out = (int32_t)block;
    else return refuse(from, "block", "a number, \"input\" or \"output\" is needed");
    return OFL_OK;
}

static ofl_status read_flag(description *from, bool *out)
{
    ofl_json_event event = OFL_JSON_END;
    ofl_status status = ofl_json_pull_next(&from->pull, &event);
    if (status == OFL_OK && event != OFL_JSON_TRUE && event != OFL_JSON_FALSE)
        return refuse(from, "also_lookup", "true or false is needed");
    *out = event == OFL_JSON_TRUE;
    return status;
}

static ofl_status read_dtype(description *from, ofl_dtype *out)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(&from->pull, "dtype", &text);
    if (status == OFL_OK && !ofl_dtype_from_name(text, out))
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: dtype \"%s\" is not known", from->pull.reader->path, text);
    return status;
}

typedef struct tensor_entry {
    ofl_tensor_draft draft;
    char *name;
    bool has_dtype, has_dims, has_block;
} tensor_entry;

static ofl_status read_tensor_field(description *from, tensor_entry *out)
{
    ofl_tensor_draft *draft = &out->draft;
    unsigned choice = 0;
    ofl_status status;
    if (key_is(from, "name")) return read_text(from, "name of a tensor", &out->name);
    if (key_is(from, "dtype")) {
        out->has_dtype = true;
        return read_dtype(from, &draft->dtype);
    }
    if (key_is(from, "dims")) {
        out->has_dims = true;
        return ofl_json_pull_u64_array(&from->pull, "dims", draft->dims, OFL_MAX_DIMS, &draft->n_dims);
    }
    if (key_is(from, "block")) {
        out->has_block = true;
        return read_block(from, &draft->block);
    }
    if (key_is(from, "also_lookup")) return read_flag(from, &draft->also_lookup);
    if (key_is(from, "class")) {
        status = read_word(from, "class", class_words, OFL_COUNT_OF(class_words), &choice);
        draft->tensor_class = (ofl_tensor_class)choice;
        return status;
    }
    if (key_is(from, "role")) {
        status = read_word(from, "role", role_words, OFL_COUNT_OF(role_words), &choice);
        draft->role = (ofl_tensor_role)choice;
        return status;
    }
    return ofl_fail(OFL_ERROR_FORMAT, "%s: a tensor has no field \"%s\"", from->pull.reader->path, ofl_json_pull_text(&from->pull));
}

static ofl_status add_tensor(description *from, tensor_entry *entry)
{
    if (entry->name == NULL || entry->name[0] == '\0') return refuse(from, "tensors", "a tensor without name");
    if (!entry->has_dtype || !entry->has_dims || !entry->has_block) return refuse(from, entry->name, "dtype, dims or block are missing");
    entry->draft.name = entry->name;
    entry->draft.name_bytes = strlen(entry->name);
    return ofl_model_add_tensor(from->model, &entry->draft);
}

static ofl_status read_tensor(description *from)
{
    tensor_entry entry = {.draft = {.role = OFL_ROLE_OTHER, .block = OFL_BLOCK_INPUT, .file = OFL_NO_FILE}};
    bool more = false;
    ofl_status status = ofl_json_pull_key(&from->pull, &more);
    while (status == OFL_OK && more) {
        status = read_tensor_field(from, &entry);
        if (status == OFL_OK) status = ofl_json_pull_key(&from->pull, &more);
    }
    if (status == OFL_OK) status = add_tensor(from, &entry);
    ofl_free(entry.name);
    return status;
}

static ofl_status read_kv_field(description *from, kv_entry *out)
{
    unsigned choice = 0;
    uint64_t heads = 0;
    ofl_status status;
    if (key_is(from, "first")) return ofl_json_pull_u64(&from->pull, "first", &out->first);
    if (key_is(from, "count")) return ofl_json_pull_u64(&from->pull, "count", &out->count);
    if (key_is(from, "k_elements")) return ofl_json_pull_u64(&from->pull, "k_elements", &out->layer.k_elements);
    if (key_is(from, "v_elements")) return ofl_json_pull_u64(&from->pull, "v_elements", &out->layer.v_elements);
    if (key_is(from, "window_tokens")) return ofl_json_pull_u64(&from->pull, "window_tokens", &out->layer.window_tokens);
    if (key_is(from, "state_bytes")) return ofl_json_pull_u64(&from->pull, "state_bytes", &out->layer.state_bytes);
    if (key_is(from, "kind")) {
        status = read_word(from, "kind", kind_words, OFL_COUNT_OF(kind_words), &choice);
        out->layer.kind = (ofl_kv_kind)choice;
        return status;
    }
    if (!key_is(from, "head_count_kv"))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: an entry of kv has no field \"%s\"", from->pull.reader->path,
                        ofl_json_pull_text(&from->pull));
    status = ofl_json_pull_u64(&from->pull, "head_count_kv", &heads);
    if (status == OFL_OK && heads > UINT32_MAX) return refuse(from, "head_count_kv", "a number below 2^32 is needed");
    out->layer.head_count_kv = (uint32_t)heads;
    return status;
}

static ofl_status read_kv(description *from)
{
    kv_entry entry = {.count = 1, .layer = {.struct_size = sizeof entry.layer}};
    bool more = false;
    ofl_status status = ofl_json_pull_key(&from->pull, &more);
    while (status == OFL_OK && more) {
        status = read_kv_field(from, &entry);
        if (status == OFL_OK) status = ofl_json_pull_key(&from->pull, &more);
    }
    if (status != OFL_OK) return status;
    if (entry.count > OFL_MODEL_MAX_BLOCKS - from->kv_layers || from->kv_count >= OFL_MODEL_MAX_BLOCKS)
        return refuse(from, "kv", "gives more layers than a model has");
    from->kv_layers += entry.count;
    if (!ofl_grow((void **)&from->kv, &from->kv_capacity, from->kv_count + 1, sizeof *from->kv))
        return ofl_model_out_of_memory(from->model);
    from->kv[from->kv_count++] = entry;
    return OFL_OK;
}

static ofl_status read_list(description *from, const char *what, ofl_status (*read_one)(description *from))
{
    ofl_status status = ofl_json_pull_expect(&from->pull, OFL_JSON_ARRAY, what);
    while (status == OFL_OK) {
        ofl_json_event event = OFL_JSON_END;
        status = ofl_json_pull_next(&from->pull, &event);
        if (status != OFL_OK || event == OFL_JSON_ARRAY_END) break;
        status = event == OFL_JSON_OBJECT ? read_one(from) : refuse(from, what, "objects are needed");
    }
    return status;
}

static ofl_status check_schema(description *from)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(&from->pull, "schema", &text);
    if (status == OFL_OK && strcmp(text, SCHEMA) != 0)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: schema \"%s\" is not \"%s\"", from->pull.reader->path, text, SCHEMA);
    from->has_schema = true;
    return status;
}

static ofl_status read_part(description *from)
{
    if (key_is(from, "schema")) return check_schema(from);
    if (key_is(from, "name")) return read_text(from, "name", &from->name);
    if (key_is(from, "architecture")) return read_text(from, "architecture", &from->architecture);
    if (key_is(from, "tensors")) return read_list(from, "tensors", read_tensor);
    if (key_is(from, "kv")) return read_list(from, "kv", read_kv);
    if (key_is(from, "shape")) {
        from->has_shape = true;
        return ofl_description_read_shape(&from->pull, &from->model->shape);
    }
    return ofl_fail(OFL_ERROR_FORMAT, "%s: a description has no field \"%s\"", from->pull.reader->path, ofl_json_pull_text(&from->pull));
}

static ofl_status read_all(description *from)
{
    bool more = false;
    ofl_status status = ofl_json_pull_expect(&from->pull, OFL_JSON_OBJECT, "the description");
    if (status == OFL_OK) status = ofl_json_pull_key(&from->pull, &more);
    while (status == OFL_OK && more) {
        status = read_part(from);
        if (status == OFL_OK) status = ofl_json_pull_key(&from->pull, &more);
    }
    if (status == OFL_OK) status = ofl_json_pull_expect(&from->pull, OFL_JSON_END, "the description's end");
    if (status == OFL_OK && !from->has_schema) return refuse(from, "schema", "missing; a description says \"schema\":\"" SCHEMA "\"");
    if (status == OFL_OK && !from->has_shape) return refuse(from, "shape", "missing");
    if (status == OFL_OK && from->model->shape.block_count == 0) return refuse(from, "shape", "block_count is missing or 0");
    return status;
}

static ofl_status apply_kv(description *from)
{
    ofl_model *model = from->model;
    ofl_status status = ofl_model_make_kv(model);
    for (uint64_t i = 0; i < from->kv_count && status == OFL_OK; i++) {
        const kv_entry *entry = &from->kv[i];
        if (entry->first > model->shape.block_count || entry->count > model->shape.block_count - entry->first)
            return refuse(from, "kv", "first and count are beyond the shape's block_count");
        status = ofl_kv_layer_check(&entry->layer, (uint32_t)entry->first);
        if (status != OFL_OK) return ofl_fail(OFL_ERROR_FORMAT, "%s: %s", from->pull.reader->path, ofl_error_message());
        for (uint64_t layer = 0; layer < entry->count; layer++) model->kv[entry->first + layer] = entry->layer;
    }
    return status;
}

static void place_output(ofl_model *model)
{
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        if (model->tensors[i].block == OUTPUT_BLOCK) model->tensors[i].block = (int32_t)model->shape.block_count;
    }
}

static ofl_status finish(description *from)
{
    ofl_model *model = from->model;
    ofl_status status =
        ofl_model_set_texts(model, from->name != NULL ? from->name : "", from->architecture != NULL ? from->architecture : "unknown");
    if (status == OFL_OK) status = apply_kv(from);
    if (status != OFL_OK) return status;
    place_output(model);
    status = ofl_model_resolve_tie(model);
    return status == OFL_OK ? ofl_model_complete(model) : status;
}

ofl_status ofl_description_open(const char *path, ofl_model **out)
{
    description from = {0};
    ofl_reader reader;
    ofl_status status = ofl_model_new(OFL_FORMAT_DESCRIPTION, path, &from.model);
    if (status != OFL_OK) return status;
    status = ofl_reader_open(&reader, from.model->path);
    if (status != OFL_OK) goto destroy_model;
    ofl_json_pull_start(&from.pull, &reader);
    status = read_all(&from);
    if (status == OFL_OK) status = finish(&from);
    ofl_json_pull_end(&from.pull);
    ofl_reader_close(&reader);
    ofl_free(from.name);
    ofl_free(from.architecture);
    ofl_free(from.kv);
destroy_model:
    if (status == OFL_OK) *out = from.model;
    else ofl_model_destroy(from.model);
    return status;
}

/* The key-value part of a GGUF file. Strings are kept up to a limit, arrays only by their place in the file. */
#include "model/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_KEY_BYTES 65535u
#define MAX_KEPT_TEXT (UINT64_C(1) << 20)
#define MAX_KEPT_TEXTS (UINT64_C(16) << 20)
#define MAX_ELEMENTS (UINT64_C(1) << 30)
#define MAX_NESTING 8u

static const uint8_t type_bytes[OFL_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

void ofl_gguf_metadata_destroy(ofl_gguf_metadata *metadata)
{
    if (metadata == NULL) return;
    ofl_free(metadata->entries);
    ofl_free(metadata);
}

static ofl_status read_type(ofl_reader *reader, const char *key, uint32_t *type_out)
{
    ofl_status status = ofl_reader_u32(reader, type_out, key);
    if (status == OFL_OK && *type_out >= OFL_GGUF_TYPE_COUNT)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s has the unknown value type %u", reader->path, key, (unsigned)*type_out);
    return status;
}

static ofl_status read_scalar(ofl_reader *reader, uint32_t type, const char *key, ofl_gguf_value *out)
{
    unsigned char b[8] = {0};
    unsigned size = type_bytes[type];
    ofl_status status = ofl_reader_take(reader, b, size, key);
    if (status != OFL_OK) return status;
    uint64_t bits = 0;
    for (unsigned i = size; i > 0; i--) bits = bits << 8 | b[i - 1];
    switch (type) {
    case OFL_GGUF_I8: out->i = (int8_t)bits; break;
    case OFL_GGUF_I16: out->i = (int16_t)bits; break;
    case OFL_GGUF_I32: out->i = (int32_t)bits; break;
    case OFL_GGUF_I64: out->i = (int64_t)bits; break;
    case OFL_GGUF_BOOL: out->u = bits != 0; break;
    case OFL_GGUF_F32: {
        float value;
        uint32_t half = (uint32_t)bits;
        memcpy(&value, &half, sizeof value);
        out->f = (double)value;
        break;
    }
    case OFL_GGUF_F64: memcpy(&out->f, &bits, sizeof out->f); break;
    default: out->u = bits;
    }
    return OFL_OK;
}

static ofl_status read_length(ofl_reader *reader, const char *what, uint64_t *bytes_out)
{
    ofl_status status = ofl_reader_u64(reader, bytes_out, what);
    if (status == OFL_OK && *bytes_out > ofl_reader_left(reader))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: %s has a string of %llu bytes, but only %llu are left in the file of %llu", reader->path,
                        what, (unsigned long long)*bytes_out, (unsigned long long)ofl_reader_left(reader), (unsigned long long)reader->end);
    return status;
}

static ofl_status read_kept_text(ofl_model *model, ofl_reader *reader, ofl_gguf_metadata *metadata, ofl_gguf_entry *entry)
{
    ofl_status status = read_length(reader, entry->key, &entry->count);
    if (status != OFL_OK) return status;
    if (entry->count > MAX_KEPT_TEXT || entry->count > MAX_KEPT_TEXTS - metadata->kept_text_bytes)
        return ofl_reader_skip(reader, entry->count, entry->key);
    char *text = ofl_model_take(model, entry->count + 1);
    if (text == NULL) return ofl_model_out_of_memory(model);
    metadata->kept_text_bytes += entry->count;
    text[entry->count] = '\0';
    entry->value.text = text;
    return ofl_reader_take(reader, text, entry->count, entry->key);
}

static ofl_status read_array_head(ofl_reader *reader, const char *key, uint32_t *type_out, uint64_t *count_out)
{
    ofl_status status = read_type(reader, key, type_out);
    if (status == OFL_OK) status = ofl_reader_u64(reader, count_out, key);
    if (status != OFL_OK) return status;
    uint64_t least = *type_out == OFL_GGUF_STRING ? 8 : *type_out == OFL_GGUF_ARRAY ? 12 : type_bytes[*type_out];
    if (*count_out > MAX_ELEMENTS || *count_out > ofl_reader_left(reader) / least)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s is an array of %llu elements, more than the file of %llu bytes can hold",
                        reader->path, key, (unsigned long long)*count_out, (unsigned long long)reader->end);
    return OFL_OK;
}

static ofl_status skip_text(ofl_reader *reader, const char *key)
{
    uint64_t bytes = 0;
    ofl_status status = read_length(reader, key, &bytes);
    return status == OFL_OK ? ofl_reader_skip(reader, bytes, key) : status;
}

/* Arrays of arrays are walked with a list of what is left at each level, not by recursion. */
static ofl_status skip_elements(ofl_reader *reader, const char *key, uint32_t type, uint64_t count)
{
    uint64_t left[MAX_NESTING] = {count};
    uint32_t types[MAX_NESTING] = {type}, depth = 1;
    ofl_status status = OFL_OK;
    while (depth > 0 && status == OFL_OK) {
        uint32_t top = depth - 1;
        if (left[top] == 0) {
            depth--;
        } else if (types[top] == OFL_GGUF_STRING) {
            left[top]--;
            status = skip_text(reader, key);
        } else if (types[top] != OFL_GGUF_ARRAY) {
            status = ofl_reader_skip(reader, left[top] * type_bytes[types[top]], key); /* count ≤ 2^30 */
            left[top] = 0;
        } else if (depth == MAX_NESTING) {
            status = ofl_fail(OFL_ERROR_FORMAT, "%s: key %s nests arrays more than %u deep", reader->path, key, MAX_NESTING);
        } else {
            left[top]--;
            status = read_array_head(reader, key, &types[depth], &left[depth]);
            depth++;
        }
    }
    return status;
}

static ofl_status read_value(ofl_model *model, ofl_reader *reader, ofl_gguf_metadata *metadata, ofl_gguf_entry *entry)
{
    uint32_t type = 0, element_type = 0;
    ofl_status status = read_type(reader, entry->key, &type);
    if (status != OFL_OK) return status;
    entry->type = (uint8_t)type;
    if (type == OFL_GGUF_STRING) return read_kept_text(model, reader, metadata, entry);
    if (type != OFL_GGUF_ARRAY) return read_scalar(reader, type, entry->key, &entry->value);
    status = read_array_head(reader, entry->key, &element_type, &entry->count);
    if (status != OFL_OK) return status;
    entry->element_type = (uint8_t)element_type;
    entry->offset = reader->position;
    return skip_elements(reader, entry->key, element_type, entry->count);
}

static ofl_status read_key(ofl_model *model, ofl_reader *reader, uint64_t index, const char **out)
{
    char what[48];
    uint64_t bytes = 0;
    (void)snprintf(what, sizeof what, "metadata key %llu", (unsigned long long)index);
    ofl_status status = read_length(reader, what, &bytes);
    if (status != OFL_OK) return status;
    if (bytes == 0 || bytes > MAX_KEY_BYTES)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: %s is %llu bytes long; 1 to %u are allowed", reader->path, what, (unsigned long long)bytes,
                        MAX_KEY_BYTES);
    char *key = ofl_model_take(model, bytes + 1);
    if (key == NULL) return ofl_model_out_of_memory(model);
    key[bytes] = '\0';
    status = ofl_reader_take(reader, key, bytes, what);
    if (status == OFL_OK && strlen(key) != bytes) return ofl_fail(OFL_ERROR_FORMAT, "%s: %s has a NUL in its name", reader->path, what);
    *out = key;
    return status;
}

static int compare_keys(const void *a, const void *b) { return strcmp(((const ofl_gguf_entry *)a)->key, ((const ofl_gguf_entry *)b)->key); }

static ofl_status sort_keys(const ofl_reader *reader, ofl_gguf_metadata *metadata)
{
    if (metadata->count == 0) return OFL_OK;
    qsort(metadata->entries, (size_t)metadata->count, sizeof *metadata->entries, compare_keys);
    for (uint64_t i = 1; i < metadata->count; i++) {
        if (compare_keys(&metadata->entries[i - 1], &metadata->entries[i]) == 0)
            return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s occurs twice", reader->path, metadata->entries[i].key);
    }
    return OFL_OK;
}

ofl_status ofl_gguf_metadata_read(ofl_model *model, ofl_reader *reader, uint64_t count, ofl_gguf_metadata *metadata)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!ofl_grow((void **)&metadata->entries, &metadata->capacity, i + 1, sizeof *metadata->entries))
            return ofl_model_out_of_memory(model);
        ofl_gguf_entry *entry = &metadata->entries[i];
        ofl_status status = read_key(model, reader, i, &entry->key);
        if (status == OFL_OK) status = read_value(model, reader, metadata, entry);
        if (status != OFL_OK) return status;
        metadata->count = i + 1;
    }
    return sort_keys(reader, metadata);
}

const ofl_gguf_entry *ofl_gguf_find(const ofl_gguf_metadata *metadata, const char *key)
{
    const ofl_gguf_entry wanted = {.key = key};
    return metadata->count == 0 ? NULL : bsearch(&wanted, metadata->entries, (size_t)metadata->count, sizeof wanted, compare_keys);
}

static ofl_metadata_kind kind_of(uint8_t type)
{
    switch (type) {
    case OFL_GGUF_I8:
    case OFL_GGUF_I16:
    case OFL_GGUF_I32:
    case OFL_GGUF_I64: return OFL_METADATA_INT;
    case OFL_GGUF_F32:
    case OFL_GGUF_F64: return OFL_METADATA_FLOAT;
    case OFL_GGUF_BOOL: return OFL_METADATA_BOOL;
    case OFL_GGUF_STRING: return OFL_METADATA_STRING;
    case OFL_GGUF_ARRAY: return OFL_METADATA_ARRAY;
    default: return OFL_METADATA_UINT;
    }
}

static ofl_status wrong(const ofl_gguf_metadata *metadata, const char *key, const char *needed)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s: %s is needed", metadata->file.path, key, needed);
}

static bool whole_number(uint8_t type, ofl_gguf_value value, uint64_t *out)
{
    ofl_metadata_kind kind = kind_of(type);
    if (kind == OFL_METADATA_INT && value.i >= 0) *out = (uint64_t)value.i;
    else if (kind == OFL_METADATA_UINT) *out = value.u;
    else return false;
    return true;
}

ofl_status ofl_gguf_get_u64(const ofl_gguf_metadata *metadata, const char *key, uint64_t *out)
{
    const ofl_gguf_entry *entry = ofl_gguf_find(metadata, key);
    if (entry == NULL || whole_number(entry->type, entry->value, out)) return OFL_OK;
    return wrong(metadata, key, "a whole number");
}

ofl_status ofl_gguf_get_u32(const ofl_gguf_metadata *metadata, const char *key, uint32_t *out)
{
    uint64_t value = *out;
    ofl_status status = ofl_gguf_get_u64(metadata, key, &value);
    if (status != OFL_OK) return status;
    if (value > UINT32_MAX) return wrong(metadata, key, "a number below 2^32");
    *out = (uint32_t)value;
    return OFL_OK;
}

ofl_status ofl_gguf_get_double(const ofl_gguf_metadata *metadata, const char *key, double *out)
{
    const ofl_gguf_entry *entry = ofl_gguf_find(metadata, key);
    uint64_t whole = 0;
    if (entry == NULL) return OFL_OK;
    if (whole_number(entry->type, entry->value, &whole)) *out = (double)whole;
    else if (kind_of(entry->type) == OFL_METADATA_FLOAT && isfinite(entry->value.f)) *out = entry->value.f;
    else return wrong(metadata, key, "a finite number");
    return OFL_OK;
}

ofl_status ofl_gguf_get_text(const ofl_gguf_metadata *metadata, const char *key, const char **out)
{
    const ofl_gguf_entry *entry = ofl_gguf_find(metadata, key);
    if (entry == NULL) return OFL_OK;
    if (entry->type != OFL_GGUF_STRING || entry->value.text == NULL || strlen(entry->value.text) != entry->count)
        return wrong(metadata, key, "a string without NUL, up to 1 MiB");
    *out = entry->value.text;
    return OFL_OK;
}

static void describe(const ofl_gguf_entry *entry, ofl_metadata *out)
{
    *out = (ofl_metadata){.struct_size = sizeof *out, .kind = kind_of(entry->type), .count = entry->count};
    switch (out->kind) {
    case OFL_METADATA_INT: out->signed_value = entry->value.i; break;
    case OFL_METADATA_FLOAT: out->float_value = entry->value.f; break;
    case OFL_METADATA_STRING: out->string = entry->value.text; break;
    case OFL_METADATA_ARRAY: out->element_kind = kind_of(entry->element_type); break;
    default: out->unsigned_value = entry->value.u;
    }
}

ofl_status ofl_model_metadata_get(const ofl_model *model, const char *key, ofl_metadata *out)
{
    if (model == NULL || key == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model metadata: no model or no key given");
    const ofl_gguf_entry *entry = model->metadata != NULL ? ofl_gguf_find(model->metadata, key) : NULL;
    if (entry == NULL) return OFL_ERROR_NOT_FOUND;
    ofl_metadata full;
    describe(entry, &full);
    return ofl_struct_out(out, &full, sizeof full, "ofl_metadata");
}

/* The walk over an array's elements: one at a time, strings in a buffer that grows to the longest. */
typedef struct walk {
    ofl_reader reader;
    const ofl_gguf_entry *entry;
    void *text;
    uint64_t text_capacity;
} walk;

static ofl_status next_text(walk *at, ofl_gguf_entry *element)
{
    ofl_status status = read_length(&at->reader, at->entry->key, &element->count);
    if (status != OFL_OK) return status;
    if (element->count > MAX_KEPT_TEXT) return ofl_reader_skip(&at->reader, element->count, at->entry->key);
    if (!ofl_grow(&at->text, &at->text_capacity, element->count + 1, 1))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory for key %s", at->reader.path, at->entry->key);
    ((char *)at->text)[element->count] = '\0';
    element->value.text = at->text;
    return ofl_reader_take(&at->reader, at->text, element->count, at->entry->key);
}

static ofl_status next_element(walk *at, ofl_gguf_entry *element)
{
    *element = (ofl_gguf_entry){.key = at->entry->key, .type = at->entry->element_type};
    return element->type == OFL_GGUF_STRING ? next_text(at, element)
                                            : read_scalar(&at->reader, element->type, element->key, &element->value);
}

static ofl_status start_walk(const ofl_gguf_metadata *metadata, const ofl_gguf_entry *entry, walk *out)
{
    *out = (walk){.entry = entry};
    if (entry->element_type == OFL_GGUF_ARRAY)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: key %s is an array of arrays, which cannot be walked", metadata->file.path, entry->key);
    ofl_status status = ofl_reader_open(&out->reader, metadata->file.path);
    if (status != OFL_OK) return status;
    status = ofl_model_file_check(&metadata->file, out->reader.descriptor);
    if (status != OFL_OK) ofl_reader_close(&out->reader);
    else ofl_reader_seek(&out->reader, entry->offset);
    return status;
}

static void end_walk(walk *at)
{
    ofl_reader_close(&at->reader);
    ofl_free(at->text);
}

ofl_status ofl_model_metadata_each(const ofl_model *model, const char *key,
                                   int (*item)(void *context, uint64_t index, const ofl_metadata *value), void *context)
{
    if (model == NULL || key == NULL || item == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "model metadata: no model, key or function given");
    const ofl_gguf_entry *entry = model->metadata != NULL ? ofl_gguf_find(model->metadata, key) : NULL;
    if (entry == NULL) return OFL_ERROR_NOT_FOUND;
    if (entry->type != OFL_GGUF_ARRAY) return wrong(model->metadata, key, "an array");
    walk at;
    ofl_status status = start_walk(model->metadata, entry, &at);
    if (status != OFL_OK) return status;
    for (uint64_t i = 0; i < entry->count && status == OFL_OK; i++) {
        ofl_gguf_entry element;
        ofl_metadata value;
        status = next_element(&at, &element);
        if (status != OFL_OK) break;
        describe(&element, &value);
        if (item(context, i, &value) != 0)
            status = ofl_fail(OFL_ERROR_CANCELLED, "%s: the walk over key %s was stopped", at.reader.path, key);
    }
    end_walk(&at);
    return status;
}

static ofl_status read_layers(const ofl_gguf_metadata *metadata, const ofl_gguf_entry *entry, uint32_t *values)
{
    walk at;
    ofl_status status = start_walk(metadata, entry, &at);
    if (status != OFL_OK) return status;
    for (uint64_t i = 0; i < entry->count && status == OFL_OK; i++) {
        ofl_gguf_entry element;
        uint64_t value = 0;
        status = next_element(&at, &element);
        if (status != OFL_OK) break;
        if (element.type == OFL_GGUF_BOOL) value = element.value.u;
        else if (!whole_number(element.type, element.value, &value) || value > UINT32_MAX)
            status = wrong(metadata, entry->key, "an array of numbers below 2^32");
        values[i] = (uint32_t)value;
    }
    end_walk(&at);
    return status;
}

ofl_status ofl_gguf_get_layers(const ofl_gguf_metadata *metadata, const char *key, uint32_t layers, uint32_t *values, int *given_out)
{
    const ofl_gguf_entry *entry = ofl_gguf_find(metadata, key);
    uint32_t value = 0;
    *given_out = entry == NULL ? 0 : entry->type == OFL_GGUF_ARRAY ? 2 : 1;
    if (entry == NULL) return OFL_OK;
    if (entry->type == OFL_GGUF_ARRAY && entry->count != layers)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s has %llu elements for %u layers", metadata->file.path, key,
                        (unsigned long long)entry->count, (unsigned)layers);
    if (entry->type == OFL_GGUF_ARRAY) return read_layers(metadata, entry, values);
    ofl_status status = ofl_gguf_get_u32(metadata, key, &value);
    for (uint32_t i = 0; i < layers && status == OFL_OK; i++) values[i] = value;
    return status;
}

#include "support/published.h"

#include <inttypes.h>
#include <stdbool.h>

#define MAX_AXES 3
#define FILES 3

cJSON *published_models(void)
{
    char *text = test_read(OFLOAD_SOURCE_DIR "/tests/golden/models/published.json", NULL);
    cJSON *golden = cJSON_Parse(text);
    free(text);
    assert_true(cJSON_IsArray(golden));
    return golden;
}

uint64_t published_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsTrue(item) ? 1 : cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : 0;
}

char *published_config(const cJSON *model)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(model, "config")), *word = strstr(text, "\"Infinity!\"");
    if (word != NULL) memcpy(word, " Infinity  ", 11);
    return text;
}

static uint64_t axis_value(const cJSON *axis, uint64_t index, bool *in_range)
{
    const cJSON *range;
    cJSON_ArrayForEach (range, axis) {
        uint64_t first = (uint64_t)range->child->valuedouble, count = (uint64_t)range->child->next->valuedouble - first + 1;
        if (index < count) return first + index;
        index -= count;
    }
    *in_range = false;
    return 0;
}

static void put_name(char *to, size_t room, const char *pattern, const uint64_t *values)
{
    size_t used = 0, axis = 0;
    for (; *pattern != '\0' && used + 24 < room; pattern++) {
        if (*pattern == '#') used += (size_t)snprintf(to + used, room - used, "%" PRIu64, values[axis++]);
        else to[used++] = *pattern;
    }
    to[used] = '\0';
}

static void give(const char *name, const cJSON *row, void (*each)(void *context, const published_tensor *tensor), void *context)
{
    const cJSON *dim;
    const char *dtype = cJSON_GetArrayItem(row, 2)->valuestring;
    published_tensor tensor = {.name = name, .dtype = dtype};
    tensor.bytes = strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0 ? 4 : strstr(dtype, "8") != NULL ? 1 : 2;
    cJSON_ArrayForEach (dim, cJSON_GetArrayItem(row, 1)) {
        tensor.shape[tensor.n_dims] = (uint64_t)dim->valuedouble;
        tensor.bytes *= tensor.shape[tensor.n_dims++];
    }
    each(context, &tensor);
}

/* The last axis runs fastest. */
static void give_row(const cJSON *row, void (*each)(void *context, const published_tensor *tensor), void *context)
{
    const cJSON *axes = cJSON_GetArrayItem(row, 3);
    int count = cJSON_GetArraySize(axes);
    uint64_t at[MAX_AXES] = {0}, values[MAX_AXES];
    assert_true(count <= MAX_AXES);
    for (;;) {
        int overflowed = -1;
        for (int i = 0; i < count; i++) {
            bool in_range = true;
            values[i] = axis_value(cJSON_GetArrayItem(axes, i), at[i], &in_range);
            if (!in_range) overflowed = i;
        }
        if (overflowed == 0) return;
        if (overflowed > 0) {
            at[overflowed] = 0;
            at[overflowed - 1]++;
            continue;
        }
        char name[256];
        put_name(name, sizeof name, cJSON_GetArrayItem(row, 0)->valuestring, values);
        give(name, row, each, context);
        if (count == 0) return;
        at[count - 1]++;
    }
}

void published_each(const cJSON *model, void (*each)(void *context, const published_tensor *tensor), void *context)
{
    const cJSON *row;
    cJSON_ArrayForEach (row, cJSON_GetObjectItemCaseSensitive(model, "tensors")) give_row(row, each, context);
}

typedef struct folder {
    const char *path;
    safetensors_writer files[FILES];
    FILE *index;
    uint64_t tensors;
} folder;

static void add(void *context, const published_tensor *tensor)
{
    folder *to = context;
    unsigned file = (unsigned)(to->tensors % FILES);
    safetensors_tensor(&to->files[file], tensor->name, tensor->dtype, tensor->n_dims, tensor->shape, NULL, tensor->bytes);
    (void)fprintf(to->index, "%s\"%s\":\"model-%u.safetensors\"", to->tensors > 0 ? "," : "", tensor->name, file);
    to->tensors++;
}

const char *published_folder(const cJSON *model)
{
    folder to = {.path = test_make_folder("published")};
    char path[768], *config = published_config(model);
    test_write_text(to.path, "config.json", config);
    free(config);
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", to.path);
    to.index = fopen(path, "wb");
    assert_non_null(to.index);
    (void)fprintf(to.index, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
    for (unsigned i = 0; i < FILES; i++) safetensors_start(&to.files[i]);
    published_each(model, add, &to);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "%s/model-%u.safetensors", to.path, i);
        safetensors_save(&to.files[i], path);
        safetensors_end(&to.files[i]);
    }
    (void)fprintf(to.index, "}}");
    assert_int_equal(fclose(to.index), 0);
    return to.path;
}

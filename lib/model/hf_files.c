/* Which safetensors files of a folder count: those that the index names, or the only one. */
#include "model/hf.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_NAME "model.safetensors.index.json"

typedef struct index_walk {
    ofl_model *model;
    const char *folder;
    uint32_t *files; /* model's files in order of their names */
    uint64_t file_capacity;
    const char *last_file;   /* entries of one file often follow each other */
    const uint32_t *by_name; /* tensors in order of their names */
    uint64_t next;           /* where the entry after the last one is looked for first: an index is often sorted too */
} index_walk;

static const char *join(ofl_model *model, const char *folder, const char *name)
{
    char *joined = ofl_format("%s/%s", folder, name);
    const char *kept = joined != NULL ? ofl_model_text(model, joined, strlen(joined)) : NULL;
    ofl_free(joined);
    return kept;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Whether a file was read already, by its name alone; else *at_out is its place among those that were. */
static bool known_file(index_walk *walk, const char *name, uint64_t *at_out)
{
    uint64_t low = 0, high = walk->model->file_count;
    if (walk->last_file != NULL && strcmp(name, walk->last_file) == 0) return true;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const char *file = base_name(walk->model->files[walk->files[middle]].path);
        int order = strcmp(name, file);
        if (order == 0) {
            walk->last_file = file;
            return true;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    *at_out = low;
    return false;
}

static ofl_status check_file_name(const ofl_json_pull *pull, const char *name)
{
    if (name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) return OFL_OK;
    return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\" is no name of a file beside it", pull->reader->path, name);
}

static ofl_status read_file(index_walk *walk, const char *name, const char *tensor, uint64_t at)
{
    ofl_model *model = walk->model;
    uint64_t count = model->file_count;
    const char *path = join(model, walk->folder, name);
    if (path == NULL || !ofl_grow((void **)&walk->files, &walk->file_capacity, count + 1, sizeof *walk->files))
        return ofl_model_out_of_memory(model);
    ofl_status status = ofl_safetensors_read(model, path);
    if (status == OFL_ERROR_NOT_FOUND)
        return ofl_fail(OFL_ERROR_NOT_FOUND, "%s: is missing, but the index names it for tensor %s", path, tensor);
    if (status != OFL_OK) return status;
    memmove(walk->files + at + 1, walk->files + at, (size_t)(count - at) * sizeof *walk->files);
    walk->files[at] = (uint32_t)count;
    return OFL_OK;
}

/* First walk: each file that is named is read once. */
static ofl_status read_named_file(index_walk *walk, ofl_json_pull *pull, const char *tensor)
{
    const char *name = "";
    uint64_t at = 0;
    ofl_status status = ofl_json_pull_string(pull, tensor, &name);
    if (status == OFL_OK) status = check_file_name(pull, name);
    if (status != OFL_OK || known_file(walk, name, &at)) return status;
    return read_file(walk, name, tensor, at);
}

static ofl_tensor *find_tensor(index_walk *walk, const char *name)
{
    uint64_t low = 0, high = walk->model->tensor_count, middle = walk->next;
    for (bool first = true; low < high; first = false) {
        if (!first || middle >= high) middle = low + (high - low) / 2;
        ofl_tensor *tensor = &walk->model->tensors[walk->by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0) {
            walk->next = middle + 1;
            return tensor;
        }
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

/* Second walk: each tensor must be where the index says. */
static ofl_status check_named_tensor(index_walk *walk, ofl_json_pull *pull, const char *tensor)
{
    const char *name = "";
    ofl_status status = ofl_json_pull_string(pull, tensor, &name);
    if (status != OFL_OK) return status;
    ofl_tensor *found = find_tensor(walk, tensor);
    if (found == NULL || strcmp(base_name(walk->model->files[found->file].path), name) != 0)
        return ofl_fail(OFL_ERROR_FORMAT, "%s/%s: does not hold tensor %s, which the index says it does", walk->folder, name, tensor);
    found->dropped = false;
    return OFL_OK;
}

typedef ofl_status (*index_entry)(index_walk *walk, ofl_json_pull *pull, const char *tensor);

static ofl_status walk_map(index_walk *walk, ofl_json_pull *pull, index_entry each)
{
    bool more = false;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, "weight_map");
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        char *tensor = ofl_copy_string(ofl_json_pull_text(pull), strlen(ofl_json_pull_text(pull)));
        if (tensor == NULL) return ofl_model_out_of_memory(walk->model);
        status = each(walk, pull, tensor);
        ofl_free(tensor);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    return status;
}

static ofl_status walk_object(index_walk *walk, ofl_json_pull *pull, index_entry each)
{
    bool more = false, found = false;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, "the index");
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        bool map = strcmp(ofl_json_pull_text(pull), "weight_map") == 0;
        if (map && found) return ofl_fail(OFL_ERROR_FORMAT, "%s: two weight_map", pull->reader->path);
        found = found || map;
        status = map ? walk_map(walk, pull, each) : ofl_json_pull_skip(pull);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    if (status == OFL_OK) status = ofl_json_pull_expect(pull, OFL_JSON_END, "the index's end");
    if (status == OFL_OK && !found) return ofl_fail(OFL_ERROR_FORMAT, "%s: weight_map is missing", pull->reader->path);
    return status;
}

static ofl_status walk_index(index_walk *walk, const char *path, index_entry each)
{
    ofl_reader reader;
    ofl_json_pull pull;
    ofl_status status = ofl_reader_open(&reader, path);
    if (status != OFL_OK) return status;
    ofl_json_pull_start(&pull, &reader);
    status = walk_object(walk, &pull, each);
    ofl_json_pull_end(&pull);
    ofl_reader_close(&reader);
    return status;
}

static ofl_status note_dropped(ofl_model *model)
{
    uint64_t dropped = 0, bytes = 0;
    const char *first = NULL;
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        if (!model->tensors[i].dropped) continue;
        if (first == NULL) first = model->tensors[i].name;
        bytes += model->tensors[i].bytes;
        dropped++;
    }
    if (dropped == 0) return OFL_OK;
    return ofl_model_add_note(model, "in the files but not in the index, and not counted: %s%s (%llu in all, %s)", first,
                              dropped > 1 ? ", …" : "", (unsigned long long)dropped, ofl_bytes_text(bytes).text);
}

static ofl_status read_index(ofl_model *model, const char *folder, const char *path)
{
    uint32_t *by_name = NULL;
    index_walk walk = {.model = model, .folder = folder};
    ofl_status status = walk_index(&walk, path, read_named_file);
    ofl_free(walk.files);
    if (status == OFL_OK) status = ofl_model_check_names(model, &by_name);
    if (status != OFL_OK) return status;
    walk.by_name = by_name;
    for (uint64_t i = 0; i < model->tensor_count; i++) model->tensors[i].dropped = true;
    status = walk_index(&walk, path, check_named_tensor);
    ofl_free(by_name);
    return status == OFL_OK ? note_dropped(model) : status;
}

static bool is_safetensors(const char *name)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(name);
    return length > sizeof ending - 1 && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

/* Counts the folder's files; the first two in order of name are kept for sentences. */
typedef struct listing {
    uint64_t count;
    char first[256], second[256];
} listing;

static ofl_status list(const char *folder, listing *out)
{
    DIR *directory = opendir(folder);
    if (directory == NULL) return ofl_fail_code(OFL_ERROR_IO, errno, "%s: %s", folder, strerror(errno));
    *out = (listing){0};
    for (const struct dirent *item = readdir(directory); item != NULL; item = readdir(directory)) {
        if (!is_safetensors(item->d_name)) continue;
        out->count++;
        if (out->count == 1 || strcmp(item->d_name, out->first) < 0) {
            memcpy(out->second, out->first, sizeof out->second);
            (void)snprintf(out->first, sizeof out->first, "%s", item->d_name);
        } else if (out->count == 2 || strcmp(item->d_name, out->second) < 0) {
            (void)snprintf(out->second, sizeof out->second, "%s", item->d_name);
        }
    }
    (void)closedir(directory);
    return OFL_OK;
}

static ofl_status note_ignored(ofl_model *model, const listing *found)
{
    if (found->count <= model->file_count) return OFL_OK;
    return ofl_model_add_note(model, "%llu safetensors files are ignored, since %s does not name them",
                              (unsigned long long)(found->count - model->file_count), INDEX_NAME);
}

static ofl_status read_only_file(ofl_model *model, const char *folder, const listing *found)
{
    if (found->count == 0) return ofl_fail(OFL_ERROR_NOT_FOUND, "%s: holds no safetensors file", folder);
    if (found->count > 1)
        return ofl_fail(
            OFL_ERROR_FORMAT,
            "%s: holds %llu safetensors files (%s, %s, …) and no %s: which of them make the model is not known; move the others away",
            folder, (unsigned long long)found->count, found->first, found->second, INDEX_NAME);
    const char *path = join(model, folder, found->first);
    return path != NULL ? ofl_safetensors_read(model, path) : ofl_model_out_of_memory(model);
}

ofl_status ofl_hf_read_files(ofl_model *model, const char *folder)
{
    listing found;
    struct stat about;
    const char *index = join(model, folder, INDEX_NAME);
    if (index == NULL) return ofl_model_out_of_memory(model);
    ofl_status status = list(folder, &found);
    if (status != OFL_OK) return status;
    if (stat(index, &about) != 0) return read_only_file(model, folder, &found);
    status = read_index(model, folder, index);
    return status == OFL_OK ? note_ignored(model, &found) : status;
}

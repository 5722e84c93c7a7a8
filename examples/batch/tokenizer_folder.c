/* A tokenizer from a Hugging Face folder: tokenizer.json, and what the files beside it say. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "batch/tokenizer_json.h"
#include "common/utf8.h"

#define MAX_FILE_BYTES (256u << 20)

typedef struct text_file {
    char path[4096];
    char *text; /* NUL after it; NULL: there is no such file */
    size_t bytes;
} text_file;

static ofl_status read_opened(FILE *stream, text_file *file)
{
    struct stat about;
    if (fstat(fileno(stream), &about) != 0 || !S_ISREG(about.st_mode)) return app_fail(OFL_ERROR_IO, "%s: not a regular file", file->path);
    if (about.st_size > MAX_FILE_BYTES) return app_fail(OFL_ERROR_UNSUPPORTED, "%s: larger than 256 MiB", file->path);
    size_t room = (size_t)about.st_size;
    char *text = malloc(room + 1);
    if (text == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", file->path);
    size_t got = fread(text, 1, room, stream);
    if (got != room) {
        free(text);
        return app_fail(OFL_ERROR_IO, "%s: cannot be read to its end", file->path);
    }
    text[room] = 0;
    file->text = text;
    file->bytes = room;
    return OFL_OK;
}

/* A file that is not there is no failure; one that cannot be read is. */
static ofl_status read_file(const char *folder, const char *name, text_file *file)
{
    *file = (text_file){0};
    int length = snprintf(file->path, sizeof file->path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof file->path) return app_fail(OFL_ERROR_ARGUMENT, "%s: the path is too long", name);
    FILE *stream = fopen(file->path, "rb");
    if (stream == NULL) return errno == ENOENT ? OFL_OK : app_fail(OFL_ERROR_IO, "%s: %s", file->path, strerror(errno));
    ofl_status status = read_opened(stream, file);
    (void)fclose(stream);
    return status;
}

/* C strings end at a NUL, so that one in the text would cut a token short. */
static bool has_nul(const text_file *file)
{
    if (memchr(file->text, 0, file->bytes) != NULL) return true;
    for (const char *at = file->text; (at = strchr(at, '\\')) != NULL; at += 2) {
        if (strncmp(at, "\\u0000", 6) == 0) return true;
        if (at[1] == 0) break;
    }
    return false;
}

/* *out NULL: there is no such file. */
static ofl_status read_json(const char *folder, const char *name, cJSON **out)
{
    text_file file;
    *out = NULL;
    ofl_status status = read_file(folder, name, &file);
    if (status != OFL_OK || file.text == NULL) return status;
    if (!utf8_valid(file.text, file.bytes)) status = app_fail(OFL_ERROR_FORMAT, "%s: not valid UTF-8", file.path);
    else if (has_nul(&file)) status = app_fail(OFL_ERROR_FORMAT, "%s: a string holds a NUL character", file.path);
    else *out = cJSON_ParseWithLengthOpts(file.text, file.bytes + 1, NULL, true);
    free(file.text);
    if (status == OFL_OK && !cJSON_IsObject(*out)) {
        cJSON_Delete(*out);
        *out = NULL;
        status = app_fail(OFL_ERROR_FORMAT, "%s: not a JSON object", file.path);
    }
    return status;
}

/* A token of tokenizer_config.json: its text, or an object with it. */
static const char *token_text(const cJSON *config, const char *name)
{
    const cJSON *found = json_member(config, name);
    return cJSON_IsObject(found) ? json_text(found, "content") : cJSON_GetStringValue(found);
}

static ofl_status take_template(tokenizer *t, const char *text)
{
    free(t->chat_template);
    t->chat_template = strdup(text);
    return t->chat_template == NULL ? app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory") : OFL_OK;
}

/* The template, or the one called "default" of several. */
static ofl_status read_template(tokenizer *t, const cJSON *config)
{
    const cJSON *found = json_member(config, "chat_template");
    const char *text = cJSON_GetStringValue(found);
    for (const cJSON *item = cJSON_IsArray(found) ? found->child : NULL; item != NULL && text == NULL; item = item->next) {
        const char *name = json_text(item, "name");
        if (name != NULL && strcmp(name, "default") == 0) text = json_text(item, "template");
    }
    return text == NULL ? OFL_OK : take_template(t, text);
}

static ofl_status read_config(tokenizer *t, const char *folder)
{
    cJSON *config;
    ofl_status status = read_json(folder, "tokenizer_config.json", &config);
    if (status != OFL_OK || config == NULL) return status;
    const char *begin = token_text(config, "bos_token"), *end = token_text(config, "eos_token");
    const cJSON *add = json_member(config, "add_bos_token");
    if (cJSON_IsBool(add)) t->begin = cJSON_IsTrue(add) && begin != NULL ? tokenizer_find(t, begin) : -1;
    int32_t id = end == NULL ? -1 : tokenizer_find(t, end);
    if (id >= 0) status = tokenizer_add_end(t, id);
    if (status == OFL_OK) status = read_template(t, config);
    cJSON_Delete(config);
    return status;
}

/* eos_token_id of a model's or a generation's settings: a number or a list. Ids that the tokenizer does not have can never come up. */
static ofl_status read_ends(tokenizer *t, const char *folder, const char *name)
{
    cJSON *config;
    ofl_status status = read_json(folder, name, &config);
    if (status != OFL_OK || config == NULL) return status;
    const cJSON *ids = json_member(config, "eos_token_id"), *item = cJSON_IsArray(ids) ? ids->child : ids;
    for (; item != NULL && status == OFL_OK; item = cJSON_IsArray(ids) ? item->next : NULL) {
        int64_t id = json_id(item);
        if (id < 0) status = app_fail(OFL_ERROR_FORMAT, "%s/%s: eos_token_id: not the number of a token", folder, name);
        else if ((size_t)id < t->words.count) status = tokenizer_add_end(t, id);
    }
    cJSON_Delete(config);
    return status;
}

static ofl_status read_template_file(tokenizer *t, const char *folder)
{
    text_file file;
    ofl_status status = read_file(folder, "chat_template.jinja", &file);
    if (status == OFL_OK && file.text != NULL) status = take_template(t, file.text);
    free(file.text);
    return status;
}

ofl_status tokenizer_load_folder(tokenizer *t, const char *folder)
{
    cJSON *root;
    ofl_status status = read_json(folder, "tokenizer.json", &root);
    if (status != OFL_OK) return status;
    if (root == NULL) return app_fail(OFL_ERROR_NOT_FOUND, "%s/tokenizer.json: not found; other forms of tokenizer cannot be read", folder);
    char name[300];
    (void)snprintf(name, sizeof name, "%.280s/tokenizer.json", folder);
    status = tokenizer_json_read(t, root, name);
    cJSON_Delete(root);
    if (status == OFL_OK) status = read_config(t, folder);
    if (status == OFL_OK) status = read_ends(t, folder, "generation_config.json");
    if (status == OFL_OK) status = read_ends(t, folder, "config.json");
    if (status == OFL_OK) status = read_template_file(t, folder);
    return status == OFL_OK ? tokenizer_add_known_ends(t) : status;
}

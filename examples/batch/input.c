#include "batch/input.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static ofl_status no_memory(const input *in) { return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", in->path); }

static hash128 hash_id(const char *custom_id) { return hash128_add(HASH128_START, custom_id, strlen(custom_id)); }

/* The id is needed before all else, even of lines that turn out to be errors. */
static ofl_status note_id(input *in, const jsonl_line *line, input_entry *entry)
{
    char why[100];
    in->text.bytes = 0;
    if (!buffer_add(&in->text, line->text, line->bytes)) return no_memory(in);
    cJSON *tree = jsonl_parse(in->text.data, line->bytes, why, sizeof why);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(tree, "custom_id");
    entry->has_id = cJSON_IsString(id);
    if (entry->has_id) {
        entry->id = hash_id(id->valuestring);
        in->id_count++;
    }
    cJSON_Delete(tree);
    return OFL_OK;
}

static ofl_status add_line(input *in, const jsonl_line *line)
{
    void *room = in->entries;
    if (line->blank) return OFL_OK;
    if (in->count == UINT32_MAX) return app_fail(OFL_ERROR_ARGUMENT, "%s: more than %u requests; split the file", in->path, UINT32_MAX);
    if (!grow(&room, &in->capacity, in->count + 1, sizeof *in->entries)) return no_memory(in);
    in->entries = room;
    input_entry *entry = &in->entries[in->count++];
    *entry = (input_entry){.offset = line->offset, .line = line->number, .bytes = line->bytes, .too_long = line->too_long};
    return line->too_long ? OFL_OK : note_id(in, line, entry);
}

static ofl_status read_lines(input *in)
{
    jsonl_reader reader;
    jsonl_line line;
    jsonl_begin(&reader, in->fd, in->path);
    ofl_status status;
    while ((status = jsonl_next(&reader, &line)) == OFL_OK) {
        status = add_line(in, &line);
        if (status != OFL_OK) break;
    }
    in->hash = reader.hash;
    jsonl_end(&reader);
    return status == OFL_END ? OFL_OK : status;
}

static int compare_ids(const void *a, const void *b, void *context)
{
    const input *in = context;
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    int order = hash128_compare(in->entries[first].id, in->entries[second].id);
    return order != 0 ? order : first < second ? -1 : first > second;
}

/* Equal hashes: the ids themselves decide. */
static ofl_status check_pair(input *in, const input_entry *first, const input_entry *second)
{
    request a, b;
    line_error error;
    bool parsed;
    ofl_status status = input_parse(in, first, &a, &error, &parsed);
    if (status == OFL_OK) status = input_parse(in, second, &b, &error, &parsed);
    else b = (request){0};
    if (status == OFL_OK && a.custom_id != NULL && b.custom_id != NULL && strcmp(a.custom_id, b.custom_id) == 0)
        status = app_fail(OFL_ERROR_ARGUMENT, "%s: custom_id \"%.80s\" is on line %llu and again on line %llu; make each unique", in->path, a.custom_id,
                          (unsigned long long)first->line, (unsigned long long)second->line);
    request_free(&a);
    request_free(&b);
    return status;
}

static ofl_status sort_ids(input *in)
{
    in->by_id = calloc(in->id_count + 1, sizeof *in->by_id);
    if (in->by_id == NULL) return no_memory(in);
    size_t at = 0;
    for (size_t i = 0; i < in->count; i++) {
        if (in->entries[i].has_id) in->by_id[at++] = (uint32_t)i;
    }
    qsort_r(in->by_id, in->id_count, sizeof *in->by_id, compare_ids, in);
    for (size_t i = 1; i < in->id_count; i++) {
        const input_entry *first = &in->entries[in->by_id[i - 1]], *second = &in->entries[in->by_id[i]];
        if (hash128_compare(first->id, second->id) != 0) continue;
        ofl_status status = check_pair(in, first, second);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

ofl_status input_open(const char *path, input *out)
{
    struct stat about;
    /* Not to wait for the writer of a pipe, which is refused anyway. */
    input in = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (in.fd < 0) return app_fail(OFL_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    ofl_status status = OFL_OK;
    if (fstat(in.fd, &about) != 0) status = app_fail(OFL_ERROR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode)) status = app_fail(OFL_ERROR_IO, "%s: no regular file; lines are read again later, so save them to one first", path);
    if (status == OFL_OK) status = read_lines(&in);
    if (status == OFL_OK && in.count == 0) status = app_fail(OFL_ERROR_ARGUMENT, "%s: there is no request in it", path);
    if (status == OFL_OK) status = sort_ids(&in);
    if (status == OFL_OK) *out = in;
    else input_close(&in);
    return status;
}

void input_close(input *in)
{
    if (in->fd >= 0) (void)close(in->fd);
    free(in->entries);
    free(in->by_id);
    buffer_free(&in->text);
    *in = (input){.fd = -1};
}

ofl_status input_read(input *in, const input_entry *entry, char **text_out)
{
    void *room = in->text.data;
    if (!grow(&room, &in->text.capacity, (size_t)entry->bytes + 1, 1)) return no_memory(in);
    in->text.data = room;
    size_t done = 0;
    while (done < entry->bytes) {
        ssize_t got = pread(in->fd, in->text.data + done, entry->bytes - done, (off_t)(entry->offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return app_fail(OFL_ERROR_IO, "%s: reading line %llu failed: %s", in->path, (unsigned long long)entry->line, strerror(errno));
        if (got == 0) return app_fail(OFL_ERROR_IO, "%s: was cut while it was in use; line %llu is gone", in->path, (unsigned long long)entry->line);
        done += (size_t)got;
    }
    in->text.data[entry->bytes] = '\0';
    in->text.bytes = entry->bytes;
    *text_out = in->text.data;
    return OFL_OK;
}

ofl_status input_parse(input *in, const input_entry *entry, request *out, line_error *error, bool *parsed_out)
{
    char *text;
    *out = (request){0};
    *parsed_out = false;
    if (entry->too_long) {
        request_refuse(error, "line_too_long", "", "the line is longer than %u MiB, the most that is read", JSONL_MAX_LINE_BYTES >> 20);
        return OFL_OK;
    }
    ofl_status status = input_read(in, entry, &text);
    if (status != OFL_OK) return status;
    *parsed_out = request_parse(text, entry->bytes, out, error);
    if (entry->has_id && (out->custom_id == NULL || hash128_compare(hash_id(out->custom_id), entry->id) != 0))
        return app_fail(OFL_ERROR_IO, "%s: was changed while it was in use: line %llu is another one", in->path, (unsigned long long)entry->line);
    return OFL_OK;
}

input_entry *input_find_id(input *in, const char *custom_id)
{
    hash128 wanted = hash_id(custom_id);
    size_t low = 0, high = in->id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        input_entry *entry = &in->entries[in->by_id[middle]];
        int order = hash128_compare(entry->id, wanted);
        if (order == 0) return entry;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

input_entry *input_find_line(input *in, uint64_t line)
{
    size_t low = 0, high = in->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (in->entries[middle].line == line) return &in->entries[middle];
        if (in->entries[middle].line < line) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

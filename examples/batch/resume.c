#include "batch/resume.h"

#include <unistd.h>

#include "batch/record.h"

static input_entry *find_entry(input *in, const record_head *head)
{
    if (head->custom_id != NULL) return input_find_id(in, head->custom_id);
    return input_find_line(in, head->line);
}

/* end: where the next line begins. */
static ofl_status mark(input *in, const output *o, const jsonl_line *line, uint64_t end, const record_head *head, resume_found *found)
{
    input_entry *entry = find_entry(in, head);
    const char *id = head->custom_id != NULL ? head->custom_id : "null";
    if (entry == NULL || entry->state == ENTRY_ELSEWHERE)
        return app_fail(OFL_ERROR_FORMAT, "%s: line %llu answers \"%.60s\", which is not asked here; give --overwrite to start anew", o->path,
                        (unsigned long long)line->number, id);
    if (entry->state != ENTRY_WAITING)
        return app_fail(OFL_ERROR_FORMAT, "%s: line %llu answers \"%.60s\" a second time; give --overwrite to start anew", o->path,
                        (unsigned long long)line->number, id);
    entry->state = head->failed ? ENTRY_FAILED : ENTRY_ANSWERED;
    entry->written_part = o->part;
    entry->written_offset = line->offset;
    entry->written_bytes = (uint32_t)(end - line->offset);
    found->answered += !head->failed;
    found->failed += head->failed;
    return OFL_OK;
}

/* The last line, without its LF: a whole record gets it, anything else is cut off. */
static ofl_status repair_end(output *o, const jsonl_line *line, bool whole, resume_found *found)
{
    found->repaired = true;
    if (o->read_only) return OFL_OK;
    return whole ? output_append(o, "\n", 1) : output_cut(o, line->offset);
}

static ofl_status take_line(input *in, output *o, const jsonl_line *line, uint64_t end, buffer *copy, resume_found *found)
{
    record_head head = {0};
    copy->bytes = 0;
    if (line->blank && line->ended) return OFL_OK;
    if (line->text != NULL && !buffer_add(copy, line->text, line->bytes)) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", o->path);
    bool whole = line->text != NULL && record_read(copy->data, copy->bytes, &head);
    ofl_status status = OFL_OK;
    if (!line->ended) status = repair_end(o, line, whole, found);
    else if (!whole)
        status = app_fail(OFL_ERROR_FORMAT, "%s: line %llu is no record of this program; give --overwrite to start anew", o->path,
                          (unsigned long long)line->number);
    if (status == OFL_OK && whole) status = mark(in, o, line, line->ended ? end : end + 1, &head, found);
    free(head.custom_id);
    return status;
}

ofl_status resume_read(input *in, output *o, resume_found *found)
{
    jsonl_reader reader;
    jsonl_line line;
    buffer copy = {0};
    ofl_status status;
    *found = (resume_found){0};
    if (lseek(o->fd, 0, SEEK_SET) != 0) return app_fail(OFL_ERROR_IO, "%s: cannot be read from its start", o->path);
    jsonl_begin(&reader, o->fd, o->path);
    while ((status = jsonl_next(&reader, &line)) == OFL_OK) {
        status = take_line(in, o, &line, reader.offset, &copy, found);
        if (status != OFL_OK || !line.ended) break;
    }
    jsonl_end(&reader);
    buffer_free(&copy);
    return status == OFL_END || status == OFL_OK ? output_sync(o, true) : status;
}

ofl_status resume_copy(const output *from, output *to, input_entry *entry, buffer *room)
{
    void *data = room->data;
    if (!grow(&data, &room->capacity, entry->written_bytes, 1)) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", from->path);
    room->data = data;
    ofl_status status = output_read(from, entry->written_offset, entry->written_bytes, room->data);
    if (status != OFL_OK) return status;
    uint64_t offset = to->bytes;
    status = output_append(to, room->data, entry->written_bytes);
    if (status == OFL_OK) entry->written_offset = offset;
    return status;
}

/* In the input's order; error records too unless dropped. */
static ofl_status rewrite(input *in, output *o, bool drop_failed)
{
    output_replacement r;
    buffer room = {0};
    ofl_status status = output_replace_begin(o->path, &r);
    if (status != OFL_OK) return status;
    for (size_t i = 0; i < in->count && status == OFL_OK; i++) {
        input_entry *entry = &in->entries[i];
        if (entry->state == ENTRY_ANSWERED || (entry->state == ENTRY_FAILED && !drop_failed)) status = resume_copy(o, &r.out, entry, &room);
        else if (entry->state == ENTRY_FAILED) entry->state = ENTRY_WAITING;
    }
    buffer_free(&room);
    if (status == OFL_OK) return output_replace_finish(&r, o);
    output_replace_cancel(&r);
    return status;
}

ofl_status resume_drop_failed(input *in, output *o) { return rewrite(in, o, true); }
ofl_status resume_order(input *in, output *o) { return rewrite(in, o, false); }

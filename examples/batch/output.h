/* The output file: whole records only, each durable before it counts as done. */
#ifndef OFLOAD_BATCH_OUTPUT_H
#define OFLOAD_BATCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/app_error.h"
#include "common/whole_file.h"

typedef struct output {
    char *path;       /* owned */
    int fd;           /* −1: closed */
    uint64_t bytes;
    bool dirty;       /* written since the last sync */
    bool read_only;
    bool created;     /* by this run */
    uint32_t part;    /* its number among several read together */
    double synced_at; /* seconds, monotonic */
} output;

/* Opens or makes a regular file for appending and locks it: a second run on it is refused. Nothing in it is changed. */
ofl_status output_open(const char *path, output *out);
/* Only to read what is there, without a lock. OFL_END: nothing. */
ofl_status output_open_read(const char *path, output *out);
/* Appends one record (its LF included) with one write. On failure (disk full) what was written of it is cut off again. */
ofl_status output_append(output *o, const char *record, size_t bytes);
/* Syncs when something is unsynced, and at least a second old unless `now`. */
ofl_status output_sync(output *o, bool now);
/* Cuts the file to `bytes`. */
ofl_status output_cut(output *o, uint64_t bytes);
/* Syncs and closes; every failure is told. */
ofl_status output_close(output *o);
/* Removes the file when this run made it and wrote nothing to it. */
void output_leave_no_trace(output *o);
/* Closes whatever the state, quietly. */
void output_drop(output *o);

/* A new file of the same name, written beside it and put in its place at once. */
typedef struct output_replacement {
    whole_file file;
    output out; /* beside its place */
} output_replacement;
ofl_status output_replace_begin(const char *path, output_replacement *r);
/* Syncs, renames, syncs the folder. The new file's handle becomes *out, which is dropped first; NULL: closed. */
ofl_status output_replace_finish(output_replacement *r, output *out);
void output_replace_cancel(output_replacement *r);

/* Reads `bytes` at `offset`, all of them. */
ofl_status output_read(const output *o, uint64_t offset, size_t bytes, char *to);

#endif

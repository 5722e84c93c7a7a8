/* A file that is there whole or not at all: written beside its place, as PATH.new, and moved there at the end. */
#ifndef OFLOAD_WHOLE_FILE_H
#define OFLOAD_WHOLE_FILE_H

#include <stddef.h>

#include "common/app_error.h"

typedef struct whole_file {
    char *path;   /* symbolic links followed */
    char *beside; /* owned, both; where to write */
} whole_file;

/* Whether it could be written, before there is anything to write: a rename over a device or a pipe would replace it, so that is refused. */
ofl_status whole_file_check(const char *path);
ofl_status whole_file_begin(const char *path, whole_file *out);
/* What was written is complete: puts it in its place and syncs the folder. It has ended then, whatever the status. */
ofl_status whole_file_finish(whole_file *file);
/* Removes what was written. Nothing where it has ended. */
void whole_file_cancel(whole_file *file);

/* All of a small file, synced. */
ofl_status whole_file_write(const char *path, const char *text, size_t bytes);

#endif

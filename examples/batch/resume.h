/* What an output from an earlier run holds: read, a torn end repaired, each request found in it marked in the input. */
#ifndef OFLOAD_BATCH_RESUME_H
#define OFLOAD_BATCH_RESUME_H

#include "batch/input.h"
#include "batch/output.h"

typedef struct resume_found {
    uint64_t answered, failed;
    bool repaired; /* a torn end was cut off, or a missing last LF added */
} resume_found;

/* Marks entries, with where their records are. A line that is no record, or a request that is there twice or not in the input: OFL_ERROR_FORMAT. */
ofl_status resume_read(input *in, output *o, resume_found *found);
/* Appends an entry's record, read from `from`, to `to`; the entry then says where it is there. room: scratch. */
ofl_status resume_copy(const output *from, output *to, input_entry *entry, buffer *room);
/* Writes the output anew without its error lines; their requests wait again. */
ofl_status resume_drop_failed(input *in, output *o);
/* Writes the output anew in the input's order. */
ofl_status resume_order(input *in, output *o);

#endif

/* A file of weights for `stream --from file`, and how fast it can be read. */
#ifndef OFLOAD_BENCH_STREAM_FILE_H
#define OFLOAD_BENCH_STREAM_FILE_H

#include <ofload/ofload.h>

/* In `folder`, on the disk when this returns; *path_out is for stream_file_drop. */
ofl_status stream_file_make(const char *folder, uint64_t bytes, char **path_out);
void stream_file_drop(char *path); /* NULL is allowed */
/* Bytes per second of reading all of the model, of so many bytes, as the engine does: by three threads, 4 MiB at a time, in order, again,
 * and past the page cache where that can be. */
ofl_status stream_file_rate(const ofl_model *model, uint64_t bytes, double *rate_out);

#endif

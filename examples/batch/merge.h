/* ofload-batch merge: shards into one file, each request of the input there exactly once. */
#ifndef OFLOAD_BATCH_MERGE_H
#define OFLOAD_BATCH_MERGE_H

/* argv[0] is "merge". Returns the exit status. */
int merge_main(int argc, char **argv);

#endif

/* Reads a plan's JSON value by value; after the first failure nothing more is read and nothing more is said. */
#ifndef OFLOAD_LIB_JSON_READ_H
#define OFLOAD_LIB_JSON_READ_H

#include "base/json.h"

typedef struct ofl_json_reader { ofl_status status; } ofl_json_reader;

void ofl_read_refuse(ofl_json_reader *r, const char *what); /* OFL_ERROR_FORMAT */
void ofl_read_no_memory(ofl_json_reader *r);
/* An object or array of that name; NULL when there is none. */
const cJSON *ofl_read_member(ofl_json_reader *r, const cJSON *object, const char *key, int array);
/* Whole, from 0 to `most`; below 2^53; 32 bits; any number from 0. 0 after a failure. */
uint64_t ofl_read_number(ofl_json_reader *r, const cJSON *object, const char *key, uint64_t most);
uint64_t ofl_read_size(ofl_json_reader *r, const cJSON *object, const char *key);
uint32_t ofl_read_count(ofl_json_reader *r, const cJSON *object, const char *key);
double ofl_read_real(ofl_json_reader *r, const cJSON *object, const char *key);
bool ofl_read_flag(const cJSON *object, const char *key); /* not there: false */
/* Borrowed from the tree, "" after a failure; a copy, NULL after a failure. */
const char *ofl_read_string(ofl_json_reader *r, const cJSON *object, const char *key);
char *ofl_read_text(ofl_json_reader *r, const cJSON *object, const char *key);
/* The i for which name(i) is what is there; names end with "?". */
int ofl_read_kind(ofl_json_reader *r, const cJSON *object, const char *key, const char *(*name)(int));

#endif

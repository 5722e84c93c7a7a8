/* Published models in tests/golden/models/published.json: a list of {name, config, expect, tensors[pattern shape dtype axes]}; each '#' of
 * a pattern runs over one axis, a list of ranges. "Infinity!" in a config stands for the bare word that the published file has. */
#ifndef OFLOAD_TEST_PUBLISHED_H
#define OFLOAD_TEST_PUBLISHED_H

#include "support/safetensors_writer.h"

#include <cjson/cJSON.h>

/* The whole list; cJSON_Delete it. */
cJSON *published_models(void);
/* true → 1; 0 where there is no such number. All are below 2^53. */
uint64_t published_number(const cJSON *object, const char *key);
/* A config as the published file has it; free() it. */
char *published_config(const cJSON *model);

typedef struct published_tensor {
    const char *name, *dtype;
    uint32_t n_dims;
    uint64_t shape[8]; /* the last one is contiguous */
    uint64_t bytes;
} published_tensor;
/* Each tensor of a model, in the list's order. */
void published_each(const cJSON *model, void (*each)(void *context, const published_tensor *tensor), void *context);
/* The model's folder without data, in a few files with an index; static path. */
const char *published_folder(const cJSON *model);

#endif

/* Causal grouped-query attention of a step's shares over the paged KV cache. A token's result depends on its own sequence alone, to the
 * bit. */
#ifndef OFLOAD_BATCH_CPU_ATTENTION_H
#define OFLOAD_BATCH_CPU_ATTENTION_H

#include <ofload/front.h>

#include "batch/kv.h"

#define ATTENTION_ROWS 16u /* query rows (tokens × heads of a group) that share a loaded span */

typedef struct attention {
    const kv_cache *cache;
    uint32_t heads; /* of the queries */
    float scale;
    const ofl_step_item *items;
    uint32_t item_count;
    uint32_t layer;
    const float *queries; /* row of a token: stride apart, heads × dim */
    uint64_t query_stride;
    float *outputs; /* heads × dim a token, contiguous */
} attention;

/* Keys and values of the step's own tokens must be in the cache. */
ofl_status attention_run(const attention *a, uint32_t threads);

#endif

/* What a run asks of a model: text to tokens and back, and steps. One table, so that tests can drive a run without a forward pass; the real one is
 * setup.c. */
#ifndef OFLOAD_BATCH_BACKEND_H
#define OFLOAD_BATCH_BACKEND_H

#include <ofload/ofload.h>

#include "batch/choose.h"
#include "batch/request.h"

typedef struct backend_load { /* what the input asks for */
    uint64_t context_tokens;  /* the longest request, prompt and answer */
    uint64_t typical_tokens;  /* of a request at a random moment of the run: the long ones stay longer */
    uint64_t requests;        /* waiting, each choice counted */
    double greedy_share;      /* of them */
} backend_load;

typedef struct backend_figures { /* of the device, after a run */
    uint64_t peak_device_bytes, budget_bytes, plan_bytes; /* of the first plan, the largest */
    uint64_t streamed_bytes;  /* since the first step */
    double link_bytes_per_second; /* what the machine's link can do; 0: not known */
    double wait_seconds;      /* compute waited for bytes */
    double bound_seconds;     /* Σ over the steps that ran of max(link, compute), compute as measured; 0: not known */
    const char *device;
    bool simulated;
} backend_figures;

typedef struct backend_limits { /* of a step and of what runs at once */
    uint32_t tokens_per_step, prefill_chunk_tokens, sequences;
    uint64_t kv_tokens;
} backend_limits;

typedef struct backend_step { /* of the step that ran last, seconds on the device's clock */
    double streamed_bytes;
    double wait_seconds;      /* compute waited for bytes */
} backend_step;

typedef struct backend {
    void *context;
    const char *model_name, *model_identity, *compute, *kv_type, *chat_template; /* borrowed; "" where there is none */
    const char *weights_hash; /* of contents_hash */
    uint32_t usable_ids;      /* ids below this have a meaning */
    uint64_t context_given;   /* 0: by the longest request */
    uint64_t context_limit;   /* no request may be longer; 0: no limit known */
    /* OFL_ERROR_ARGUMENT: this request cannot be a prompt, and app_error() says why. Anything else ends the run. */
    ofl_status (*encode)(void *context, const request *r, token_list *out);
    const char *(*bytes)(void *context, int32_t id, size_t *bytes_out);
    bool (*is_end)(void *context, int32_t id);
    /* The plan for this load. */
    ofl_status (*plan)(void *context, const backend_load *load, const ofl_plan **out);
    /* Loads the weights: from here on steps can run. */
    ofl_status (*load)(void *context);
    /* rows: one for each item that wants logits, in their order. OFL_ERROR_DEVICE_MEMORY: the step did not run; less may. So too from load. */
    ofl_status (*step)(void *context, const ofl_step *step, const int32_t *tokens, row_choice *rows);
    /* Holds less device memory from now on, under the same plan; what KV holds stays where kv_tokens is as before. NULL: cannot. */
    ofl_status (*shrink)(void *context, const backend_limits *limits);
    /* Unloads, and plans for less: for what is there now, if that is less than before, else for a part of it. The old plan is gone. The load is as it
     * was. *bytes_out: of the new plan. OFL_ERROR_NO_FIT. NULL: cannot. */
    ofl_status (*plan_less)(void *context, const backend_load *load, const ofl_plan **out, uint64_t *bytes_out);
    double (*now)(void *context); /* seconds on the device's clock */
    void (*last_step)(void *context, backend_step *out); /* NULL: not known */
    void (*figures)(void *context, backend_figures *out);
} backend;

#endif

/* Ways to run a model that is bigger than the device's memory, each with its forecast, what it needs and what it costs. */
#ifndef OFLOAD_PLAN_WAYS_H
#define OFLOAD_PLAN_WAYS_H

#include <stdbool.h>

#include <cjson/cJSON.h>

#include "plan/compare.h"

#define WAYS_MOST 16u
#define WAY_WORDS 240u
#define WAYS_QUEUE_MOST 65536u /* sequences at once that are looked at for a long queue */

/* A plan's figures. */
typedef struct planned {
    bool fits;
    ofl_budget budget;
    ofl_plan_settings settings;
    ofl_forecast forecast;
} planned;

/* What all ways start from. */
typedef struct ways_job {
    compare_job given;
    const compare_options *options;
    ofl_model_shape shape;
    planned base;
    ofl_plan *whole; /* owned: the same job on a device with memory for all of it, so that only compute counts */
    planned all;     /* its figures */
    uint32_t gpus;   /* given or found; 0: not known */
    double peer_measured; /* bytes/s to another GPU, measured here; 0: not */
} ways_job;

typedef struct way_rate { uint32_t sequences; double step_seconds, tokens_per_second; } way_rate; /* tokens_per_second 0: no forecast */

typedef struct way {
    char name[24];              /* "offload", "split-layers", … */
    char title[48];             /* for people */
    bool fits;                  /* in what was given */
    bool kept;                  /* weights and KV as precise as they are planned now */
    way_rate job, queue;        /* at the job's sequences; planned for a long queue */
    double error_percent;
    uint64_t device_bytes, host_bytes; /* on each card, headroom left out; on the host */
    ofl_source sources[OFL_FIGURE_COUNT]; /* of the figures that the forecast stands on; OFL_SOURCE_NONE: not one of them */
    char needs[WAY_WORDS], costs[WAY_WORDS];
    char why[WAY_WORDS];        /* why there is no forecast; "" where there is one */
    char *command;              /* owned: shows this way's plan; NULL: no command does */
    cJSON *details;             /* owned: numbers of this way alone; may be NULL */
} way;

typedef struct ways { way rows[WAYS_MOST]; uint32_t count; } ways;

/* Fills `list`, the best first; free it whatever the outcome. */
ofl_status ways_collect(const compare_job *job, const compare_options *options, ways *list);
void ways_free(ways *list);

/* Below: for the files that make the ways. */

/* A plan's figures. */
ofl_status ways_read(const ofl_plan *plan, planned *out);
/* Plans; one that does not fit is no failure. */
ofl_status ways_plan(const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload, planned *out);
/* The same job for a long queue: sequences and layout chosen for it. */
ofl_workload ways_for_queue(const ofl_workload *workload);
/* A copy of the machine with one figure changed; destroy it. */
ofl_status ways_machine_with(const ofl_machine *machine, ofl_figure figure, double value, ofl_machine **out);
/* A row with nothing but its name and title. */
way *ways_add(ways *list, const char *name, const char *title);
/* Forecast, memory and sources of a way that is really planned. */
ofl_status ways_fill(way *out, const ways_job *job, const ofl_model *model, const ofl_workload *workload);
/* A figure by hand, else the machine's. 0 and OFL_SOURCE_NONE: there is no source. */
double ways_rate(const ways_job *job, ofl_figure figure, ofl_source *source_out);
/* Compute of the whole model for a decode step of so many sequences at mid-context. */
ofl_status ways_compute_seconds(const ways_job *job, uint32_t sequences, double *out);
/* Of the activations of the largest step with so many sequences: hidden values, and logits, in bytes. */
ofl_status ways_activations(const ways_job *job, uint32_t sequences, uint64_t *hidden_out, uint64_t *logits_out);
/* The best rate for a long queue, by doubling the sequences as long as they fit: more of them must bring more than 1 %. rate_of gives the
 * rate with so many at once, or says that they do not fit. */
typedef ofl_status (*ways_rate_of)(const void *context, uint32_t sequences, bool *fits_out, way_rate *out);
ofl_status ways_queue(const ways_job *job, ways_rate_of rate_of, const void *context, way_rate *best);
/* Bytes of one token's hidden values. */
double ways_hidden_bytes(const ways_job *job);
/* Notes compute's figures as sources of the forecast. */
void ways_note_compute(const ways_job *job, way *w);
/* Error of a sum of times whose parts may be off by a percentage each. */
double ways_error(double seconds_a, double percent_a, double seconds_b, double percent_b);

/* Counts the GPUs that are there, where they are not given, and measures the rate between two of them, where it is not known. */
void ways_find_peers(ways_job *job);
ofl_status ways_add_quantised(ways *list, const ways_job *job);
ofl_status ways_add_split(ways *list, const ways_job *job);
ofl_status ways_add_host(ways *list, const ways_job *job);

/* `ofload-plan` as it was called, without what only compares, and with NAME VALUE instead of what it said of NAME; `dropped` and
 * `too` left out; each may be NULL. free() it; NULL: out of memory. */
char *command_with(const compare_options *options, const char *name, const char *value, const char *dropped, const char *too);

/* The model with its matrices stored as `dtype` where that is smaller and their rows are whole blocks of it; without bytes. *changed_out
 * and *kept_out: matrices stored so, and those that stay. */
ofl_status store_as(const ofl_model *model, ofl_dtype dtype, ofl_model **out, uint32_t *changed_out, uint32_t *kept_out);
extern const ofl_dtype store_types[]; /* those tried, most bits first; ends with OFL_DTYPE_F32 */
double store_bits(ofl_dtype dtype);

/* Weights and KV by layer; the last row, at count − 1, is the output's. */
typedef struct layer {
    uint64_t bytes;        /* of what a step reads whole, 256-byte aligned tensors, experts too */
    uint64_t expert_bytes; /* of it */
    double elements, expert_elements; /* of its matrices */
    uint64_t kv_bytes;     /* of one sequence of the planned context, with recurrent state */
    uint64_t kv_read;      /* of it, what a decode step reads at mid-context */
    bool kv_by_head;       /* can be divided by KV heads … */
    uint32_t kv_heads;     /* … of this many */
} layer;
typedef struct layers { uint32_t count; layer *rows; uint64_t bytes, lookup_bytes; } layers;
ofl_status layers_read(const ways_job *job, layers *out);
void layers_free(layers *l);

void compare_page(const compare_job *job, const ways *list);
cJSON *ways_to_json(const ways *list);

#endif

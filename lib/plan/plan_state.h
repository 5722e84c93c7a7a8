/* A plan as its makers see it. Data flows one way:
 *   facts (model, machine, job) → cut (slices, units) → room → draft (placement, ring, tiers, budget, step) → forecast, advice → JSON. */
#ifndef OFLOAD_LIB_PLAN_STATE_H
#define OFLOAD_LIB_PLAN_STATE_H

#include <ofload/plan.h>

#include "base/base.h"
#include "base/sha256.h"
#include "plan/copies.h"

#define OFL_KV_BLOCK_TOKENS 16u
#define OFL_COPY_BYTES (UINT64_C(32) << 20)  /* a bigger piece is copied in several goes, so that others get their turn on the link */
#define OFL_PART_LARGEST (UINT64_C(32) << 20)
#define OFL_PART_FINE (UINT64_C(256) << 10)    /* the smallest that is chosen where there is room, … */
#define OFL_PART_SMALLEST (UINT64_C(16) << 10) /* … and where the ring has none for a larger one */
#define OFL_CHUNK_LARGEST 512u
#define OFL_NO_UNIT UINT32_MAX
#define OFL_SEQUENCES_MOST (1u << 20)
#define OFL_TOKENS_MOST (1u << 30)
#define OFL_LARGEST_WHOLE (UINT64_C(1) << 53) /* JSON numbers are read exactly below it */

typedef struct ofl_plan_tensor {
    const char *name; /* in facts.names */
    const char *why;  /* of an unused one: static, or in facts.names */
    uint64_t rows, row_bytes, elements, bytes;
    uint32_t slice_first, slice_count;
    int32_t block;
    uint8_t dtype, tensor_class, role, also_lookup;
    bool vector, small; /* small: always resident */
    bool callers;       /* its bytes are in the caller's memory */
} ofl_plan_tensor;

/* All that a plan knows of model, machine and job; a plan read back has the same. */
typedef struct ofl_plan_facts {
    char *model_name, *architecture, *device, *names;
    char model_identity[OFL_SHA256_HEX], machine_identity[OFL_SHA256_HEX];
    bool simulated;
    bool in_memory; /* the model's bytes are the caller's; not known of a plan read back */
    ofl_model_shape shape;
    ofl_plan_tensor *tensors;
    uint64_t tensor_count;
    uint64_t stored_bytes, dense_bytes, lookup_bytes; /* all tensors; W with experts; looked up by row only */
    uint64_t embedding_bytes;                         /* looked up, tied or not */
    uint64_t kv_bytes_per_token, state_bytes;
    double figures[OFL_FIGURE_COUNT];
    ofl_source sources[OFL_FIGURE_COUNT];
    ofl_compute_point *points, *head_points;
    uint64_t point_count, head_point_count;
    /* attention's per context token of a decoding token and of one of a prompt; the host's per step and row of logits */
    double attention_seconds, prefill_seconds, host_seconds, row_seconds;
    double unit_seconds, piece_seconds; /* and its per unit; more of a streamed one */
    uint64_t headroom_bytes;
} ofl_plan_facts;

/* What of the job is asked for, checked; zero: to be chosen. */
typedef struct ofl_plan_wish {
    ofl_cut cut;
    uint64_t part_bytes, ring_bytes;
    uint32_t sequences, prefill_chunk, cap;
    bool force_layers;
    uint32_t resident_layers;
} ofl_plan_wish;

/* What a unit computes with. Bytes and elements of its matrices. */
typedef struct ofl_unit_load {
    double bytes, elements, expert_bytes, expert_elements;
    bool head;      /* computes on rows that want logits */
    bool attention; /* the block's attention counts here */
} ofl_unit_load;

typedef struct ofl_plan_cut {
    uint64_t part_bytes; /* 0: whole blocks */
    ofl_slice *slices;   /* of units in execution order, then those of lookup tensors */
    ofl_unit *units;
    ofl_unit_load *loads;
    struct ofl_place_item *items; /* place.c works with them */
    uint64_t slice_count, slice_capacity, unit_count, unit_capacity, load_capacity;
    uint32_t unit_slice_count;   /* slices that belong to units */
    uint64_t workspace_elements; /* see ofl_activation_bytes */
    uint64_t small_bytes, movable_bytes; /* with alignment: always resident; placed freely */
    uint64_t largest_unit, largest_block_unit; /* movable bytes of the largest unit (of a block's): no piece is bigger */
} ofl_plan_cut;

/* A streamed unit, as the timeline sees it. */
typedef struct ofl_plan_piece {
    uint64_t bytes;      /* with alignment */
    double copy_seconds; /* all its copies, start cost paid */
    double fill_seconds; /* of the bounce buffers that it passes through; 0: pinned, it passes through none */
    uint64_t chunks;     /* copies */
    uint32_t unit;
} ofl_plan_piece;

typedef enum ofl_plan_keep {
    OFL_KEEP_ODD,  /* all but slices of about the largest size stay: equal pieces need the least ring */
    OFL_KEEP_NONE, /* any slice may be streamed */
    OFL_KEEP_HEAD  /* the output stays, so that the ring need not hold it */
} ofl_plan_keep;

typedef struct ofl_plan_draft {
    ofl_plan_settings settings;
    uint64_t ring_bytes, resident_bytes; /* asked for: the ring, and at most so many bytes of movable slices */
    ofl_plan_keep keep;
    ofl_plan_cut cut;
    ofl_plan_piece *pieces;
    uint64_t piece_count, piece_capacity;
    ofl_budget budget;
    ofl_step_shape shape; /* the planned step */
    ofl_step_estimate step;
} ofl_plan_draft;

#define OFL_PLAN_ROWS 40u
#define OFL_PLAN_ADVICE 8u

struct ofl_plan {
    ofl_plan_facts facts;
    ofl_plan_wish wish;
    ofl_plan_draft draft;
    ofl_forecast forecast;
    ofl_forecast_row rows[OFL_PLAN_ROWS];
    uint32_t row_count;
    char *above_bound_why;
    char *advice[OFL_PLAN_ADVICE];
    uint32_t advice_count;
    char *unit_names;
    char identity[OFL_SHA256_HEX]; /* once identified is 1: when it is first asked for, since hashing takes as long as planning */
    uint32_t identified;
};

/* Neither is NaN: no call, as for fmax. */
static inline double ofl_larger(double a, double b) { return a > b ? a : b; }

/* facts.c */
ofl_status ofl_plan_facts_read(ofl_plan_facts *facts, const ofl_model *model, const ofl_machine *machine);
/* The measured times and points, each by its name; `wrong`: with what it is refused. */
ofl_status ofl_plan_check_times(const ofl_plan_facts *facts, ofl_status wrong);
ofl_status ofl_plan_job_read(ofl_plan_facts *facts, ofl_plan_wish *wish, ofl_plan_settings *settings, const ofl_model *model,
                             const ofl_workload *workload);
void ofl_plan_facts_clear(ofl_plan_facts *facts);
/* Is it a tensor that the device reads whole in each step? */
static inline bool ofl_plan_is_dense(const ofl_plan_tensor *tensor)
{
    return tensor->bytes != 0 && (tensor->tensor_class == OFL_CLASS_DENSE || tensor->tensor_class == OFL_CLASS_EXPERT);
}
static inline uint64_t ofl_plan_align(uint64_t bytes) { return (bytes + OFL_ALIGNMENT_BYTES - 1) & ~(uint64_t)(OFL_ALIGNMENT_BYTES - 1); }

/* units.c */
ofl_status ofl_plan_cut_make(const ofl_plan_facts *facts, uint64_t part_bytes, ofl_compute_type compute_type, ofl_plan_cut *out);
void ofl_plan_cut_clear(ofl_plan_cut *cut);
/* Where streamed slices lie in their pieces, and how large these are, by the slices' tiers. */
void ofl_plan_cut_layout(ofl_plan_cut *cut);
/* What is copied of a piece: up to the end of its last slice. */
uint64_t ofl_plan_piece_data(const ofl_plan_cut *cut, const ofl_unit *unit);
/* In how many copies of at most so many bytes. */
uint64_t ofl_plan_piece_copies(const ofl_plan_facts *facts, const ofl_plan_cut *cut, const ofl_unit *unit, uint64_t most);

/* Into how many units a matrix is cut by parts of this size; the part size at which it makes `parts` equal ones. */
uint64_t ofl_plan_parts_of(const ofl_plan_tensor *tensor, uint64_t part_bytes);
uint64_t ofl_plan_even_part(const ofl_plan_tensor *tensor, uint64_t parts);
/* Do all parts have as many rows, but for the last step of a matrix whose rows are no whole number of steps? */
bool ofl_plan_parts_equal(const ofl_plan_tensor *tensor, uint64_t part_bytes);

/* account.c: the one place where memory is added up. */
/* What one sequence of the planned context needs, and what the region then holds. */
ofl_status ofl_plan_account_kv(const ofl_model *model, ofl_plan_facts *facts, ofl_plan_settings *settings);
void ofl_plan_account_capacity(ofl_plan_settings *settings);
/* All but the weights: kv, activation, runtime, headroom and total of them. OFL_ERROR_OVERFLOW. */
ofl_status ofl_plan_account(const ofl_plan_facts *facts, const ofl_plan_settings *settings, uint64_t workspace_elements, ofl_budget *out);
/* Adds residents and ring. */
ofl_status ofl_plan_account_weights(ofl_budget *budget, uint64_t resident_bytes, uint64_t ring_bytes);

/* compute.c */
typedef struct ofl_step_rates {
    double byte;                                        /* seconds per byte read; 0 with measured points */
    double block, head, expert;                         /* seconds per element */
    double expert_share;                                /* of experts that the step reads */
    double attention;                                   /* seconds per block */
    bool measured, blocks_run, head_runs;
} ofl_step_rates;
void ofl_plan_rates(const ofl_plan_facts *facts, const ofl_step_shape *shape, ofl_step_rates *out);
double ofl_plan_unit_seconds(const ofl_step_rates *rates, const ofl_unit_load *load);
/* Between a step with so many rows of logits and the next. */
static inline double ofl_plan_host_seconds(const ofl_plan_facts *facts, uint32_t rows)
{
    return facts->host_seconds + rows * facts->row_seconds;
}

/* The host's calls for a unit, beside its compute_seconds. */
static inline double ofl_plan_call_seconds(const ofl_plan_facts *facts, const ofl_unit *unit)
{
    return facts->unit_seconds + (unit->piece_bytes != 0 ? facts->piece_seconds : 0);
}

/* place.c: marks slices OFL_TIER_DEVICE or OFL_TIER_PINNED and lays the pieces out. room: for movable slices, with alignment.
 * OFL_NOT_READY (no sentence): what must stay is more than the room. */
ofl_status ofl_plan_place(const ofl_plan_facts *facts, ofl_plan_cut *cut, uint64_t room, ofl_plan_keep keep);
/* Whole blocks, as forced. */
void ofl_plan_place_layers(const ofl_plan_facts *facts, ofl_plan_cut *cut, uint32_t resident_layers);
/* With alignment: residents and two slots; what passes through them in a step. */
typedef struct ofl_forced_layers { uint64_t needed, streamed, ring; } ofl_forced_layers;
ofl_forced_layers ofl_plan_forced_layers(const ofl_plan_facts *facts, uint32_t resident_layers);
uint64_t ofl_plan_resident_bytes(const ofl_plan_cut *cut);
/* exact.c: of so few slices, the best placement by trying all. OFL_NOT_READY (no sentence): none fits. */
bool ofl_plan_is_small(const ofl_plan_facts *facts, const ofl_plan_cut *cut);
ofl_status ofl_plan_place_exactly(const ofl_plan_facts *facts, ofl_plan_draft *draft);
/* tiers.c: streamed and lookup slices to pinned, pageable or file. OFL_ERROR_NO_FIT when host memory and files cannot take them. */
ofl_status ofl_plan_place_host(const ofl_plan_facts *facts, ofl_plan_cut *cut, ofl_budget *budget);
ofl_tier ofl_plan_unit_tier(const ofl_plan_cut *cut, const ofl_unit *unit); /* OFL_TIER_DEVICE: nothing of it is streamed */
/* Bytes per second over the link, from pinned memory or from the bounce buffers; and into these, from a tier that passes through them. */
double ofl_plan_link_rate(const ofl_plan_facts *facts);
double ofl_plan_fill_rate(const ofl_plan_facts *facts, ofl_tier tier);
double ofl_plan_pinnable(const ofl_plan_facts *facts); /* of what is streamed, the most bytes that need no bounce buffers */
/* Of so many bytes, filling the tiers as they will: the longer of their way over the link, with so many seconds for the starts of copies,
 * and of filling the buffers. */
double ofl_plan_link_seconds(const ofl_plan_facts *facts, double streamed, double starts);
/* The most bytes of one copy of a piece from this tier. */
uint64_t ofl_plan_copy_bytes(const ofl_plan_draft *draft, ofl_tier tier);

/* timeline.c */
typedef struct ofl_timeline_input {
    const ofl_plan_piece *pieces;
    uint64_t piece_count;
    const double *lead, *own; /* per piece: seconds of resident units before it; of its own unit */
    double tail, host;        /* of resident units behind the last; between steps */
    uint64_t ring_bytes;
} ofl_timeline_input;
ofl_status ofl_plan_timeline(const ofl_timeline_input *input, ofl_step_estimate *out);

/* draft.c */
ofl_status ofl_plan_draft_pieces(const ofl_plan_facts *facts, ofl_plan_draft *draft);
ofl_status ofl_plan_draft_estimate(const ofl_plan_facts *facts, const ofl_plan_draft *draft, const ofl_step_shape *shape,
                                   ofl_step_estimate *out);
/* Sums, tiers and step of the slices as they are placed. OFL_NOT_READY (no sentence): it does not fit. */
ofl_status ofl_plan_draft_measure(const ofl_plan_facts *facts, ofl_plan_draft *draft);
/* Places and times; settings, cut, ring, resident and keep are given. OFL_NOT_READY (no sentence): it does not fit. */
ofl_status ofl_plan_draft_make(const ofl_plan_facts *facts, const ofl_plan_wish *wish, ofl_plan_draft *draft);
void ofl_plan_draft_clear(ofl_plan_draft *draft);
uint64_t ofl_plan_largest_piece(const ofl_plan_cut *cut);
ofl_step_shape ofl_plan_decode_shape(const ofl_plan_settings *settings, uint32_t sequences);

/* A part size that may be chosen, about how many units it makes of the model, and by what its cost is multiplied for parts that differ. */
typedef struct ofl_plan_part { uint64_t bytes; double units, weight; } ofl_plan_part;
#define OFL_PLAN_PARTS 160u

/* What a search needs of the facts, once for all counts. facts and wish must outlive it. */
typedef struct ofl_plan_search {
    const ofl_plan_facts *facts;
    const ofl_plan_wish *wish;
    ofl_plan_settings settings;
    ofl_plan_draft *scratch;            /* candidates are made here; its cut serves the next one of the same part size */
    uint64_t smallest_part, largest_part;
    ofl_plan_part parts[OFL_PLAN_PARTS]; /* ascending, from smallest to largest */
    uint32_t part_count;
    uint64_t least_ring;                /* the largest piece of the finest cut */
    uint64_t small_bytes, movable_bytes, workspace_elements;
    uint64_t quantum; /* residents are asked for in whole numbers of it */
    ofl_unit_load block, head;
    ofl_forced_layers forced;
    bool tied; /* a tensor is both dense and looked up */
} ofl_plan_search;

/* The division of the device's memory for a number of sequences. */
typedef struct ofl_plan_room {
    ofl_plan_settings settings; /* with sequences, chunk and cap */
    uint64_t weights;           /* for movable slices and ring */
    uint64_t ring, part, resident;
    bool whole;                 /* all is resident, no ring */
} ofl_plan_room;

/* room.c */
ofl_status ofl_plan_search_open(const ofl_plan_facts *facts, const ofl_plan_wish *wish, const ofl_plan_settings *settings,
                                ofl_plan_draft *scratch, ofl_plan_search *out);
/* false: not even the least of weights fits with so many sequences. */
bool ofl_plan_room_of(const ofl_plan_search *search, uint32_t sequences, ofl_plan_room *out);
/* The next part size that differs enough to be tried; 0: none. */
uint64_t ofl_plan_larger_part(const ofl_plan_search *search, uint64_t part);
uint64_t ofl_plan_smaller_part(const ofl_plan_search *search, uint64_t part);
uint32_t ofl_plan_least_chunk(const ofl_plan_search *search, uint32_t sequences);
/* Seconds of a decode step by formula; infinity: does not fit. */
double ofl_plan_coarse_step(const ofl_plan_search *search, uint32_t sequences);

/* solve.c */
ofl_status ofl_plan_solve(const ofl_plan_search *search, ofl_plan_draft *out);
/* The forecast by sequences. */
ofl_status ofl_plan_solve_rows(const ofl_plan_search *search, ofl_plan *plan);
ofl_status ofl_plan_solve_throughput(const ofl_plan_search *search, uint32_t *sequences_out, double *rate_out);

/* forecast.c */
bool ofl_plan_compute_is_assumed(const ofl_plan_facts *facts);
ofl_status ofl_plan_forecast_make(const ofl_plan_search *search, ofl_plan *plan);
/* bound.c: max((W − V)/B, C) of a draft; by what share the step is above it; the sentence why. */
double ofl_plan_lower_bound(const ofl_plan_facts *facts, const ofl_plan_draft *draft);
double ofl_plan_above_bound(const ofl_forecast *forecast);
ofl_status ofl_plan_tell_bound(ofl_plan *plan);
/* advice.c */
ofl_status ofl_plan_advise(const ofl_plan_search *search, ofl_plan *plan);
/* names.c: names of units, slices of tensors. */
ofl_status ofl_plan_finish(ofl_plan *plan);
void ofl_plan_index_tensors(ofl_plan *plan);
/* check.c; its parts and those against the model are in check.h. Do slices, units and sums agree with each other? Written apart from what
 * made them. `status` is what a contradiction is reported as. */
ofl_status ofl_plan_check_sums(const ofl_plan *plan, ofl_status status);
/* What the program calls kinds in JSON. */
const char *ofl_plan_class_name(ofl_tensor_class tensor_class);

#endif

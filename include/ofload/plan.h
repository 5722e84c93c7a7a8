/* A plan: which bytes live where, how they are streamed, and how fast it will be. A value: made from (model, machine, workload), printed,
 * saved, read back.
 *
 * Threads: read-only once made. Ownership: everything handed out is borrowed from the plan.
 * Terms: a unit is what a loop acquires and releases, in execution order; its streamed bytes are one piece, contiguous, each slice
 * 256-byte aligned.
 * A slice is a tensor or a run of its rows. */
#ifndef OFLOAD_PLAN_H
#define OFLOAD_PLAN_H

#include <ofload/machine.h>
#include <ofload/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every slice in a piece, and every resident slice, begins at a multiple of it. */
#define OFL_ALIGNMENT_BYTES 256u
/* Vectors and tensors up to this size are always resident, so that norms and biases have a permanent address; under force_resident_layers
 * the small tensors of a streamed block travel with it. */
#define OFL_SMALL_TENSOR_BYTES 65536u

/* Where bytes live: on the device, in page-locked or other host memory, in a file. */
typedef enum ofl_tier { OFL_TIER_DEVICE, OFL_TIER_PINNED, OFL_TIER_PAGEABLE, OFL_TIER_FILE } ofl_tier;
/* What the plan is best at: the time to each token, or tokens per second over all sequences. */
typedef enum ofl_objective { OFL_LATENCY, OFL_THROUGHPUT } ofl_objective;
/* How dense matrices are cut into units. */
typedef enum ofl_cut {
    OFL_CUT_AUTO, /* row parts, their size chosen with the ring */
    OFL_CUT_OFF,  /* a unit is a whole transformer block */
    OFL_CUT_BYTES /* row parts of at most part_bytes */
} ofl_cut;
/* What weights are expanded to before a product. */
typedef enum ofl_compute_type { OFL_COMPUTE_BF16, OFL_COMPUTE_F32 } ofl_compute_type;

/* One measured point of the compute: at `tokens` tokens in a step, seconds per weight element read (products, with expansion of stored
 * types and all else that grows with the tokens but not with their context). Between points straight lines; below the first its figure,
 * beyond the last time grows with the tokens. Tokens from 1 to 2^30, seconds from 1 / OFL_RATE_MOST to OFL_SECONDS_MOST. */
typedef struct ofl_compute_point { double tokens; double seconds_per_element; } ofl_compute_point;

/* The job to plan for. Each measured time is 0 or from 1 / OFL_RATE_MOST to OFL_SECONDS_MOST seconds, in a plan read back as well. */
typedef struct ofl_workload {
    uint32_t struct_size;          /* sizeof(ofl_workload); all else may be zero */
    ofl_objective objective;
    uint64_t context_tokens;       /* per sequence, prompt and answer; 0: min(4096, trained) */
    uint32_t sequences;            /* decoding at once; 0: chosen (throughput) or 1 (latency) */
    uint32_t prefill_chunk_tokens; /* most prefill tokens in a step; 0: 512, or less where the memory is small */
    uint64_t queue_length;         /* requests waiting; 0: without end */
    uint32_t tokens_per_step_cap;  /* 0: sequences + prefill chunk */
    ofl_kv_type kv_type;
    ofl_cut cut;
    uint32_t force_layers;         /* 1: use force_resident_layers */
    uint64_t part_bytes;           /* with OFL_CUT_BYTES */
    uint32_t force_resident_layers; /* blocks 0…N−1 whole, final norm and head resident, other blocks streamed whole through two slots */
    uint32_t force_headroom;       /* 1: headroom_bytes counts as given, even 0 */
    uint64_t headroom_bytes;
    double headroom_percent;       /* of VRAM; 0 and headroom not forced: 5 */
    ofl_compute_type compute_type;
    uint32_t compute_point_count;  /* measured compute; 0: from the machine's rates */
    const ofl_compute_point *compute_points; /* ascending tokens; borrowed for the call */
    /* measured: seconds per (query token × context token), all layers, of a token that decodes; 0: from the machine's rates */
    double attention_seconds_per_kv_token;
    /* between the last release of a step and the first acquire of the next: sampling, scheduling */
    double host_seconds_per_step;
    uint64_t ring_bytes;           /* 0: chosen */
    uint32_t head_point_count;     /* with compute_points; 0: they count for the head too */
    const ofl_compute_point *head_points; /* of the output head, tokens: rows of logits; ascending, borrowed for the call */
    /* With attention_seconds_per_kv_token. A step counts as many decoding tokens as rows of logits, and its context evenly by tokens. */
    double prefill_attention_seconds_per_kv_token; /* of tokens that share a sequence, and its keys and values; 0: as those that decode */
    double host_seconds_per_row;   /* as host_seconds_per_step, for each row of logits: sampling */
    uint64_t workspace_bytes;      /* device memory of the caller's own beside what ofl_activation_bytes counts, as a library of products
                                      needs; becomes part of the budget's workspace */
    /* Of the loop that computes, where it waits for nothing: acquire and release of a unit; and more for one that is streamed, whose room
     * is given back and taken by the next copy. 0: no time, as for a loop that only queues work in a stream. */
    double host_seconds_per_unit, host_seconds_per_piece;
} ofl_workload;

/* Device memory and traffic, bytes: each number is the one that was planned with and that the engine allocates. */
typedef struct ofl_budget {
    uint32_t struct_size;
    uint64_t vram_bytes;       /* what may be used */
    uint64_t total_bytes;      /* sum of the next six, never above vram_bytes */
    uint64_t resident_bytes;   /* with alignment */
    uint64_t ring_bytes;
    uint64_t kv_bytes;
    uint64_t activation_bytes; /* = ofl_activation_bytes at the largest step; of it logits_bytes and workspace_bytes */
    uint64_t runtime_bytes;
    uint64_t headroom_bytes;
    uint64_t logits_bytes;
    uint64_t workspace_bytes;  /* with the caller's own */
    uint64_t device_bytes, pinned_bytes, pageable_bytes, file_bytes; /* tiers, without alignment */
    uint64_t stream_bytes_per_step;
    uint64_t stream_copies_per_step;
    uint64_t lower_bound_bytes_per_step; /* max(0, W − V), the ring taken as nothing */
} ofl_budget;

/* The workload with every choice made. */
typedef struct ofl_plan_settings {
    uint32_t struct_size;
    ofl_objective objective;
    uint64_t context_tokens;
    uint64_t queue_length;
    uint32_t sequences;
    uint32_t prefill_chunk_tokens;
    uint32_t tokens_per_step_cap;
    uint32_t kv_block_tokens;    /* tokens per paged KV block; a sequence's context is counted in whole blocks */
    ofl_kv_type kv_type;
    ofl_compute_type compute_type;
    uint64_t part_bytes;         /* 0: whole blocks */
    uint64_t copy_bytes;         /* a piece is copied in chunks of at most this */
    uint64_t kv_capacity_tokens; /* over all sequences, at the planned context */
    uint64_t kv_bytes_per_token;
    uint64_t kv_bytes_per_sequence; /* at the planned context, with recurrent state */
    uint32_t max_sequences;      /* at the planned context */
    uint64_t workspace_bytes;    /* the caller's own, of the budget's workspace */
} ofl_plan_settings;

/* A tensor, or a run of its rows. */
typedef struct ofl_slice {
    uint32_t struct_size;
    uint32_t tensor;       /* index in the model */
    uint32_t unit;
    ofl_tier tier;         /* where it lives */
    uint64_t row_first, row_count;
    uint64_t bytes;
    uint64_t piece_offset; /* in its unit's piece, when not resident */
} ofl_slice;

/* What a loop acquires and releases. */
typedef struct ofl_unit {
    uint32_t struct_size;
    const char *name;        /* its first matrix, and "2/5" or "+2" where it is a part of it or there are more; "block 3" for a whole one */
    int32_t block;
    uint32_t slice_first, slice_count;
    uint64_t piece_bytes;    /* with alignment: what it takes in the ring; 0: all resident */
    uint64_t streamed_bytes; /* without */
    double compute_seconds;  /* at the planned step */
} ofl_unit;

/* What a step does. Frozen layout, as that of the estimate: both stand inside other structs (ofl_forecast, ofl_step). */
typedef struct ofl_step_shape {
    uint32_t struct_size;
    uint32_t tokens;       /* all, decode and prefill */
    uint32_t logits_rows;
    uint64_t kv_tokens;    /* Σ over the step's tokens of the context each attends to */
} ofl_step_shape;

/* How long it takes, seconds. Frozen layout. */
typedef struct ofl_step_estimate {
    uint32_t struct_size;
    double step_seconds;       /* steady state, by the timeline of ring, reading, copies and compute */
    /* The way to the device alone: the copies, all at the pinned rate (LINK, or LINK_COMPUTING where that is known and lower and LINK was
     * not given by hand), or, where that takes longer, the filling of the pinned buffers that other memory passes through: pageable memory
     * at LINK_PAGEABLE, which is the host's copying, and the file at FILE, one after the other. Both go on at once. So "bound by the link"
     * means either of them; that the filling binds is seen by the link's idling although link_seconds is the step. */
    double link_seconds;
    double compute_seconds;    /* the compute alone, with the host's seconds per step, row, unit and piece */
    double link_idle_seconds;  /* the step less its copies: filling alone leaves the link idle */
    double stall_seconds;      /* the compute waits for bytes */
    double bound_seconds;      /* max(link, compute) */
} ofl_step_estimate;

/* error_band_percent is that of the side that binds, link or compute, and of the worse one where they are within a tenth of each other:
 *   link     a measured rate 2 %, a given one 4 %, an assumed one 30 %; 5 % more for pageable memory, 10 % more for the file
 *   compute  measured points 5 %; from rates, that of the worse rate (2, 4 or 30 %) and 10 % more
 * The other side counts by as much as it may reach into the step; compute from assumed rates as if it took up to twice as long. At least
 * 3 %; on a simulated device whose compute was measured 5 %, and 20 % where compute binds or is within a tenth of the link, since its copies
 * share the processor and its caches with it. */
typedef struct ofl_forecast {
    uint32_t struct_size;
    uint32_t sequences;
    ofl_step_estimate step;      /* all sequences decoding, at the mean context */
    double error_band_percent;   /* by the sources of its figures, as above */
    double tokens_per_second;
    double first_token_seconds;  /* prompt of context − 1 … in chunks, then one token */
    uint64_t knee_tokens;        /* tokens per step where compute time meets link time; 0: none (nothing is streamed) */
    uint32_t link_bound;
    /* max((W − V) / B, C): all memory for weights, no ring, no start costs; B the link's rate, or the filling's (above); C the compute */
    double lower_bound_seconds;
    /* Before the first step: all but what stays in the file is read once, at FILE (at LINK_PAGEABLE from the caller's memory), while what
     * is to be pinned is page-locked, at PINNING; last the residents. */
    double load_seconds;
} ofl_forecast;

/* The forecast for another number of sequences, planned anew for it. */
typedef struct ofl_forecast_row {
    uint32_t struct_size;
    uint32_t sequences;
    double step_seconds;
    double tokens_per_second;
} ofl_forecast_row;

/* A plan; read-only. */
typedef struct ofl_plan ofl_plan;

/* Makes one. Touches no device; milliseconds to seconds of computing. Nothing is borrowed: model and machine may go. workload
 * NULL: all its defaults.
 * OFL_ERROR_NO_FIT: the sentence names what is too big, bytes needed and there, and the largest count that fits. OFL_ERROR_ARGUMENT: an
 * option that has no effect here, or a figure that the machine does not have (ofl_machine_assume). */
OFL_API ofl_status ofl_plan_make(const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload, ofl_plan **out);
/* Engines and fronts that stand on it must be gone. NULL is allowed. */
OFL_API void ofl_plan_destroy(ofl_plan *plan);
/* As JSON, schema ofload.plan/1; same inputs, same bytes. Free with ofl_string_free. Reading back gives an equal plan. */
OFL_API ofl_status ofl_plan_to_json(const ofl_plan *plan, char **json_out);
/* Reads that; the text need not end with NUL. OFL_ERROR_FORMAT: with the field, or it was changed since it was written. */
OFL_API ofl_status ofl_plan_from_json(const char *json, size_t bytes, ofl_plan **out);
/* Is this the model that the plan was made for? OFL_ERROR_MISMATCH. Verifies tensors, units, budget and tiers against the model and the
 * machine's figures, apart from what made them. */
OFL_API ofl_status ofl_plan_check(const ofl_plan *plan, const ofl_model *model);
/* What is said of a part of a plan: OFL_OK and what was found, OFL_ERROR_MISMATCH and what is wrong, or OFL_NOT_READY where a part was not
 * looked at because the model is another. The texts are valid during the call. */
typedef void (*ofl_plan_verdict)(void *context, const char *part, ofl_status status, const char *sentence);
/* ofl_plan_check, one part after the other, and the forecast too: times of units and copies added up anew, and a step played through by a
 * simulation that shares nothing with the planner's, which must agree to 0.5 %. `each` is called on this thread for every part.
 * OFL_ERROR_MISMATCH when anything is wrong. */
OFL_API ofl_status ofl_plan_verify(const ofl_plan *plan, const ofl_model *model, ofl_plan_verdict each, void *context);

/* SHA-256 of the plan's JSON without this field, 64 hex digits. */
OFL_API const char *ofl_plan_identity(const ofl_plan *plan);
/* ofl_model_identity of the model that it was made for. */
OFL_API const char *ofl_plan_model_identity(const ofl_plan *plan);
/* ofl_machine_identity of the machine that it was made for. */
OFL_API const char *ofl_plan_machine_identity(const ofl_plan *plan);
/* Its bytes. */
OFL_API ofl_status ofl_plan_budget_get(const ofl_plan *plan, ofl_budget *out);
/* Its choices. */
OFL_API ofl_status ofl_plan_settings_get(const ofl_plan *plan, ofl_plan_settings *out);
/* Its speed, as forecast for the planned step. */
OFL_API ofl_status ofl_plan_forecast_get(const ofl_plan *plan, ofl_forecast *out);
/* Why the step is more than 1 % above lower_bound_seconds: one sentence with the share of each cause; "" where it is not. */
OFL_API const char *ofl_plan_above_bound_why(const ofl_plan *plan);
/* How many forecasts for other numbers of sequences there are: 1, 2, 4, … up to what fits or just past the knee. */
OFL_API uint32_t ofl_plan_forecast_row_count(const ofl_plan *plan);
/* One of them; ascending, the planned count among them. */
OFL_API ofl_status ofl_plan_forecast_row_get(const ofl_plan *plan, uint32_t row, ofl_forecast_row *out);
/* How many units, in execution order. */
OFL_API uint32_t ofl_plan_unit_count(const ofl_plan *plan);
/* One of them. */
OFL_API ofl_status ofl_plan_unit_get(const ofl_plan *plan, uint32_t unit, ofl_unit *out);
/* How many slices, in the order of the units. */
OFL_API uint32_t ofl_plan_slice_count(const ofl_plan *plan);
/* One of them. */
OFL_API ofl_status ofl_plan_slice_get(const ofl_plan *plan, uint32_t slice, ofl_slice *out);
/* The slices of a tensor are consecutive in row order: first and count. A lookup tensor has one slice, in no unit (unit = UINT32_MAX). */
OFL_API ofl_status ofl_plan_tensor_slices(const ofl_plan *plan, uint32_t tensor, uint32_t *first_out, uint32_t *count_out);
/* How many changes would help, the best one first. */
OFL_API uint32_t ofl_plan_advice_count(const ofl_plan *plan);
/* One of them, a sentence with its figures; "" beyond the last. */
OFL_API const char *ofl_plan_advice(const ofl_plan *plan, uint32_t index);
/* The step in which so many sequences (at least one) make one token each, every one half-way through the planned context: what forecasts
 * stand on. */
OFL_API ofl_status ofl_plan_decode_step(const ofl_plan *plan, uint32_t sequences, ofl_step_shape *out);
/* How long one such step takes under this plan. Pure; no allocation that outlives the call. */
OFL_API ofl_status ofl_plan_estimate_step(const ofl_plan *plan, const ofl_step_shape *step, ofl_step_estimate *out);

/* Types that weights could be stored in for less, as the planner's advice weighs them: most bits first. X(name). */
#define OFL_FEWER_BITS_LIST(X) X(Q8_0) X(Q6_K) X(Q5_K) X(Q4_K) X(Q3_K) X(Q2_K)

/* Device memory of a step's temporaries; planner and driver both size by it. With T tokens (P: rounded up to 16, as products read them),
 * L logits rows, h hidden, q = heads × head_dim_k, kv likewise, f feed-forward, m = max(h, q, f), V vocabulary, c bytes of the compute
 * type, E elements of the largest slice stored in another type (0: none):
 *   hidden    4T × (h + max(h, head_dim_k) + max(2q + 2kv, 2f)) + c × P × m
 *   logits    L × (4V + 4h + c·h)
 *   workspace c × (min(E, 256m) + 64m)   stored rows are expanded a few at a time
 * each rounded up to 256 bytes, plus 64 KiB for ids, positions and tables and 8 bytes a token. */
OFL_API ofl_status ofl_activation_bytes(const ofl_model_shape *shape, ofl_compute_type compute_type, uint64_t tokens, uint64_t logits_rows,
                                        uint64_t workspace_elements, uint64_t *hidden_out, uint64_t *logits_out, uint64_t *workspace_out);

/* "device", "pinned", "pageable", "file"; "?" for an unknown tier. Static. */
OFL_API const char *ofl_tier_name(ofl_tier tier);

#ifdef __cplusplus
}
#endif
#endif

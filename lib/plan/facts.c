/* What a plan is made from, read once and checked: model, machine, job. */
#include "plan/plan_state.h"

#include <math.h>
#include <string.h>

void ofl_plan_facts_clear(ofl_plan_facts *facts)
{
    ofl_free(facts->model_name);
    ofl_free(facts->architecture);
    ofl_free(facts->device);
    ofl_free(facts->names);
    ofl_free(facts->tensors);
    ofl_free(facts->points);
    ofl_free(facts->head_points);
    memset(facts, 0, sizeof *facts);
}

static ofl_status no_memory(void) { return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory"); }

static bool copy_text(char **out, const char *text)
{
    *out = ofl_copy_string(text, strlen(text));
    return *out != NULL;
}

static bool count_bytes(ofl_plan_facts *facts, const ofl_plan_tensor *tensor)
{
    if (tensor->also_lookup || tensor->tensor_class == OFL_CLASS_LOOKUP) facts->embedding_bytes += tensor->bytes;
    uint64_t *sum = ofl_plan_is_dense(tensor)                  ? &facts->dense_bytes
                    : tensor->tensor_class == OFL_CLASS_LOOKUP ? &facts->lookup_bytes
                                                               : NULL;
    return ofl_add_u64(facts->stored_bytes, tensor->bytes, &facts->stored_bytes) && facts->stored_bytes < OFL_LARGEST_WHOLE &&
           (sum == NULL || ofl_add_u64(*sum, tensor->bytes, sum));
}

static ofl_status read_tensor(ofl_plan_facts *facts, const ofl_model *model, uint32_t index, uint64_t *name_bytes)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(model, index, &info);
    if (status != OFL_OK) return status;
    ofl_plan_tensor *tensor = &facts->tensors[index];
    *tensor = (ofl_plan_tensor){
        .rows = info.row_count, .row_bytes = info.row_bytes, .elements = info.elements, .bytes = info.bytes, .block = info.block};
    tensor->name = info.name;
    tensor->why = info.unused_why;
    tensor->dtype = (uint8_t)info.dtype;
    tensor->tensor_class = (uint8_t)info.tensor_class;
    tensor->role = (uint8_t)info.role;
    tensor->also_lookup = info.also_lookup != 0;
    tensor->vector = info.n_dims < 2 || info.row_count < 2;
    tensor->small = tensor->vector || info.bytes <= OFL_SMALL_TENSOR_BYTES;
    *name_bytes += strlen(info.name) + 1;
    if (!count_bytes(facts, tensor))
        return ofl_fail(OFL_ERROR_OVERFLOW, "plan: tensor %s: all tensors together are more than 2^53 bytes", info.name);
    return OFL_OK;
}

/* The model may go; the plan keeps its own names. */
static ofl_status keep_names(ofl_plan_facts *facts, uint64_t name_bytes)
{
    char *to = facts->names = ofl_alloc(name_bytes, 1);
    if (to == NULL) return no_memory();
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        size_t bytes = strlen(facts->tensors[i].name) + 1;
        memcpy(to, facts->tensors[i].name, bytes);
        facts->tensors[i].name = to;
        to += bytes;
    }
    return OFL_OK;
}

static ofl_status read_model(ofl_plan_facts *facts, const ofl_model *model)
{
    uint64_t name_bytes = 0;
    facts->shape.struct_size = sizeof facts->shape;
    ofl_status status = ofl_model_shape_get(model, &facts->shape);
    if (status != OFL_OK) return status;
    facts->tensor_count = ofl_model_tensor_count(model);
    facts->tensors = ofl_alloc(facts->tensor_count, sizeof *facts->tensors);
    if (facts->tensors == NULL || !copy_text(&facts->model_name, ofl_model_name(model)) ||
        !copy_text(&facts->architecture, ofl_model_architecture(model)))
        return no_memory();
    (void)strncpy(facts->model_identity, ofl_model_identity(model), OFL_SHA256_HEX - 1);
    for (uint32_t i = 0; i < facts->tensor_count && status == OFL_OK; i++) status = read_tensor(facts, model, i, &name_bytes);
    if (status == OFL_OK) status = keep_names(facts, name_bytes);
    facts->in_memory = true;
    for (uint32_t i = 0; i < facts->tensor_count; i++) {
        facts->tensors[i].callers = ofl_model_tensor_data(model, i) != NULL;
        facts->in_memory &= facts->tensors[i].callers;
    }
    if (status == OFL_OK && facts->dense_bytes == 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: model %s has no tensor that a step reads; nothing is there to be planned",
                        facts->model_name);
    return status;
}

static ofl_status need_figure(const ofl_plan_facts *facts, ofl_figure figure)
{
    if (facts->sources[figure] != OFL_SOURCE_NONE) return OFL_OK;
    return ofl_fail(OFL_ERROR_ARGUMENT, "plan: the machine's %s is not known; set it, probe a device, or call ofl_machine_assume",
                    ofl_figure_key(figure));
}

static ofl_status read_machine(ofl_plan_facts *facts, const ofl_machine *machine)
{
    if (!copy_text(&facts->device, ofl_machine_device(machine))) return no_memory();
    (void)strncpy(facts->machine_identity, ofl_machine_identity(machine), OFL_SHA256_HEX - 1);
    facts->simulated = ofl_machine_simulated(machine) != 0;
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) facts->figures[i] = ofl_machine_get(machine, (ofl_figure)i, &facts->sources[i]);
    ofl_status status = need_figure(facts, OFL_FIGURE_VRAM);
    return status == OFL_OK ? need_figure(facts, OFL_FIGURE_LINK) : status;
}

ofl_status ofl_plan_facts_read(ofl_plan_facts *facts, const ofl_model *model, const ofl_machine *machine)
{
    ofl_status status = read_model(facts, model);
    return status == OFL_OK ? read_machine(facts, machine) : status;
}

static ofl_status refuse(const char *what, const char *why) { return ofl_fail(OFL_ERROR_ARGUMENT, "plan: %s: %s", what, why); }

static ofl_status check_cut(const ofl_workload *job)
{
    if ((unsigned)job->cut > OFL_CUT_BYTES) return refuse("cut", "unknown kind");
    if (job->cut == OFL_CUT_BYTES && job->part_bytes == 0) return refuse("part size", "none given; give one, or let it be chosen");
    if (job->cut != OFL_CUT_BYTES && job->part_bytes != 0)
        return refuse("part size", "it has no effect unless matrices are cut by size; leave one out");
    if (job->force_layers && job->cut == OFL_CUT_BYTES) return refuse("part size", "it has no effect on whole layers; leave one out");
    if (job->force_layers && job->ring_bytes != 0)
        return refuse("ring size", "it has no effect on whole layers, which pass through two slots; leave one out");
    if (!job->force_layers && job->force_resident_layers != 0) return refuse("resident layers", "given, but not forced; set force_layers");
    return OFL_OK;
}

static ofl_status check_headroom(const ofl_workload *job)
{
    if ((job->force_headroom || job->headroom_bytes != 0) && job->headroom_percent != 0)
        return refuse("headroom", "given both in bytes and in percent; leave one out");
    if (!(job->headroom_percent >= 0 && job->headroom_percent < 100))
        return refuse("headroom", "the percentage must be from 0 to below 100");
    return OFL_OK;
}

static ofl_status check_points(const ofl_workload *job)
{
    if (job->compute_point_count != 0 && job->compute_points == NULL) return refuse("compute_points", "a count but no points");
    if (job->head_point_count != 0 && job->head_points == NULL) return refuse("head_points", "a count but no points");
    return OFL_OK;
}

#define SECONDS_LEAST (1 / OFL_RATE_MOST)

/* Sums and shares of such times are numbers. */
static bool is_time(double seconds) { return seconds >= SECONDS_LEAST && seconds <= OFL_SECONDS_MOST; }

static ofl_status check_curve(const ofl_compute_point *points, uint64_t count, const char *key, ofl_status status)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!(points[i].tokens >= 1 && points[i].tokens <= OFL_TOKENS_MOST))
            return ofl_fail(status, "plan: %s: tokens of %g; from 1 to 2^30 are needed", key, points[i].tokens);
        if (!is_time(points[i].seconds_per_element))
            return ofl_fail(status, "plan: %s: seconds_per_element of %g; from %g to %g are needed", key, points[i].seconds_per_element,
                            SECONDS_LEAST, OFL_SECONDS_MOST);
        if (i > 0 && points[i].tokens <= points[i - 1].tokens) return ofl_fail(status, "plan: %s: its tokens must ascend", key);
    }
    return OFL_OK;
}

ofl_status ofl_plan_check_times(const ofl_plan_facts *facts, ofl_status wrong)
{
    const struct { const char *key; double seconds; } times[] = {
        {"attention_seconds_per_kv_token", facts->attention_seconds},
        {"prefill_attention_seconds_per_kv_token", facts->prefill_seconds},
        {"host_seconds_per_step", facts->host_seconds},
        {"host_seconds_per_row", facts->row_seconds},
        {"host_seconds_per_unit", facts->unit_seconds},
        {"host_seconds_per_piece", facts->piece_seconds},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(times); i++) {
        if (times[i].seconds != 0 && !is_time(times[i].seconds))
            return ofl_fail(wrong, "plan: %s is %g; 0 or from %g to %g seconds are needed", times[i].key, times[i].seconds, SECONDS_LEAST,
                            OFL_SECONDS_MOST);
    }
    ofl_status status = check_curve(facts->points, facts->point_count, "compute_points", wrong);
    if (status == OFL_OK) status = check_curve(facts->head_points, facts->head_point_count, "head_points", wrong);
    if (status == OFL_OK && facts->head_point_count != 0 && facts->point_count == 0)
        return ofl_fail(wrong, "plan: head_points: they have no effect without compute_points; give both");
    if (status == OFL_OK && facts->attention_seconds == 0 && facts->prefill_seconds != 0)
        return ofl_fail(wrong, "plan: prefill_attention_seconds_per_kv_token: it has no effect without attention_seconds_per_kv_token; "
                               "give both");
    return status;
}

static ofl_status check_counts(const ofl_workload *job)
{
    if ((unsigned)job->objective > OFL_THROUGHPUT) return refuse("objective", "unknown kind");
    if ((unsigned)job->kv_type > OFL_KV_F8) return refuse("KV type", "unknown");
    if ((unsigned)job->compute_type > OFL_COMPUTE_F32) return refuse("compute type", "unknown");
    if (job->objective == OFL_LATENCY && job->queue_length != 0)
        return refuse("queue length", "it has no effect on the latency objective; leave one out");
    if (job->context_tokens >= UINT64_C(1) << 32) return refuse("context", "more than 2^32 tokens");
    if (job->sequences > OFL_SEQUENCES_MOST) return refuse("sequences", "more than 1048576 at once");
    if (job->queue_length >= OFL_LARGEST_WHOLE) return refuse("queue length", "more than 2^53");
    if (job->tokens_per_step_cap != 0 &&
        (job->sequences > job->tokens_per_step_cap || job->prefill_chunk_tokens > job->tokens_per_step_cap))
        return refuse("tokens per step", "the cap is below the sequences or the prefill chunk; raise it");
    if (job->prefill_chunk_tokens > OFL_TOKENS_MOST || job->tokens_per_step_cap > OFL_TOKENS_MOST)
        return refuse("tokens per step", "more than 2^30");
    if (job->workspace_bytes >= OFL_LARGEST_WHOLE || job->workspace_bytes % OFL_ALIGNMENT_BYTES != 0)
        return refuse("workspace", "more than 2^53, or no multiple of 256");
    return OFL_OK;
}

static ofl_status check_job(const ofl_workload *job)
{
    ofl_status status = check_counts(job);
    if (status == OFL_OK) status = check_cut(job);
    if (status == OFL_OK) status = check_headroom(job);
    return status == OFL_OK ? check_points(job) : status;
}

static bool keep_curve(const ofl_compute_point *points, uint64_t count, ofl_compute_point **out)
{
    *out = ofl_alloc(count, sizeof **out);
    if (*out != NULL && count != 0) memcpy(*out, points, count * sizeof **out);
    return *out != NULL;
}

static ofl_status keep_compute(ofl_plan_facts *facts, const ofl_workload *job)
{
    facts->attention_seconds = job->attention_seconds_per_kv_token;
    facts->prefill_seconds = job->prefill_attention_seconds_per_kv_token;
    facts->host_seconds = job->host_seconds_per_step;
    facts->row_seconds = job->host_seconds_per_row;
    facts->unit_seconds = job->host_seconds_per_unit;
    facts->piece_seconds = job->host_seconds_per_piece;
    facts->point_count = job->compute_point_count;
    facts->head_point_count = job->head_point_count;
    bool good = keep_curve(job->compute_points, facts->point_count, &facts->points) &&
                keep_curve(job->head_points, facts->head_point_count, &facts->head_points);
    return good ? OFL_OK : no_memory();
}

static uint64_t headroom(const ofl_workload *job, double vram)
{
    if (job->force_headroom || job->headroom_bytes != 0) return job->headroom_bytes;
    return (uint64_t)(vram * (job->headroom_percent > 0 ? job->headroom_percent : 5.0) / 100.0);
}

static uint64_t default_context(const ofl_model_shape *shape)
{
    return shape->trained_context_tokens != 0 ? ofl_min_u64(4096, shape->trained_context_tokens) : 4096;
}

static ofl_status read_wish(const ofl_plan_facts *facts, const ofl_workload *job, ofl_plan_wish *wish)
{
    *wish = (ofl_plan_wish){.cut = job->cut, .part_bytes = job->part_bytes, .ring_bytes = job->ring_bytes, .sequences = job->sequences};
    wish->prefill_chunk = job->prefill_chunk_tokens;
    wish->cap = job->tokens_per_step_cap;
    wish->force_layers = job->force_layers != 0;
    wish->resident_layers = job->force_resident_layers;
    if (wish->force_layers) wish->cut = OFL_CUT_OFF;
    if (wish->resident_layers > facts->shape.block_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: %u resident layers: the model has %u; give at most that many", wish->resident_layers,
                        facts->shape.block_count);
    return OFL_OK;
}

ofl_status ofl_plan_job_read(ofl_plan_facts *facts, ofl_plan_wish *wish, ofl_plan_settings *settings, const ofl_model *model,
                             const ofl_workload *workload)
{
    static const ofl_workload all_default = {.struct_size = sizeof all_default};
    ofl_workload job;
    ofl_status status = ofl_struct_in(&job, sizeof job, workload != NULL ? workload : &all_default, "ofl_workload");
    if (status == OFL_OK) status = check_job(&job);
    if (status == OFL_OK) status = keep_compute(facts, &job);
    if (status == OFL_OK) status = ofl_plan_check_times(facts, OFL_ERROR_ARGUMENT);
    if (status == OFL_OK) status = read_wish(facts, &job, wish);
    if (status != OFL_OK) return status;
    facts->headroom_bytes = headroom(&job, facts->figures[OFL_FIGURE_VRAM]);
    *settings = (ofl_plan_settings){.struct_size = sizeof *settings, .objective = job.objective, .queue_length = job.queue_length};
    settings->context_tokens = job.context_tokens != 0 ? job.context_tokens : default_context(&facts->shape);
    settings->kv_type = job.kv_type;
    settings->compute_type = job.compute_type;
    settings->workspace_bytes = job.workspace_bytes;
    settings->copy_bytes = OFL_COPY_BYTES;
    return ofl_plan_account_kv(model, facts, settings);
}

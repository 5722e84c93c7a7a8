/* A plan from JSON. Nothing is believed: every number is bounded, every count is that of what is there, the sums are done again, and the
 * identity is checked last. */
#include "plan/plan_state.h"

#include <math.h>
#include <string.h>

#include "plan/json_read.h"

#define TENSOR_TEXT 16u                 /* no tensor is told in fewer bytes of JSON */
#define BYTES_MOST (UINT64_C(1) << 30) /* of JSON */

typedef struct reader {
    ofl_json_reader json;
    ofl_plan *plan;
    const cJSON *root;
    uint64_t text_bytes;
    uint64_t bytes; /* of all slices so far */
} reader;

static const char *kv_name(int i) { return ofl_kv_type_name((ofl_kv_type)i); }
static const char *class_name(int i) { return ofl_plan_class_name((ofl_tensor_class)i); }
static const char *tier_name(int i) { return ofl_tier_name((ofl_tier)i); }
static const char *source_name(int i) { return ofl_source_name((ofl_source)i); }
static const char *objective_name(int i) { return i == OFL_LATENCY ? "latency" : i == OFL_THROUGHPUT ? "throughput" : "?"; }
static const char *compute_name(int i) { return i == OFL_COMPUTE_BF16 ? "bf16" : i == OFL_COMPUTE_F32 ? "f32" : "?"; }

/* 0 where a plan of before does not say it, or it is 0. */
static double read_optional(reader *r, const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL ? ofl_read_real(&r->json, object, key) : 0;
}

static void read_hash(reader *r, const cJSON *object, const char *key, char out[OFL_SHA256_HEX])
{
    const char *value = ofl_read_string(&r->json, object, key);
    if (r->json.status == OFL_OK && strspn(value, "0123456789abcdef") == OFL_SHA256_HEX - 1 && strlen(value) == OFL_SHA256_HEX - 1)
        memcpy(out, value, OFL_SHA256_HEX);
    else if (r->json.status == OFL_OK)
        r->json.status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: the identity \"%s\" is no SHA-256; make the plan anew", key);
}

static void read_identity(reader *r)
{
    const cJSON *o = ofl_read_member(&r->json, r->root, "identity", 0);
    read_hash(r, o, "model", r->plan->facts.model_identity);
    read_hash(r, o, "machine", r->plan->facts.machine_identity);
    read_hash(r, o, "plan", r->plan->identity);
}

static void read_shape(reader *r, const cJSON *model)
{
    ofl_model_shape *s = &r->plan->facts.shape;
    const cJSON *o = ofl_read_member(&r->json, model, "shape", 0);
    s->struct_size = sizeof *s;
    s->hidden_size = ofl_read_count(&r->json, o, "hidden");
    s->head_count = ofl_read_count(&r->json, o, "heads");
    s->head_count_kv = ofl_read_count(&r->json, o, "kv_heads");
    s->head_dim_k = ofl_read_count(&r->json, o, "head_dim_k");
    s->head_dim_v = ofl_read_count(&r->json, o, "head_dim_v");
    s->ffn_size = ofl_read_count(&r->json, o, "feed_forward");
    s->vocab_size = ofl_read_count(&r->json, o, "vocabulary");
    s->trained_context_tokens = ofl_read_size(&r->json, o, "trained_context");
}

static ofl_plan_tensor *tensor_at(reader *r, const cJSON *object, uint32_t *index_out)
{
    ofl_plan_facts *facts = &r->plan->facts;
    if (facts->tensor_count == 0) ofl_read_refuse(&r->json, "there is no tensor");
    uint64_t index = r->json.status == OFL_OK ? ofl_read_number(&r->json, object, "index", facts->tensor_count - 1) : 0;
    *index_out = (uint32_t)index;
    return r->json.status == OFL_OK ? &facts->tensors[index] : NULL;
}

static void read_unused(reader *r, const cJSON *model)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, ofl_read_member(&r->json, model, "unused", 1))
    {
        uint32_t index;
        ofl_plan_tensor *tensor = tensor_at(r, item, &index);
        if (tensor == NULL) return;
        if (tensor->name != NULL) ofl_read_refuse(&r->json, "a tensor is listed twice");
        tensor->tensor_class = OFL_CLASS_UNUSED;
        tensor->name = ofl_read_string(&r->json, item, "name");
        tensor->why = ofl_read_string(&r->json, item, "why");
        tensor->bytes = ofl_read_size(&r->json, item, "bytes");
    }
}

static void read_model(reader *r)
{
    ofl_plan_facts *f = &r->plan->facts;
    const cJSON *o = ofl_read_member(&r->json, r->root, "model", 0);
    f->model_name = ofl_read_text(&r->json, o, "name");
    f->architecture = ofl_read_text(&r->json, o, "architecture");
    f->shape.block_count = ofl_read_count(&r->json, o, "layers");
    f->shape.parameter_count = ofl_read_size(&r->json, o, "parameters");
    f->stored_bytes = ofl_read_size(&r->json, o, "weight_bytes");
    f->dense_bytes = ofl_read_size(&r->json, o, "dense_bytes");
    f->lookup_bytes = ofl_read_size(&r->json, o, "lookup_bytes");
    f->kv_bytes_per_token = ofl_read_size(&r->json, o, "kv_bytes_per_token");
    f->state_bytes = ofl_read_size(&r->json, o, "state_bytes_per_sequence");
    f->embedding_bytes = ofl_read_size(&r->json, o, "embedding_bytes");
    f->shape.tied_output = ofl_read_flag(o, "tied_output");
    f->shape.expert_count = ofl_read_count(&r->json, o, "expert_count");
    f->shape.expert_used_count = ofl_read_count(&r->json, o, "expert_used_count");
    uint64_t tensors = ofl_read_number(&r->json, o, "tensor_count", r->text_bytes / TENSOR_TEXT);
    read_shape(r, o);
    if (r->json.status != OFL_OK) return;
    f->tensors = ofl_alloc(tensors, sizeof *f->tensors);
    if (f->tensors == NULL) ofl_read_no_memory(&r->json);
    else f->tensor_count = tensors;
    if (r->json.status == OFL_OK) read_unused(r, o);
}

/* A machine would refuse it, too. */
static void check_figures(reader *r)
{
    const ofl_plan_facts *f = &r->plan->facts;
    ofl_machine *machine = NULL;
    if (r->json.status != OFL_OK) return;
    r->json.status = ofl_machine_create(f->device, &machine);
    for (int i = 0; i < OFL_FIGURE_COUNT && r->json.status == OFL_OK; i++) {
        if (f->sources[i] != OFL_SOURCE_NONE && ofl_machine_set(machine, (ofl_figure)i, f->figures[i], f->sources[i]) != OFL_OK)
            r->json.status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: %s", ofl_error_message());
    }
    ofl_machine_destroy(machine);
}

static void read_machine(reader *r)
{
    ofl_plan_facts *f = &r->plan->facts;
    const cJSON *o = ofl_read_member(&r->json, r->root, "machine", 0), *sources = ofl_read_member(&r->json, o, "sources", 0);
    f->device = ofl_read_text(&r->json, o, "device");
    f->simulated = ofl_read_flag(o, "simulated");
    for (int i = 0; i < OFL_FIGURE_COUNT && r->json.status == OFL_OK; i++) {
        const char *key = ofl_figure_key((ofl_figure)i);
        f->sources[i] = OFL_SOURCE_NONE;
        if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, key)) && cJSON_GetObjectItemCaseSensitive(sources, key) == NULL) continue;
        f->sources[i] = (ofl_source)ofl_read_kind(&r->json, sources, key, source_name);
        f->figures[i] = ofl_read_real(&r->json, o, key);
    }
    if (r->json.status == OFL_OK && (f->sources[OFL_FIGURE_VRAM] == OFL_SOURCE_NONE || !(f->figures[OFL_FIGURE_LINK] > 0)))
        ofl_read_refuse(&r->json, "the machine has no memory or no link");
    check_figures(r);
}

static void read_curve(reader *r, const cJSON *workload, const char *key, ofl_compute_point **points_out, uint64_t *count_out)
{
    const cJSON *array = ofl_read_member(&r->json, workload, key, 1), *item;
    if (r->json.status != OFL_OK) return;
    ofl_compute_point *points = *points_out = ofl_alloc((uint64_t)cJSON_GetArraySize(array), sizeof *points);
    if (points == NULL) ofl_read_no_memory(&r->json);
    cJSON_ArrayForEach(item, array)
    {
        if (r->json.status != OFL_OK) return;
        ofl_compute_point *p = &points[*count_out];
        p->tokens = ofl_read_real(&r->json, item, "tokens");
        p->seconds_per_element = ofl_read_real(&r->json, item, "seconds_per_element");
        (*count_out)++;
    }
}

static void read_compute(reader *r, const cJSON *workload)
{
    ofl_plan_facts *f = &r->plan->facts;
    read_curve(r, workload, "compute_points", &f->points, &f->point_count);
    read_curve(r, workload, "head_points", &f->head_points, &f->head_point_count);
    f->attention_seconds = ofl_read_real(&r->json, workload, "attention_seconds_per_kv_token");
    f->prefill_seconds = ofl_read_real(&r->json, workload, "prefill_attention_seconds_per_kv_token");
    f->host_seconds = ofl_read_real(&r->json, workload, "host_seconds_per_step");
    f->row_seconds = ofl_read_real(&r->json, workload, "host_seconds_per_row");
    f->unit_seconds = read_optional(r, workload, "host_seconds_per_unit");
    f->piece_seconds = read_optional(r, workload, "host_seconds_per_piece");
    if (r->json.status == OFL_OK) r->json.status = ofl_plan_check_times(f, OFL_ERROR_FORMAT);
}

static void read_workload(reader *r)
{
    ofl_plan_settings *s = &r->plan->draft.settings;
    const cJSON *o = ofl_read_member(&r->json, r->root, "workload", 0);
    s->struct_size = sizeof *s;
    s->context_tokens = ofl_read_number(&r->json, o, "context", UINT32_MAX);
    s->sequences = (uint32_t)ofl_read_number(&r->json, o, "sequences", OFL_SEQUENCES_MOST);
    s->queue_length = ofl_read_size(&r->json, o, "queue_length");
    s->prefill_chunk_tokens = ofl_read_count(&r->json, o, "prefill_chunk");
    s->tokens_per_step_cap = ofl_read_count(&r->json, o, "tokens_per_step_cap");
    s->kv_type = (ofl_kv_type)ofl_read_kind(&r->json, o, "kv_type", kv_name);
    s->objective = (ofl_objective)ofl_read_kind(&r->json, o, "objective", objective_name);
    s->compute_type = (ofl_compute_type)ofl_read_kind(&r->json, o, "compute_type", compute_name);
    s->kv_block_tokens = ofl_read_count(&r->json, o, "kv_block_tokens");
    s->part_bytes = ofl_read_size(&r->json, o, "part_bytes");
    s->copy_bytes = ofl_read_size(&r->json, o, "copy_bytes");
    if (cJSON_GetObjectItemCaseSensitive(o, "workspace_bytes") != NULL) s->workspace_bytes = ofl_read_size(&r->json, o, "workspace_bytes");
    read_compute(r, o);
    if (r->json.status == OFL_OK && (s->context_tokens == 0 || s->sequences == 0 || s->prefill_chunk_tokens == 0 ||
                                s->tokens_per_step_cap < s->sequences || s->kv_block_tokens != OFL_KV_BLOCK_TOKENS || s->copy_bytes == 0))
        ofl_read_refuse(&r->json, "the workload contradicts itself");
}

static void read_budget(reader *r)
{
    ofl_budget *b = &r->plan->draft.budget;
    const cJSON *o = ofl_read_member(&r->json, r->root, "budget", 0), *a = ofl_read_member(&r->json, r->root, "activation", 0);
    const cJSON *tiers = ofl_read_member(&r->json, r->root, "tiers", 0), *stream = ofl_read_member(&r->json, r->root, "stream", 0);
    b->struct_size = sizeof *b;
    b->vram_bytes = ofl_read_size(&r->json, o, "vram_bytes");
    b->total_bytes = ofl_read_size(&r->json, o, "total_bytes");
    b->resident_bytes = ofl_read_size(&r->json, o, "resident_bytes");
    b->ring_bytes = ofl_read_size(&r->json, o, "ring_bytes");
    b->kv_bytes = ofl_read_size(&r->json, o, "kv_bytes");
    b->activation_bytes = ofl_read_size(&r->json, o, "activation_bytes");
    b->runtime_bytes = ofl_read_size(&r->json, o, "runtime_bytes");
    b->headroom_bytes = r->plan->facts.headroom_bytes = ofl_read_size(&r->json, o, "headroom_bytes");
    b->logits_bytes = ofl_read_size(&r->json, a, "logits_bytes");
    b->workspace_bytes = ofl_read_size(&r->json, a, "workspace_bytes");
    b->device_bytes = ofl_read_size(&r->json, tiers, "device_bytes");
    b->pinned_bytes = ofl_read_size(&r->json, tiers, "pinned_bytes");
    b->pageable_bytes = ofl_read_size(&r->json, tiers, "pageable_bytes");
    b->file_bytes = ofl_read_size(&r->json, tiers, "file_bytes");
    b->stream_bytes_per_step = ofl_read_size(&r->json, stream, "bytes_per_step");
    b->stream_copies_per_step = ofl_read_size(&r->json, stream, "copies_per_step");
    b->lower_bound_bytes_per_step = ofl_read_size(&r->json, stream, "lower_bound_bytes_per_step");
}

static void read_kv(reader *r)
{
    ofl_plan_settings *s = &r->plan->draft.settings;
    const cJSON *o = ofl_read_member(&r->json, r->root, "kv", 0);
    s->kv_bytes_per_token = ofl_read_size(&r->json, o, "bytes_per_token");
    s->kv_bytes_per_sequence = ofl_read_size(&r->json, o, "bytes_per_sequence");
    s->kv_capacity_tokens = ofl_read_size(&r->json, o, "capacity_tokens");
    s->max_sequences = ofl_read_count(&r->json, o, "max_sequences_at_context");
    if (r->json.status == OFL_OK && s->kv_bytes_per_token != r->plan->facts.kv_bytes_per_token)
        ofl_read_refuse(&r->json, "KV bytes per token differ");
}

static void read_forecast(reader *r)
{
    ofl_plan *plan = r->plan;
    ofl_forecast *f = &plan->forecast;
    const cJSON *o = ofl_read_member(&r->json, r->root, "forecast", 0), *item;
    *f = (ofl_forecast){.struct_size = sizeof *f, .step.struct_size = sizeof f->step};
    f->sequences = ofl_read_count(&r->json, o, "sequences");
    f->step.step_seconds = ofl_read_real(&r->json, o, "step_seconds");
    f->step.link_seconds = ofl_read_real(&r->json, o, "link_seconds");
    f->step.compute_seconds = ofl_read_real(&r->json, o, "compute_seconds");
    f->step.link_idle_seconds = ofl_read_real(&r->json, o, "link_idle_seconds");
    f->step.stall_seconds = ofl_read_real(&r->json, o, "stall_seconds");
    f->step.bound_seconds = fmax(f->step.link_seconds, f->step.compute_seconds);
    f->error_band_percent = ofl_read_real(&r->json, o, "error_band_percent");
    f->tokens_per_second = ofl_read_real(&r->json, o, "tokens_per_second");
    f->link_bound = strcmp(ofl_read_string(&r->json, o, "bound"), "link") == 0;
    f->knee_tokens = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, "knee_tokens")) ? 0 : ofl_read_size(&r->json, o, "knee_tokens");
    f->first_token_seconds = ofl_read_real(&r->json, o, "first_token_seconds");
    f->load_seconds = read_optional(r, o, "load_seconds");
    f->lower_bound_seconds = ofl_read_real(&r->json, o, "lower_bound_seconds");
    plan->above_bound_why = ofl_read_text(&r->json, o, "above_bound_why");
    plan->draft.step = f->step;
    cJSON_ArrayForEach(item, ofl_read_member(&r->json, o, "by_sequences", 1))
    {
        if (plan->row_count == OFL_PLAN_ROWS) ofl_read_refuse(&r->json, "too many rows by sequences");
        if (r->json.status != OFL_OK) return;
        plan->rows[plan->row_count] = (ofl_forecast_row){sizeof(ofl_forecast_row), ofl_read_count(&r->json, item, "sequences"),
                                                         ofl_read_real(&r->json, item, "step_seconds"),
                                                         ofl_read_real(&r->json, item, "tokens_per_second")};
        plan->row_count++;
    }
}

static void read_advice(reader *r)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, ofl_read_member(&r->json, r->root, "advice", 1))
    {
        if (r->json.status != OFL_OK) return;
        if (!cJSON_IsString(item) || r->plan->advice_count == OFL_PLAN_ADVICE)
            ofl_read_refuse(&r->json, "an advice is no sentence, or there are too many");
        else if ((r->plan->advice[r->plan->advice_count] = ofl_copy_string(item->valuestring, strlen(item->valuestring))) == NULL)
            ofl_read_no_memory(&r->json);
        else r->plan->advice_count++;
    }
}

/* [first, count], or none: all rows. */
static void read_rows(reader *r, const cJSON *object, ofl_plan_tensor *tensor, ofl_slice *slice)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(object, "rows");
    if (tensor->row_bytes == 0 || slice->bytes == 0 || slice->bytes % tensor->row_bytes != 0) {
        ofl_read_refuse(&r->json, "the bytes of a tensor are no whole rows");
        return;
    }
    slice->row_count = slice->bytes / tensor->row_bytes;
    slice->row_first = tensor->rows;
    bool pair = rows != NULL && cJSON_GetArraySize(rows) == 2;
    if (rows != NULL &&
        !(pair && cJSON_IsNumber(rows->child) && cJSON_IsNumber(rows->child->next) &&
          rows->child->valuedouble == (double)slice->row_first && rows->child->next->valuedouble == (double)slice->row_count))
        ofl_read_refuse(&r->json, "the rows of a tensor have gaps, overlap or do not match its bytes");
    if (rows == NULL && slice->row_first != 0) ofl_read_refuse(&r->json, "a whole tensor has parts");
}

static void read_slice(reader *r, const cJSON *item, uint32_t unit, int32_t block)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    ofl_slice slice = {.struct_size = sizeof slice, .unit = unit};
    ofl_plan_tensor *t = tensor_at(r, item, &slice.tensor);
    if (t == NULL) return;
    bool follows = cut->slice_count > 0 && cut->slices[cut->slice_count - 1].tensor == slice.tensor &&
                   cut->slices[cut->slice_count - 1].unit != unit;
    if (t->name != NULL && !follows) ofl_read_refuse(&r->json, "a tensor is listed twice");
    int tensor_class = ofl_read_kind(&r->json, item, "class", class_name);
    uint64_t row_bytes = ofl_read_size(&r->json, item, "row_bytes");
    if (t->name != NULL && (tensor_class != t->tensor_class || row_bytes != t->row_bytes || block != t->block))
        ofl_read_refuse(&r->json, "parts of a tensor differ");
    if ((tensor_class == OFL_CLASS_LOOKUP) != (unit == OFL_NO_UNIT) || tensor_class == OFL_CLASS_UNUSED)
        ofl_read_refuse(&r->json, "a tensor's class does not belong there");
    if (t->name == NULL) t->name = ofl_read_string(&r->json, item, "name");
    t->tensor_class = (uint8_t)tensor_class;
    t->row_bytes = row_bytes;
    t->block = block;
    t->also_lookup = cJSON_GetObjectItemCaseSensitive(item, "also") != NULL;
    t->callers = cJSON_GetObjectItemCaseSensitive(item, "kept") != NULL;
    slice.bytes = ofl_read_size(&r->json, item, "bytes");
    slice.tier = (ofl_tier)ofl_read_kind(&r->json, item, "tier", tier_name);
    if (r->json.status == OFL_OK) read_rows(r, item, t, &slice);
    r->bytes += slice.bytes;
    if (r->bytes >= OFL_LARGEST_WHOLE) ofl_read_refuse(&r->json, "all tensors together are beyond 2^53 bytes");
    if (r->json.status != OFL_OK) return;
    t->rows += slice.row_count;
    t->bytes += slice.bytes;
    if (cut->slice_count >= OFL_NO_UNIT || !ofl_grow((void **)&cut->slices, &cut->slice_capacity, cut->slice_count + 1, sizeof slice))
        ofl_read_no_memory(&r->json);
    else cut->slices[cut->slice_count++] = slice;
}

static void read_load(reader *r, const cJSON *unit, ofl_unit_load *load)
{
    const cJSON *o = ofl_read_member(&r->json, unit, "load", 0);
    load->bytes = (double)ofl_read_size(&r->json, o, "bytes");
    load->elements = (double)ofl_read_size(&r->json, o, "elements");
    if (cJSON_GetObjectItemCaseSensitive(o, "expert_elements") != NULL) {
        load->expert_bytes = (double)ofl_read_size(&r->json, o, "expert_bytes");
        load->expert_elements = (double)ofl_read_size(&r->json, o, "expert_elements");
    }
    load->head = ofl_read_flag(o, "head");
    load->attention = ofl_read_flag(o, "attention");
}

static int32_t read_block(reader *r, const cJSON *item)
{
    double block = 0;
    if (r->json.status == OFL_OK) r->json.status = ofl_json_get_double(item, "plan", "block", &block);
    if (r->json.status == OFL_OK && !(block >= OFL_BLOCK_INPUT && block <= 2147483647.0 && floor(block) == block))
        ofl_read_refuse(&r->json, "a unit's block is no block");
    return r->json.status == OFL_OK ? (int32_t)block : 0;
}

static void read_unit(reader *r, const cJSON *item)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    const cJSON *slice;
    if (!ofl_grow((void **)&cut->units, &cut->unit_capacity, cut->unit_count + 1, sizeof *cut->units) ||
        !ofl_grow((void **)&cut->loads, &cut->load_capacity, cut->unit_count + 1, sizeof *cut->loads)) {
        ofl_read_no_memory(&r->json);
        return;
    }
    ofl_unit unit = {.struct_size = sizeof unit,
                     .name = ofl_read_string(&r->json, item, "name"),
                     .block = read_block(r, item),
                     .slice_first = (uint32_t)cut->slice_count};
    unit.compute_seconds = ofl_read_real(&r->json, item, "compute_seconds");
    unit.streamed_bytes = ofl_read_size(&r->json, item, "streamed_bytes");
    read_load(r, item, &cut->loads[cut->unit_count]);
    cJSON_ArrayForEach(slice, ofl_read_member(&r->json, item, "tensors", 1))
    {
        if (r->json.status != OFL_OK) return;
        read_slice(r, slice, (uint32_t)cut->unit_count, unit.block);
    }
    unit.slice_count = (uint32_t)cut->slice_count - unit.slice_first;
    if (unit.slice_count == 0) ofl_read_refuse(&r->json, "a unit is empty");
    if (cut->unit_count > 0 && unit.block < cut->units[cut->unit_count - 1].block)
        ofl_read_refuse(&r->json, "the units are not in execution order");
    cut->units[cut->unit_count++] = unit;
}

static void read_units(reader *r)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    const cJSON *item;
    cJSON_ArrayForEach(item, ofl_read_member(&r->json, r->root, "units", 1))
    {
        if (r->json.status != OFL_OK) return;
        read_unit(r, item);
    }
    cut->unit_slice_count = (uint32_t)cut->slice_count;
    cJSON_ArrayForEach(item, ofl_read_member(&r->json, r->root, "lookups", 1))
    {
        if (r->json.status != OFL_OK) return;
        read_slice(r, item, OFL_NO_UNIT, OFL_BLOCK_INPUT);
    }
    cut->part_bytes = r->plan->draft.settings.part_bytes;
    if (cut->unit_count == 0) ofl_read_refuse(&r->json, "there is no unit");
}

static const char **name_at(ofl_plan *plan, uint64_t index)
{
    ofl_plan_facts *facts = &plan->facts;
    if (index < facts->tensor_count) return &facts->tensors[index].name;
    if (index < 2 * facts->tensor_count) return &facts->tensors[index - facts->tensor_count].why;
    return &plan->draft.cut.units[index - 2 * facts->tensor_count].name;
}

/* Strings still belong to the tree: the plan takes copies. */
static void keep_names(reader *r)
{
    ofl_plan_facts *facts = &r->plan->facts;
    uint64_t bytes = 1, count = 2 * facts->tensor_count + r->plan->draft.cut.unit_count;
    for (uint64_t i = 0; i < count; i++) bytes += *name_at(r->plan, i) != NULL ? strlen(*name_at(r->plan, i)) + 1 : 0;
    char *to = facts->names = ofl_alloc(bytes, 1);
    if (to == NULL) {
        ofl_read_no_memory(&r->json);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const char **name = name_at(r->plan, i);
        size_t length = *name != NULL ? strlen(*name) : 0;
        if (*name == NULL) {
            *name = facts->names + bytes - 1; /* a tensor of no bytes, or one that is used */
            continue;
        }
        memcpy(to, *name, length + 1);
        *name = to;
        to += length + 1;
    }
}

static void finish(reader *r)
{
    ofl_plan *plan = r->plan;
    char wanted[OFL_SHA256_HEX];
    memcpy(wanted, plan->identity, sizeof wanted);
    ofl_plan_cut_layout(&plan->draft.cut);
    ofl_plan_index_tensors(plan);
    r->json.status = ofl_plan_check_sums(plan, OFL_ERROR_FORMAT);
    if (r->json.status == OFL_OK) r->json.status = ofl_plan_draft_pieces(&plan->facts, &plan->draft);
    plan->draft.shape = ofl_plan_decode_shape(&plan->draft.settings, plan->draft.settings.sequences);
    if (r->json.status == OFL_OK && strcmp(wanted, ofl_plan_identity(plan)) != 0)
        ofl_read_refuse(&r->json, "it was changed after it was made: its identity is another");
}

static void read_all(reader *r)
{
    if (strcmp(ofl_read_string(&r->json, r->root, "schema"), "ofload.plan/1") != 0) ofl_read_refuse(&r->json, "no schema ofload.plan/1");
    read_identity(r);
    read_model(r);
    read_machine(r);
    if (r->json.status == OFL_OK) read_workload(r);
    read_budget(r);
    read_kv(r);
    read_forecast(r);
    read_advice(r);
    if (r->json.status == OFL_OK) read_units(r);
    if (r->json.status == OFL_OK) keep_names(r);
    if (r->json.status == OFL_OK) finish(r);
}

ofl_status ofl_plan_from_json(const char *json, size_t bytes, ofl_plan **out)
{
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no place for the result");
    *out = NULL;
    if (json == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no JSON given");
    const char *end = NULL;
    cJSON *root = bytes <= BYTES_MOST ? cJSON_ParseWithLengthOpts(json, bytes, &end, 0) : NULL;
    while (root != NULL && end < json + bytes && (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t' || *end == '\0')) end++;
    if (root == NULL || end != json + bytes) {
        cJSON_Delete(root);
        return ofl_fail(OFL_ERROR_FORMAT, "plan: %zu bytes are no JSON, or something follows it", bytes);
    }
    reader r = {.plan = ofl_alloc(1, sizeof *r.plan), .root = root, .text_bytes = bytes};
    if (r.plan == NULL) ofl_read_no_memory(&r.json);
    else read_all(&r);
    cJSON_Delete(root);
    if (r.json.status != OFL_OK) ofl_plan_destroy(r.plan);
    else *out = r.plan;
    return r.json.status;
}

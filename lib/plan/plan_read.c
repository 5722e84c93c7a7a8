/* A plan from JSON. Nothing is believed: every number is bounded, every count is that of what is there, the sums are done again, and the identity is checked last. */
#include "plan/plan_state.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

#define TENSORS_MOST (UINT64_C(1) << 24)
#define BYTES_MOST (UINT64_C(1) << 30) /* of JSON */

/* Reads on until the first failure. */
typedef struct reader {
    ofl_plan *plan;
    const cJSON *root;
    ofl_status status;
    uint64_t bytes; /* of all slices so far */
} reader;

static void fail_format(reader *r, const char *what)
{
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: %s; make the plan anew", what);
}

static void fail_memory(reader *r)
{
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory while reading JSON");
}

static const cJSON *member(reader *r, const cJSON *object, const char *key, int array)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (array ? cJSON_IsArray(item) : cJSON_IsObject(item)) return item;
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is missing or no %s; make the plan anew", key, array ? "array" : "object");
    return NULL;
}

static uint64_t number(reader *r, const cJSON *object, const char *key, uint64_t most)
{
    uint64_t value = 0;
    if (r->status == OFL_OK) r->status = ofl_json_get_u64(object, "plan", key, &value);
    if (r->status == OFL_OK && value > most)
        r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is %llu, at most %llu is possible", key, (unsigned long long)value, (unsigned long long)most);
    return r->status == OFL_OK ? value : 0;
}

static uint64_t size(reader *r, const cJSON *object, const char *key) { return number(r, object, key, OFL_LARGEST_WHOLE); }
static uint32_t count(reader *r, const cJSON *object, const char *key) { return (uint32_t)number(r, object, key, UINT32_MAX); }

/* ≥ 0. */
static double real(reader *r, const cJSON *object, const char *key)
{
    double value = 0;
    if (r->status == OFL_OK) r->status = ofl_json_get_double(object, "plan", key, &value);
    if (r->status == OFL_OK && value < 0) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is below 0", key);
    return value;
}

static const char *string(reader *r, const cJSON *object, const char *key)
{
    const char *value = "";
    if (r->status == OFL_OK) r->status = ofl_json_get_string(object, "plan", key, &value);
    return value;
}

static bool flag(const cJSON *object, const char *key) { return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key)); }

static char *text(reader *r, const cJSON *object, const char *key)
{
    const char *value = string(r, object, key);
    char *copy = r->status == OFL_OK ? ofl_copy_string(value, strlen(value)) : NULL;
    if (copy == NULL) fail_memory(r);
    return copy;
}

/* The number of a name; names end with "?". */
static int kind(reader *r, const cJSON *object, const char *key, const char *(*name)(int))
{
    const char *value = string(r, object, key);
    for (int i = 0; r->status == OFL_OK && strcmp(name(i), "?") != 0; i++) {
        if (strcmp(value, name(i)) == 0) return i;
    }
    if (r->status == OFL_OK) r->status = ofl_fail(OFL_ERROR_FORMAT, "plan: JSON: \"%s\" is \"%.40s\", which is unknown", key, value);
    return 0;
}

static const char *kv_name(int i) { return ofl_plan_kv_type_name((ofl_kv_type)i); }
static const char *class_name(int i) { return ofl_plan_class_name((ofl_tensor_class)i); }
static const char *tier_name(int i) { return ofl_tier_name((ofl_tier)i); }
static const char *source_name(int i) { return ofl_source_name((ofl_source)i); }
static const char *objective_name(int i) { return i == OFL_LATENCY ? "latency" : i == OFL_THROUGHPUT ? "throughput" : "?"; }
static const char *compute_name(int i) { return i == OFL_COMPUTE_BF16 ? "bf16" : i == OFL_COMPUTE_F32 ? "f32" : "?"; }

static void read_hash(reader *r, const cJSON *object, const char *key, char out[OFL_SHA256_HEX])
{
    const char *value = string(r, object, key);
    if (r->status == OFL_OK && strspn(value, "0123456789abcdef") == OFL_SHA256_HEX - 1 && strlen(value) == OFL_SHA256_HEX - 1)
        memcpy(out, value, OFL_SHA256_HEX);
    else fail_format(r, "an identity is no SHA-256");
}

static void read_identity(reader *r)
{
    const cJSON *o = member(r, r->root, "identity", 0);
    read_hash(r, o, "model", r->plan->facts.model_identity);
    read_hash(r, o, "machine", r->plan->facts.machine_identity);
    read_hash(r, o, "plan", r->plan->identity);
}

static void read_shape(reader *r, const cJSON *model)
{
    ofl_model_shape *s = &r->plan->facts.shape;
    const cJSON *o = member(r, model, "shape", 0);
    s->struct_size = sizeof *s;
    s->hidden_size = count(r, o, "hidden");
    s->head_count = count(r, o, "heads");
    s->head_count_kv = count(r, o, "kv_heads");
    s->head_dim_k = count(r, o, "head_dim_k");
    s->head_dim_v = count(r, o, "head_dim_v");
    s->ffn_size = count(r, o, "feed_forward");
    s->vocab_size = count(r, o, "vocabulary");
    s->trained_context_tokens = size(r, o, "trained_context");
}

static ofl_plan_tensor *tensor_at(reader *r, const cJSON *object, uint32_t *index_out)
{
    ofl_plan_facts *facts = &r->plan->facts;
    if (facts->tensor_count == 0) fail_format(r, "there is no tensor");
    uint64_t index = r->status == OFL_OK ? number(r, object, "index", facts->tensor_count - 1) : 0;
    *index_out = (uint32_t)index;
    return r->status == OFL_OK ? &facts->tensors[index] : NULL;
}

static void read_unused(reader *r, const cJSON *model)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, member(r, model, "unused", 1))
    {
        uint32_t index;
        ofl_plan_tensor *tensor = tensor_at(r, item, &index);
        if (tensor == NULL) return;
        if (tensor->name != NULL) fail_format(r, "a tensor is listed twice");
        tensor->tensor_class = OFL_CLASS_UNUSED;
        tensor->name = string(r, item, "name");
        tensor->bytes = size(r, item, "bytes");
    }
}

static void read_model(reader *r)
{
    ofl_plan_facts *f = &r->plan->facts;
    const cJSON *o = member(r, r->root, "model", 0);
    f->model_name = text(r, o, "name");
    f->architecture = text(r, o, "architecture");
    f->shape.block_count = count(r, o, "layers");
    f->shape.parameter_count = size(r, o, "parameters");
    f->stored_bytes = size(r, o, "weight_bytes");
    f->dense_bytes = size(r, o, "dense_bytes");
    f->lookup_bytes = size(r, o, "lookup_bytes");
    f->kv_bytes_per_token = size(r, o, "kv_bytes_per_token");
    f->state_bytes = size(r, o, "state_bytes_per_sequence");
    f->embedding_bytes = size(r, o, "embedding_bytes");
    f->shape.tied_output = flag(o, "tied_output");
    f->shape.expert_count = count(r, o, "expert_count");
    f->shape.expert_used_count = count(r, o, "expert_used_count");
    uint64_t tensors = number(r, o, "tensor_count", TENSORS_MOST);
    read_shape(r, o);
    if (r->status != OFL_OK) return;
    f->tensors = ofl_alloc(tensors, sizeof *f->tensors);
    if (f->tensors == NULL) fail_memory(r);
    else f->tensor_count = tensors;
    if (r->status == OFL_OK) read_unused(r, o);
}

static void read_machine(reader *r)
{
    ofl_plan_facts *f = &r->plan->facts;
    const cJSON *o = member(r, r->root, "machine", 0), *sources = member(r, o, "sources", 0);
    f->device = text(r, o, "device");
    f->simulated = flag(o, "simulated");
    for (int i = 0; i < OFL_FIGURE_COUNT && r->status == OFL_OK; i++) {
        const char *key = ofl_figure_key((ofl_figure)i);
        f->sources[i] = (ofl_source)kind(r, sources, key, source_name);
        if (f->sources[i] != OFL_SOURCE_NONE) f->figures[i] = real(r, o, key);
    }
    if (r->status == OFL_OK && (f->sources[OFL_FIGURE_VRAM] == OFL_SOURCE_NONE || !(f->figures[OFL_FIGURE_LINK] > 0)))
        fail_format(r, "the machine has no memory or no link");
    if (r->status == OFL_OK && (f->figures[OFL_FIGURE_VRAM] >= (double)OFL_LARGEST_WHOLE || f->figures[OFL_FIGURE_RUNTIME] >= (double)OFL_LARGEST_WHOLE))
        fail_format(r, "the machine's memory is beyond 2^53 bytes");
}

static void read_points(reader *r, const cJSON *workload)
{
    ofl_plan_facts *f = &r->plan->facts;
    const cJSON *array = member(r, workload, "compute_points", 1), *item;
    if (r->status != OFL_OK) return;
    f->points = ofl_alloc((uint64_t)cJSON_GetArraySize(array), sizeof *f->points);
    if (f->points == NULL) fail_memory(r);
    cJSON_ArrayForEach(item, array)
    {
        if (r->status != OFL_OK) return;
        ofl_compute_point *p = &f->points[f->point_count];
        p->tokens = real(r, item, "tokens");
        p->seconds_per_element = real(r, item, "seconds_per_element");
        if (!(p->tokens > (f->point_count ? p[-1].tokens : 0)) || !(p->seconds_per_element > 0)) fail_format(r, "compute points do not ascend");
        f->point_count++;
    }
}

static void read_workload(reader *r)
{
    ofl_plan_settings *s = &r->plan->draft.settings;
    const cJSON *o = member(r, r->root, "workload", 0);
    s->struct_size = sizeof *s;
    s->context_tokens = number(r, o, "context", UINT32_MAX);
    s->sequences = (uint32_t)number(r, o, "sequences", OFL_SEQUENCES_MOST);
    s->queue_length = size(r, o, "queue_length");
    s->prefill_chunk_tokens = count(r, o, "prefill_chunk");
    s->tokens_per_step_cap = count(r, o, "tokens_per_step_cap");
    s->kv_type = (ofl_kv_type)kind(r, o, "kv_type", kv_name);
    s->objective = (ofl_objective)kind(r, o, "objective", objective_name);
    s->compute_type = (ofl_compute_type)kind(r, o, "compute_type", compute_name);
    s->kv_block_tokens = count(r, o, "kv_block_tokens");
    s->part_bytes = size(r, o, "part_bytes");
    s->copy_bytes = size(r, o, "copy_bytes");
    r->plan->facts.attention_seconds = real(r, o, "attention_seconds_per_kv_token");
    r->plan->facts.host_seconds = real(r, o, "host_seconds_per_step");
    read_points(r, o);
    if (r->status == OFL_OK && (s->context_tokens == 0 || s->sequences == 0 || s->prefill_chunk_tokens == 0 || s->tokens_per_step_cap < s->sequences ||
                                s->kv_block_tokens != OFL_KV_BLOCK_TOKENS || s->copy_bytes == 0))
        fail_format(r, "the workload contradicts itself");
}

static void read_budget(reader *r)
{
    ofl_budget *b = &r->plan->draft.budget;
    const cJSON *o = member(r, r->root, "budget", 0), *a = member(r, r->root, "activation", 0);
    const cJSON *tiers = member(r, r->root, "tiers", 0), *stream = member(r, r->root, "stream", 0);
    b->struct_size = sizeof *b;
    b->vram_bytes = size(r, o, "vram_bytes");
    b->total_bytes = size(r, o, "total_bytes");
    b->resident_bytes = size(r, o, "resident_bytes");
    b->ring_bytes = size(r, o, "ring_bytes");
    b->kv_bytes = size(r, o, "kv_bytes");
    b->activation_bytes = size(r, o, "activation_bytes");
    b->runtime_bytes = size(r, o, "runtime_bytes");
    b->headroom_bytes = r->plan->facts.headroom_bytes = size(r, o, "headroom_bytes");
    b->logits_bytes = size(r, a, "logits_bytes");
    b->workspace_bytes = size(r, a, "workspace_bytes");
    b->device_bytes = size(r, tiers, "device_bytes");
    b->pinned_bytes = size(r, tiers, "pinned_bytes");
    b->pageable_bytes = size(r, tiers, "pageable_bytes");
    b->file_bytes = size(r, tiers, "file_bytes");
    b->stream_bytes_per_step = size(r, stream, "bytes_per_step");
    b->stream_copies_per_step = size(r, stream, "copies_per_step");
    b->lower_bound_bytes_per_step = size(r, stream, "lower_bound_bytes_per_step");
}

static void read_kv(reader *r)
{
    ofl_plan_settings *s = &r->plan->draft.settings;
    const cJSON *o = member(r, r->root, "kv", 0);
    s->kv_bytes_per_token = size(r, o, "bytes_per_token");
    s->kv_bytes_per_sequence = size(r, o, "bytes_per_sequence");
    s->kv_capacity_tokens = size(r, o, "capacity_tokens");
    s->max_sequences = count(r, o, "max_sequences_at_context");
    if (r->status == OFL_OK && s->kv_bytes_per_token != r->plan->facts.kv_bytes_per_token) fail_format(r, "KV bytes per token differ");
}

static void read_forecast(reader *r)
{
    ofl_plan *plan = r->plan;
    ofl_forecast *f = &plan->forecast;
    const cJSON *o = member(r, r->root, "forecast", 0), *item;
    *f = (ofl_forecast){.struct_size = sizeof *f, .step.struct_size = sizeof f->step};
    f->sequences = count(r, o, "sequences");
    f->step.step_seconds = real(r, o, "step_seconds");
    f->step.link_seconds = real(r, o, "link_seconds");
    f->step.compute_seconds = real(r, o, "compute_seconds");
    f->step.link_idle_seconds = real(r, o, "link_idle_seconds");
    f->step.stall_seconds = real(r, o, "stall_seconds");
    f->step.bound_seconds = fmax(f->step.link_seconds, f->step.compute_seconds);
    f->error_band_percent = real(r, o, "error_band_percent");
    f->tokens_per_second = real(r, o, "tokens_per_second");
    f->link_bound = strcmp(string(r, o, "bound"), "link") == 0;
    f->knee_tokens = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o, "knee_tokens")) ? 0 : size(r, o, "knee_tokens");
    f->first_token_seconds = real(r, o, "first_token_seconds");
    plan->draft.step = f->step;
    cJSON_ArrayForEach(item, member(r, o, "by_sequences", 1))
    {
        if (plan->row_count == OFL_PLAN_ROWS) fail_format(r, "too many rows by sequences");
        if (r->status != OFL_OK) return;
        plan->rows[plan->row_count] = (ofl_plan_row){count(r, item, "sequences"), real(r, item, "step_seconds"), real(r, item, "tokens_per_second")};
        plan->row_count++;
    }
}

static void read_advice(reader *r)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, member(r, r->root, "advice", 1))
    {
        if (r->status != OFL_OK) return;
        if (!cJSON_IsString(item) || r->plan->advice_count == OFL_PLAN_ADVICE) fail_format(r, "an advice is no sentence, or there are too many");
        else if ((r->plan->advice[r->plan->advice_count] = ofl_copy_string(item->valuestring, strlen(item->valuestring))) == NULL) fail_memory(r);
        else r->plan->advice_count++;
    }
}

/* [first, count], or none: all rows. */
static void read_rows(reader *r, const cJSON *object, ofl_plan_tensor *tensor, ofl_slice *slice)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(object, "rows");
    if (tensor->row_bytes == 0 || slice->bytes == 0 || slice->bytes % tensor->row_bytes != 0) {
        fail_format(r, "the bytes of a tensor are no whole rows");
        return;
    }
    slice->row_count = slice->bytes / tensor->row_bytes;
    slice->row_first = tensor->rows;
    bool pair = rows != NULL && cJSON_GetArraySize(rows) == 2;
    if (rows != NULL && !(pair && cJSON_IsNumber(rows->child) && cJSON_IsNumber(rows->child->next) && rows->child->valuedouble == (double)slice->row_first &&
                          rows->child->next->valuedouble == (double)slice->row_count))
        fail_format(r, "the rows of a tensor have gaps, overlap or do not match its bytes");
    if (rows == NULL && slice->row_first != 0) fail_format(r, "a whole tensor has parts");
}

static void read_slice(reader *r, const cJSON *item, uint32_t unit, int32_t block)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    ofl_slice slice = {.struct_size = sizeof slice, .unit = unit};
    ofl_plan_tensor *t = tensor_at(r, item, &slice.tensor);
    if (t == NULL) return;
    bool follows = cut->slice_count > 0 && cut->slices[cut->slice_count - 1].tensor == slice.tensor && cut->slices[cut->slice_count - 1].unit != unit;
    if (t->name != NULL && !follows) fail_format(r, "a tensor is listed twice");
    int tensor_class = kind(r, item, "class", class_name);
    uint64_t row_bytes = size(r, item, "row_bytes");
    if (t->name != NULL && (tensor_class != t->tensor_class || row_bytes != t->row_bytes || block != t->block)) fail_format(r, "parts of a tensor differ");
    if ((tensor_class == OFL_CLASS_LOOKUP) != (unit == OFL_NO_UNIT) || tensor_class == OFL_CLASS_UNUSED) fail_format(r, "a tensor's class does not belong there");
    if (t->name == NULL) t->name = string(r, item, "name");
    t->tensor_class = (uint8_t)tensor_class;
    t->row_bytes = row_bytes;
    t->block = block;
    t->also_lookup = cJSON_GetObjectItemCaseSensitive(item, "also") != NULL;
    slice.bytes = size(r, item, "bytes");
    slice.tier = (ofl_tier)kind(r, item, "tier", tier_name);
    if (r->status == OFL_OK) read_rows(r, item, t, &slice);
    r->bytes += slice.bytes;
    if (r->bytes >= OFL_LARGEST_WHOLE) fail_format(r, "all tensors together are beyond 2^53 bytes");
    if (r->status != OFL_OK) return;
    t->rows += slice.row_count;
    t->bytes += slice.bytes;
    if (cut->slice_count >= OFL_NO_UNIT || !ofl_grow((void **)&cut->slices, &cut->slice_capacity, cut->slice_count + 1, sizeof slice)) fail_memory(r);
    else cut->slices[cut->slice_count++] = slice;
}

static void read_load(reader *r, const cJSON *unit, ofl_unit_load *load)
{
    const cJSON *o = member(r, unit, "load", 0);
    load->bytes = (double)size(r, o, "bytes");
    load->elements = (double)size(r, o, "elements");
    if (cJSON_GetObjectItemCaseSensitive(o, "expert_elements") != NULL) {
        load->expert_bytes = (double)size(r, o, "expert_bytes");
        load->expert_elements = (double)size(r, o, "expert_elements");
    }
    load->head = flag(o, "head");
    load->attention = flag(o, "attention");
}

static int32_t read_block(reader *r, const cJSON *item)
{
    double block = 0;
    if (r->status == OFL_OK) r->status = ofl_json_get_double(item, "plan", "block", &block);
    if (r->status == OFL_OK && !(block >= OFL_BLOCK_INPUT && block <= 2147483647.0 && floor(block) == block)) fail_format(r, "a unit's block is no block");
    return r->status == OFL_OK ? (int32_t)block : 0;
}

static void read_unit(reader *r, const cJSON *item)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    const cJSON *slice;
    if (!ofl_grow((void **)&cut->units, &cut->unit_capacity, cut->unit_count + 1, sizeof *cut->units) ||
        !ofl_grow((void **)&cut->loads, &cut->load_capacity, cut->unit_count + 1, sizeof *cut->loads)) {
        fail_memory(r);
        return;
    }
    ofl_unit unit = {.struct_size = sizeof unit, .name = string(r, item, "name"), .block = read_block(r, item), .slice_first = (uint32_t)cut->slice_count};
    unit.compute_seconds = real(r, item, "compute_seconds");
    unit.streamed_bytes = size(r, item, "streamed_bytes");
    read_load(r, item, &cut->loads[cut->unit_count]);
    cJSON_ArrayForEach(slice, member(r, item, "tensors", 1))
    {
        if (r->status != OFL_OK) return;
        read_slice(r, slice, (uint32_t)cut->unit_count, unit.block);
    }
    unit.slice_count = (uint32_t)cut->slice_count - unit.slice_first;
    if (unit.slice_count == 0) fail_format(r, "a unit is empty");
    if (cut->unit_count > 0 && unit.block < cut->units[cut->unit_count - 1].block) fail_format(r, "the units are not in execution order");
    cut->units[cut->unit_count++] = unit;
}

static void read_units(reader *r)
{
    ofl_plan_cut *cut = &r->plan->draft.cut;
    const cJSON *item;
    cJSON_ArrayForEach(item, member(r, r->root, "units", 1))
    {
        if (r->status != OFL_OK) return;
        read_unit(r, item);
    }
    cut->unit_slice_count = (uint32_t)cut->slice_count;
    cJSON_ArrayForEach(item, member(r, r->root, "lookups", 1))
    {
        if (r->status != OFL_OK) return;
        read_slice(r, item, OFL_NO_UNIT, OFL_BLOCK_INPUT);
    }
    cut->part_bytes = r->plan->draft.settings.part_bytes;
    if (cut->unit_count == 0) fail_format(r, "there is no unit");
}

/* Strings still belong to the tree: the plan takes copies. */
static void keep_names(reader *r)
{
    ofl_plan_facts *facts = &r->plan->facts;
    ofl_plan_cut *cut = &r->plan->draft.cut;
    uint64_t bytes = 1;
    for (uint64_t i = 0; i < facts->tensor_count; i++) bytes += facts->tensors[i].name != NULL ? strlen(facts->tensors[i].name) + 1 : 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) bytes += strlen(cut->units[i].name) + 1;
    char *to = facts->names = ofl_alloc(bytes, 1);
    if (to == NULL) {
        fail_memory(r);
        return;
    }
    for (uint64_t i = 0; i < facts->tensor_count + cut->unit_count; i++) {
        const char **name = i < facts->tensor_count ? &facts->tensors[i].name : &cut->units[i - facts->tensor_count].name;
        size_t length = *name != NULL ? strlen(*name) : 0;
        if (*name == NULL) {
            *name = facts->names + bytes - 1; /* a tensor of no bytes */
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
    uint64_t copies = plan->draft.budget.stream_copies_per_step, bytes = plan->draft.budget.stream_bytes_per_step;
    memcpy(wanted, plan->identity, sizeof wanted);
    ofl_plan_cut_layout(&plan->draft.cut);
    ofl_plan_index_tensors(plan);
    r->status = ofl_plan_check_sums(plan, OFL_ERROR_FORMAT);
    if (r->status == OFL_OK) r->status = ofl_plan_draft_pieces(&plan->facts, &plan->draft);
    if (r->status == OFL_OK && (copies != plan->draft.budget.stream_copies_per_step || bytes != plan->draft.budget.stream_bytes_per_step))
        fail_format(r, "what is streamed in a step is not what the units say");
    plan->draft.shape = ofl_plan_decode_shape(&plan->draft.settings, plan->draft.settings.sequences);
    if (r->status == OFL_OK) r->status = ofl_plan_identify(plan);
    if (r->status == OFL_OK && strcmp(wanted, plan->identity) != 0) fail_format(r, "it was changed after it was made: its identity is another");
}

static void read_all(reader *r)
{
    if (strcmp(string(r, r->root, "schema"), "ofload.plan/1") != 0) fail_format(r, "no schema ofload.plan/1");
    read_identity(r);
    read_model(r);
    read_machine(r);
    if (r->status == OFL_OK) read_workload(r);
    read_budget(r);
    read_kv(r);
    read_forecast(r);
    read_advice(r);
    if (r->status == OFL_OK) read_units(r);
    if (r->status == OFL_OK) keep_names(r);
    if (r->status == OFL_OK) finish(r);
}

ofl_status ofl_plan_from_json(const char *json, size_t bytes, ofl_plan **out)
{
    if (json == NULL || out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no JSON or no place for the result");
    const char *end = NULL;
    cJSON *root = bytes <= BYTES_MOST ? cJSON_ParseWithLengthOpts(json, bytes, &end, 0) : NULL;
    while (root != NULL && end < json + bytes && (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t' || *end == '\0')) end++;
    if (root == NULL || end != json + bytes) {
        cJSON_Delete(root);
        return ofl_fail(OFL_ERROR_FORMAT, "plan: %zu bytes are no JSON, or something follows it", bytes);
    }
    reader r = {.plan = ofl_alloc(1, sizeof *r.plan), .root = root};
    if (r.plan == NULL) fail_memory(&r);
    else read_all(&r);
    cJSON_Delete(root);
    if (r.status != OFL_OK) ofl_plan_destroy(r.plan);
    else *out = r.plan;
    return r.status;
}

/* A plan as JSON, schema ofload.plan/1: what people and programs read, and all that a plan read back needs. */
#include "base/once.h"
#include "plan/json_text.h"
#include "plan/plan_state.h"

#include <string.h>

static void write_identity(ofl_json_text *t, const ofl_plan *plan, bool with_plan)
{
    ofl_json_open(t, "identity", '{');
    ofl_json_put_string(t, "model", plan->facts.model_identity);
    ofl_json_put_string(t, "machine", plan->facts.machine_identity);
    if (with_plan) ofl_json_put_string(t, "plan", ofl_plan_identity(plan));
    ofl_json_close(t, '{');
}

static void write_unused(ofl_json_text *t, const ofl_plan_facts *facts)
{
    ofl_json_open(t, "unused", '[');
    for (uint64_t i = 0; i < facts->tensor_count; i++) {
        if (facts->tensors[i].tensor_class != OFL_CLASS_UNUSED) continue;
        ofl_json_open(t, NULL, '{');
        ofl_json_put_string(t, "name", facts->tensors[i].name);
        ofl_json_put_u64(t, "bytes", facts->tensors[i].bytes);
        ofl_json_put_string(t, "why", facts->tensors[i].why);
        ofl_json_put_u64(t, "index", i);
        ofl_json_close(t, '{');
    }
    ofl_json_close(t, '[');
}

static void write_shape(ofl_json_text *t, const ofl_model_shape *shape)
{
    ofl_json_open(t, "shape", '{');
    ofl_json_put_u64(t, "hidden", shape->hidden_size);
    ofl_json_put_u64(t, "heads", shape->head_count);
    ofl_json_put_u64(t, "kv_heads", shape->head_count_kv);
    ofl_json_put_u64(t, "head_dim_k", shape->head_dim_k);
    ofl_json_put_u64(t, "head_dim_v", shape->head_dim_v);
    ofl_json_put_u64(t, "feed_forward", shape->ffn_size);
    ofl_json_put_u64(t, "vocabulary", shape->vocab_size);
    ofl_json_put_u64(t, "trained_context", shape->trained_context_tokens);
    ofl_json_close(t, '{');
}

static void write_model(ofl_json_text *t, const ofl_plan_facts *facts)
{
    ofl_json_open(t, "model", '{');
    ofl_json_put_string(t, "name", facts->model_name);
    ofl_json_put_string(t, "architecture", facts->architecture);
    ofl_json_put_u64(t, "layers", facts->shape.block_count);
    ofl_json_put_u64(t, "parameters", facts->shape.parameter_count);
    ofl_json_put_u64(t, "weight_bytes", facts->stored_bytes);
    ofl_json_put_u64(t, "dense_bytes", facts->dense_bytes);
    ofl_json_put_u64(t, "lookup_bytes", facts->lookup_bytes);
    ofl_json_put_u64(t, "kv_bytes_per_token", facts->kv_bytes_per_token);
    ofl_json_put_u64(t, "state_bytes_per_sequence", facts->state_bytes);
    ofl_json_put_u64(t, "embedding_bytes", facts->embedding_bytes);
    ofl_json_put_bool(t, "tied_output", facts->shape.tied_output != 0);
    ofl_json_put_u64(t, "expert_count", facts->shape.expert_count);
    ofl_json_put_u64(t, "expert_used_count", facts->shape.expert_used_count);
    ofl_json_put_u64(t, "tensor_count", facts->tensor_count);
    write_shape(t, &facts->shape);
    write_unused(t, facts);
    ofl_json_close(t, '{');
}

static bool is_whole(ofl_figure figure)
{
    return figure == OFL_FIGURE_VRAM || figure == OFL_FIGURE_HOST || figure == OFL_FIGURE_PINNABLE || figure == OFL_FIGURE_RUNTIME;
}

static void write_machine(ofl_json_text *t, const ofl_plan_facts *facts)
{
    ofl_json_open(t, "machine", '{');
    ofl_json_put_string(t, "device", facts->device);
    ofl_json_put_bool(t, "simulated", facts->simulated);
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        const char *key = ofl_figure_key((ofl_figure)i);
        if (facts->sources[i] == OFL_SOURCE_NONE) ofl_json_put_null(t, key);
        else if (is_whole((ofl_figure)i)) ofl_json_put_u64(t, key, (uint64_t)facts->figures[i]);
        else ofl_json_put_double(t, key, facts->figures[i]);
    }
    ofl_json_open(t, "sources", '{');
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        if (facts->sources[i] == OFL_SOURCE_NONE) continue;
        ofl_json_put_string(t, ofl_figure_key((ofl_figure)i), ofl_source_name(facts->sources[i]));
    }
    ofl_json_close(t, '{');
    ofl_json_close(t, '{');
}

static void write_curve(ofl_json_text *t, const char *key, const ofl_compute_point *points, uint64_t count)
{
    ofl_json_open(t, key, '[');
    for (uint64_t i = 0; i < count; i++) {
        ofl_json_open(t, NULL, '{');
        ofl_json_put_double(t, "tokens", points[i].tokens);
        ofl_json_put_double(t, "seconds_per_element", points[i].seconds_per_element);
        ofl_json_close(t, '{');
    }
    ofl_json_close(t, '[');
}

static void write_compute(ofl_json_text *t, const ofl_plan_facts *facts)
{
    write_curve(t, "compute_points", facts->points, facts->point_count);
    write_curve(t, "head_points", facts->head_points, facts->head_point_count);
    ofl_json_put_double(t, "attention_seconds_per_kv_token", facts->attention_seconds);
    ofl_json_put_double(t, "prefill_attention_seconds_per_kv_token", facts->prefill_seconds);
    ofl_json_put_double(t, "host_seconds_per_step", facts->host_seconds);
    ofl_json_put_double(t, "host_seconds_per_row", facts->row_seconds);
    if (facts->unit_seconds != 0) ofl_json_put_double(t, "host_seconds_per_unit", facts->unit_seconds);
    if (facts->piece_seconds != 0) ofl_json_put_double(t, "host_seconds_per_piece", facts->piece_seconds);
}

static void write_workload(ofl_json_text *t, const ofl_plan *plan)
{
    const ofl_plan_settings *s = &plan->draft.settings;
    ofl_json_open(t, "workload", '{');
    ofl_json_put_u64(t, "context", s->context_tokens);
    ofl_json_put_u64(t, "sequences", s->sequences);
    ofl_json_put_u64(t, "queue_length", s->queue_length);
    ofl_json_put_u64(t, "prefill_chunk", s->prefill_chunk_tokens);
    ofl_json_put_u64(t, "tokens_per_step_cap", s->tokens_per_step_cap);
    ofl_json_put_string(t, "kv_type", ofl_kv_type_name(s->kv_type));
    ofl_json_put_string(t, "objective", s->objective == OFL_THROUGHPUT ? "throughput" : "latency");
    ofl_json_put_string(t, "compute_type", s->compute_type == OFL_COMPUTE_F32 ? "f32" : "bf16");
    ofl_json_put_u64(t, "kv_block_tokens", s->kv_block_tokens);
    ofl_json_put_u64(t, "part_bytes", s->part_bytes);
    ofl_json_put_u64(t, "copy_bytes", s->copy_bytes);
    if (s->workspace_bytes != 0) ofl_json_put_u64(t, "workspace_bytes", s->workspace_bytes);
    write_compute(t, &plan->facts);
    ofl_json_close(t, '{');
}

static void write_budget(ofl_json_text *t, const ofl_budget *b)
{
    ofl_json_open(t, "budget", '{');
    ofl_json_put_u64(t, "vram_bytes", b->vram_bytes);
    ofl_json_put_u64(t, "total_bytes", b->total_bytes);
    ofl_json_put_u64(t, "resident_bytes", b->resident_bytes);
    ofl_json_put_u64(t, "ring_bytes", b->ring_bytes);
    ofl_json_put_u64(t, "kv_bytes", b->kv_bytes);
    ofl_json_put_u64(t, "activation_bytes", b->activation_bytes);
    ofl_json_put_u64(t, "runtime_bytes", b->runtime_bytes);
    ofl_json_put_u64(t, "headroom_bytes", b->headroom_bytes);
    ofl_json_close(t, '{');
    ofl_json_open(t, "activation", '{');
    ofl_json_put_u64(t, "logits_bytes", b->logits_bytes);
    ofl_json_put_u64(t, "workspace_bytes", b->workspace_bytes);
    ofl_json_close(t, '{');
    ofl_json_open(t, "tiers", '{');
    ofl_json_put_u64(t, "device_bytes", b->device_bytes);
    ofl_json_put_u64(t, "pinned_bytes", b->pinned_bytes);
    ofl_json_put_u64(t, "pageable_bytes", b->pageable_bytes);
    ofl_json_put_u64(t, "file_bytes", b->file_bytes);
    ofl_json_close(t, '{');
    ofl_json_open(t, "stream", '{');
    ofl_json_put_u64(t, "bytes_per_step", b->stream_bytes_per_step);
    ofl_json_put_u64(t, "copies_per_step", b->stream_copies_per_step);
    ofl_json_put_u64(t, "lower_bound_bytes_per_step", b->lower_bound_bytes_per_step);
    ofl_json_close(t, '{');
}

static void write_kv(ofl_json_text *t, const ofl_plan_settings *s)
{
    ofl_json_open(t, "kv", '{');
    ofl_json_put_u64(t, "bytes_per_token", s->kv_bytes_per_token);
    ofl_json_put_u64(t, "bytes_per_sequence", s->kv_bytes_per_sequence);
    ofl_json_put_u64(t, "capacity_tokens", s->kv_capacity_tokens);
    ofl_json_put_u64(t, "max_sequences_at_context", s->max_sequences);
    ofl_json_close(t, '{');
}

static void write_slice(ofl_json_text *t, const ofl_plan_facts *facts, const ofl_slice *slice)
{
    const ofl_plan_tensor *tensor = &facts->tensors[slice->tensor];
    ofl_json_open(t, NULL, '{');
    ofl_json_put_string(t, "name", tensor->name);
    ofl_json_put_u64(t, "index", slice->tensor);
    ofl_json_put_string(t, "class", ofl_plan_class_name((ofl_tensor_class)tensor->tensor_class));
    if (tensor->also_lookup) ofl_json_put_string(t, "also", "lookup");
    if (tensor->callers) ofl_json_put_string(t, "kept", "caller");
    ofl_json_put_u64(t, "bytes", slice->bytes);
    ofl_json_put_u64(t, "row_bytes", tensor->row_bytes);
    ofl_json_put_string(t, "tier", ofl_tier_name(slice->tier));
    if (slice->row_count != tensor->rows) {
        ofl_json_open(t, "rows", '[');
        ofl_json_put_u64(t, NULL, slice->row_first);
        ofl_json_put_u64(t, NULL, slice->row_count);
        ofl_json_close(t, '[');
    }
    ofl_json_close(t, '{');
}

static void write_load(ofl_json_text *t, const ofl_unit_load *load)
{
    ofl_json_open(t, "load", '{');
    ofl_json_put_u64(t, "bytes", (uint64_t)load->bytes);
    ofl_json_put_u64(t, "elements", (uint64_t)load->elements);
    if (load->expert_elements > 0) {
        ofl_json_put_u64(t, "expert_bytes", (uint64_t)load->expert_bytes);
        ofl_json_put_u64(t, "expert_elements", (uint64_t)load->expert_elements);
    }
    if (load->head) ofl_json_put_bool(t, "head", true);
    if (load->attention) ofl_json_put_bool(t, "attention", true);
    ofl_json_close(t, '{');
}

static void write_units(ofl_json_text *t, const ofl_plan *plan)
{
    const ofl_plan_cut *cut = &plan->draft.cut;
    ofl_json_open(t, "units", '[');
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        const ofl_unit *unit = &cut->units[i];
        ofl_json_open(t, NULL, '{');
        ofl_json_put_string(t, "name", unit->name);
        ofl_json_put_i64(t, "block", unit->block);
        ofl_json_put_u64(t, "streamed_bytes", unit->streamed_bytes);
        ofl_json_put_double(t, "compute_seconds", unit->compute_seconds);
        write_load(t, &cut->loads[i]);
        ofl_json_open(t, "tensors", '[');
        for (uint32_t j = 0; j < unit->slice_count; j++) write_slice(t, &plan->facts, &cut->slices[unit->slice_first + j]);
        ofl_json_close(t, '[');
        ofl_json_close(t, '{');
    }
    ofl_json_close(t, '[');
    ofl_json_open(t, "lookups", '[');
    for (uint64_t i = cut->unit_slice_count; i < cut->slice_count; i++) write_slice(t, &plan->facts, &cut->slices[i]);
    ofl_json_close(t, '[');
}

/* Stored in full; a step reads those that its tokens are sent to (expected, even routing). Modelled. */
static void write_experts(ofl_json_text *t, const ofl_plan *plan)
{
    const ofl_plan_cut *cut = &plan->draft.cut;
    ofl_step_shape shape = ofl_plan_decode_shape(&plan->draft.settings, plan->forecast.sequences);
    ofl_step_rates rates;
    double stored = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) stored += cut->loads[i].expert_bytes;
    if (stored <= 0) return;
    ofl_plan_rates(&plan->facts, &shape, &rates);
    ofl_json_open(t, "experts", '{');
    ofl_json_put_u64(t, "stored_bytes", (uint64_t)stored);
    ofl_json_put_u64(t, "read_bytes_per_step", (uint64_t)(stored * rates.expert_share));
    ofl_json_put_u64(t, "tokens_per_step", shape.tokens);
    ofl_json_close(t, '{');
}

static void write_rows(ofl_json_text *t, const ofl_plan *plan)
{
    ofl_json_open(t, "by_sequences", '[');
    for (uint32_t i = 0; i < plan->row_count; i++) {
        ofl_json_open(t, NULL, '{');
        ofl_json_put_u64(t, "sequences", plan->rows[i].sequences);
        ofl_json_put_double(t, "step_seconds", plan->rows[i].step_seconds);
        ofl_json_put_double(t, "tokens_per_second", plan->rows[i].tokens_per_second);
        ofl_json_close(t, '{');
    }
    ofl_json_close(t, '[');
}

static void write_forecast(ofl_json_text *t, const ofl_plan *plan)
{
    const ofl_forecast *f = &plan->forecast;
    ofl_json_open(t, "forecast", '{');
    ofl_json_put_u64(t, "sequences", f->sequences);
    ofl_json_put_double(t, "step_seconds", f->step.step_seconds);
    ofl_json_put_double(t, "link_seconds", f->step.link_seconds);
    ofl_json_put_double(t, "compute_seconds", f->step.compute_seconds);
    ofl_json_put_double(t, "link_idle_seconds", f->step.link_idle_seconds);
    ofl_json_put_double(t, "stall_seconds", f->step.stall_seconds);
    ofl_json_put_double(t, "error_band_percent", f->error_band_percent);
    ofl_json_put_double(t, "tokens_per_second", f->tokens_per_second);
    ofl_json_put_string(t, "bound", f->link_bound ? "link" : "compute");
    if (f->knee_tokens != 0) ofl_json_put_u64(t, "knee_tokens", f->knee_tokens);
    else ofl_json_put_null(t, "knee_tokens");
    ofl_json_put_double(t, "first_token_seconds", f->first_token_seconds);
    if (f->load_seconds != 0) ofl_json_put_double(t, "load_seconds", f->load_seconds);
    ofl_json_put_double(t, "lower_bound_seconds", f->lower_bound_seconds);
    ofl_json_put_double(t, "above_bound_percent", 100 * ofl_plan_above_bound(f));
    ofl_json_put_string(t, "above_bound_why", ofl_plan_above_bound_why(plan));
    write_rows(t, plan);
    ofl_json_close(t, '{');
    ofl_json_open(t, "advice", '[');
    for (uint32_t i = 0; i < plan->advice_count; i++) ofl_json_put_string(t, NULL, plan->advice[i]);
    ofl_json_close(t, '[');
}

static void write_plan(ofl_json_text *t, const ofl_plan *plan, bool with_identity)
{
    ofl_json_open(t, NULL, '{');
    ofl_json_put_string(t, "schema", "ofload.plan/1");
    write_identity(t, plan, with_identity);
    write_model(t, &plan->facts);
    write_machine(t, &plan->facts);
    write_workload(t, plan);
    write_budget(t, &plan->draft.budget);
    write_kv(t, &plan->draft.settings);
    write_experts(t, plan);
    write_forecast(t, plan);
    write_units(t, plan);
    ofl_json_close(t, '{');
}

/* SHA-256 of its JSON without this identity. */
static void hash_plan(const ofl_plan *plan, char hex_out[OFL_SHA256_HEX])
{
    char buffer[4096];
    ofl_sha256 hash;
    ofl_json_text text = {.bytes = buffer, .capacity = sizeof buffer, .hash = &hash};
    ofl_sha256_init(&hash);
    write_plan(&text, plan, false);
    ofl_json_hash_rest(&text);
    ofl_sha256_finish_hex(&hash, hex_out);
}

static void identify(void *context)
{
    ofl_plan *plan = context;
    hash_plan(plan, plan->identity);
}

const char *ofl_plan_identity(const ofl_plan *plan)
{
    if (plan == NULL) return "";
    ofl_plan *mine = (ofl_plan *)plan; /* a value still: it is the same whenever it is made */
    ofl_once(&mine->identified, identify, mine);
    return plan->identity;
}

ofl_status ofl_plan_to_json(const ofl_plan *plan, char **json_out)
{
    if (plan == NULL || json_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no plan or no place for its JSON");
    ofl_json_text text = {0};
    uint64_t guess = 16384 + 256 * (plan->draft.cut.unit_count + plan->draft.cut.slice_count);
    text.failed = !ofl_grow((void **)&text.bytes, &text.capacity, guess, 1);
    write_plan(&text, plan, true);
    if (!text.failed) {
        *json_out = text.bytes;
        return OFL_OK;
    }
    ofl_free(text.bytes);
    return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory while writing JSON");
}

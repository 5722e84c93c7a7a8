/* Models and machines for the planner's tests: shapes only, no bytes. */
#ifndef OFLOAD_TEST_PLAN_MODELS_H
#define OFLOAD_TEST_PLAN_MODELS_H

#include "support/support.h"

#include <stdbool.h>

typedef struct test_shape {
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    uint32_t tied, biases;
    ofl_dtype dtype;
} test_shape;

static inline test_shape qwen7b(void) { return (test_shape){28, 3584, 28, 4, 128, 18944, 152064, 0, 1, OFL_DTYPE_BF16}; }
static inline test_shape llama70b(void) { return (test_shape){80, 8192, 64, 8, 128, 28672, 128256, 0, 0, OFL_DTYPE_BF16}; }
static inline test_shape smol135m(void) { return (test_shape){30, 576, 9, 3, 64, 1536, 49152, 1, 0, OFL_DTYPE_BF16}; }

static inline void add_tensor(ofl_model_builder *b, const char *name, const test_shape *s, ofl_dtype dtype, ofl_tensor_class kind,
                              ofl_tensor_role role, int32_t block, uint64_t columns, uint64_t rows)
{
    char full[96];
    bool in_block = block >= 0 && (uint32_t)block < s->layers;
    (void)(in_block ? snprintf(full, sizeof full, "blk.%d.%s", (int)block, name) : snprintf(full, sizeof full, "%s", name));
    ofl_tensor_source t = {
        .struct_size = sizeof t, .name = full, .dtype = dtype, .tensor_class = kind, .role = role, .block = block, .n_dims = rows ? 2 : 1};
    t.dims[0] = columns;
    t.dims[1] = rows;
    t.also_lookup = s->tied && role == OFL_ROLE_EMBEDDING;
    assert_ok(ofl_model_builder_add_tensor(b, &t));
}

static inline void add_block(ofl_model_builder *b, const test_shape *s, int32_t block)
{
    uint64_t h = s->hidden, q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim, f = s->ffn;
    add_tensor(b, "attn_norm", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_NORM, block, h, 0);
    add_tensor(b, "attn_q", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_Q, block, h, q);
    if (s->biases) add_tensor(b, "attn_q_bias", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_Q_BIAS, block, q, 0);
    add_tensor(b, "attn_k", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_K, block, h, kv);
    if (s->biases) add_tensor(b, "attn_k_bias", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_K_BIAS, block, kv, 0);
    add_tensor(b, "attn_v", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_V, block, h, kv);
    if (s->biases) add_tensor(b, "attn_v_bias", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_V_BIAS, block, kv, 0);
    add_tensor(b, "attn_output", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_OUTPUT, block, q, h);
    add_tensor(b, "ffn_norm", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_FFN_NORM, block, h, 0);
    add_tensor(b, "ffn_gate", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_FFN_GATE, block, h, f);
    add_tensor(b, "ffn_up", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_FFN_UP, block, h, f);
    add_tensor(b, "ffn_down", s, s->dtype, OFL_CLASS_DENSE, OFL_ROLE_FFN_DOWN, block, f, h);
}

/* output: how the output, or the tied embedding, is stored. */
static inline ofl_model *test_model_with(test_shape s, ofl_dtype output)
{
    ofl_model_shape shape = {
        .struct_size = sizeof shape, .block_count = s.layers, .hidden_size = s.hidden, .head_count = s.heads, .head_count_kv = s.kv_heads};
    shape.head_dim_k = shape.head_dim_v = shape.rope_dim = s.head_dim;
    shape.ffn_size = s.ffn;
    shape.vocab_size = s.vocab;
    shape.tied_output = s.tied;
    shape.trained_context_tokens = 32768;
    ofl_model_builder *b = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("test", "llama", &shape, &b));
    if (!s.tied) add_tensor(b, "token_embd", &s, s.dtype, OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, s.hidden, s.vocab);
    for (uint32_t i = 0; i < s.layers; i++) add_block(b, &s, (int32_t)i);
    add_tensor(b, "output_norm", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_OUTPUT_NORM, (int32_t)s.layers, s.hidden, 0);
    if (s.tied) add_tensor(b, "token_embd", &s, output, OFL_CLASS_DENSE, OFL_ROLE_EMBEDDING, (int32_t)s.layers, s.hidden, s.vocab);
    else add_tensor(b, "output", &s, output, OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, (int32_t)s.layers, s.hidden, s.vocab);
    assert_ok(ofl_model_builder_finish(b, &model));
    return model;
}

static inline ofl_model *test_model(test_shape s) { return test_model_with(s, s.dtype); }

static inline ofl_machine *test_machine(double vram, double link, double start, double bandwidth, double flops, double runtime)
{
    ofl_machine *m = NULL;
    assert_ok(ofl_machine_create("test", &m));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_VRAM, vram, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_LINK, link, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_COPY_START, start, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_DEVICE_BANDWIDTH, bandwidth, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_DEVICE_FLOPS, flops, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_RUNTIME, runtime, OFL_SOURCE_GIVEN));
    return m;
}

typedef struct planned {
    ofl_budget budget;
    ofl_forecast forecast;
    ofl_plan_settings settings;
} planned;

static inline planned read_plan(const ofl_plan *plan)
{
    planned p = {
        .budget.struct_size = sizeof p.budget, .forecast.struct_size = sizeof p.forecast, .settings.struct_size = sizeof p.settings};
    assert_ok(ofl_plan_budget_get(plan, &p.budget));
    assert_ok(ofl_plan_forecast_get(plan, &p.forecast));
    assert_ok(ofl_plan_settings_get(plan, &p.settings));
    return p;
}

/* Makes a plan and holds it to what every plan owes: sums, ring, its own check, the same after a round through JSON. */
static inline ofl_plan *plan_of(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w)
{
    ofl_plan *plan = NULL, *back = NULL;
    char *json = NULL, *again = NULL;
    assert_ok(ofl_plan_make(model, machine, w, &plan));
    ofl_budget b = read_plan(plan).budget;
    assert_true(b.total_bytes <= b.vram_bytes);
    assert_int_equal(b.total_bytes, b.resident_bytes + b.ring_bytes + b.kv_bytes + b.activation_bytes + b.runtime_bytes + b.headroom_bytes);
    assert_ok(ofl_plan_check(plan, model));
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_ok(ofl_plan_from_json(json, strlen(json), &back));
    assert_ok(ofl_plan_to_json(back, &again));
    assert_string_equal(json, again);
    assert_ok(ofl_plan_check(back, model));
    ofl_string_free(json);
    ofl_string_free(again);
    ofl_plan_destroy(back);
    return plan;
}

static inline planned plan_once(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w)
{
    ofl_plan *plan = plan_of(model, machine, w);
    planned p = read_plan(plan);
    ofl_plan_destroy(plan);
    return p;
}

#endif

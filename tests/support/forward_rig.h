/* A model on a simulated device with plan, engine and forward pass, for the tests of the example driver. Include after support.h. */
#ifndef OFLOAD_TEST_FORWARD_RIG_H
#define OFLOAD_TEST_FORWARD_RIG_H

#include <math.h>
#include <stdbool.h>

#include "batch/forward.h"
#include "common/app_error.h"

#define assert_app(call)                                                                                                                   \
    do {                                                                                                                                   \
        if ((call) != OFL_OK) fail_msg("%s: %s", #call, app_error());                                                                      \
    } while (0)

typedef struct rig_options {
    ofl_compute_type compute_type;
    ofl_kv_type kv_type;
    uint64_t vram; /* 0: 1 GB */
    uint32_t sequences, context, prefill_chunk, threads;
    ofl_cut cut;
    uint64_t part_bytes;
    double streamed; /* with vram 0: makes vram so small that at least this share of the dense weights is streamed */
    uint32_t force_layers, resident_layers;
    const char *device;       /* NULL: a simulated one of that memory, on the virtual clock */
    const forward_kind *kind; /* with device: what computes on it */
} rig_options;

typedef struct rig {
    ofl_model *model;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine;
    forward *f;
    ofl_model_shape shape;
    ofl_plan_settings settings;
    ofl_budget budget;
    rig_options options;
} rig;

static inline ofl_status rig_plan(rig *r, uint64_t vram)
{
    const rig_options *o = &r->options;
    ofl_workload w = {.struct_size = sizeof w,
                      .objective = OFL_THROUGHPUT,
                      .context_tokens = o->context,
                      .sequences = o->sequences,
                      .prefill_chunk_tokens = o->prefill_chunk,
                      .kv_type = o->kv_type,
                      .compute_type = o->compute_type,
                      .cut = o->cut,
                      .part_bytes = o->part_bytes,
                      .force_layers = o->force_layers,
                      .force_resident_layers = o->resident_layers,
                      .force_headroom = 1};
    if (o->kind != NULL) assert_app(o->kind->workload(r->model, &w));
    ofl_machine_destroy(r->machine);
    r->machine = NULL;
    assert_ok(ofl_machine_create("test", &r->machine));
    assert_ok(ofl_machine_set(r->machine, OFL_FIGURE_VRAM, (double)vram, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(r->machine, OFL_FIGURE_LINK, 1e10, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(r->machine, OFL_FIGURE_HOST, 8e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(r->machine, OFL_FIGURE_PINNABLE, 4e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(r->machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(r->machine));
    return ofl_plan_make(r->model, r->machine, &w, &r->plan);
}

static inline double rig_streamed_share(rig *r)
{
    r->budget.struct_size = sizeof r->budget;
    assert_ok(ofl_plan_budget_get(r->plan, &r->budget));
    return (double)r->budget.stream_bytes_per_step / (double)(r->budget.stream_bytes_per_step + r->budget.device_bytes);
}

/* Halves the distance to the least memory that works until enough is streamed. */
static inline void rig_plan_streamed(rig *r, uint64_t *vram)
{
    uint64_t low = 0, high = UINT64_C(1) << 30;
    for (int i = 0; i < 40; i++) {
        uint64_t middle = low + (high - low) / 2;
        ofl_plan_destroy(r->plan);
        r->plan = NULL;
        if (rig_plan(r, middle) != OFL_OK) {
            low = middle;
            continue;
        }
        *vram = middle;
        if (rig_streamed_share(r) >= r->options.streamed) return;
        high = middle;
    }
    fail_msg("no plan streams %g of the weights: %s", r->options.streamed, ofl_error_message());
}

/* The model passes to the rig. */
static inline void rig_open_model(rig *r, ofl_model *model, const rig_options *options)
{
    char spec[128];
    uint64_t vram = options->vram != 0 ? options->vram : UINT64_C(1) << 30;
    ofl_engine_options engine = {.struct_size = sizeof engine, .poison = options->device == NULL};
    *r = (rig){.model = model, .options = *options};
    if (options->streamed > 0)
        rig_plan_streamed(r, &vram);
    else
        assert_ok(rig_plan(r, vram));
    (void)snprintf(spec, sizeof spec, "sim:vram=%llu,h2d=10GB/s,clock=virtual", (unsigned long long)vram);
    assert_ok(ofl_device_open(options->device != NULL ? options->device : spec, &r->device));
    assert_ok(ofl_engine_open(r->plan, r->model, r->device, &engine, &r->engine));
    assert_app(forward_open(r->model, r->plan, r->engine, r->device, options->threads, &r->f));
    r->shape.struct_size = sizeof r->shape;
    r->settings.struct_size = sizeof r->settings;
    r->budget.struct_size = sizeof r->budget;
    assert_ok(ofl_model_shape_get(r->model, &r->shape));
    assert_ok(ofl_plan_settings_get(r->plan, &r->settings));
    assert_ok(ofl_plan_budget_get(r->plan, &r->budget));
}

static inline void rig_open(rig *r, const char *path, const rig_options *options)
{
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(path, &model));
    rig_open_model(r, model, options);
}

static inline void rig_close(rig *r)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(r->device, &memory));
    assert_true(memory.peak_bytes <= r->budget.total_bytes);
    forward_close(r->f);
    ofl_engine_close(r->engine);
    assert_ok(ofl_device_memory_get(r->device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    ofl_device_close(r->device);
    ofl_plan_destroy(r->plan);
    ofl_machine_destroy(r->machine);
    ofl_model_destroy(r->model);
}

#define RIG_ITEMS 64
#define RIG_BLOCKS 96
#define RIG_TOKENS 1024

/* A step being put together; slot s owns the blocks s, s + sequences, s + 2 × sequences, … */
typedef struct rig_step {
    rig *r;
    ofl_step_item items[RIG_ITEMS];
    uint32_t blocks[RIG_ITEMS][RIG_BLOCKS];
    int32_t tokens[RIG_TOKENS];
    ofl_step step;
} rig_step;

static inline void rig_begin(rig_step *s, rig *r)
{
    s->r = r;
    s->step = (ofl_step){.struct_size = sizeof s->step, .items = s->items};
    s->step.shape.struct_size = sizeof s->step.shape;
}

static inline void rig_add(rig_step *s, uint32_t slot, uint32_t first_position, const int32_t *tokens, uint32_t count, bool wants_logits)
{
    uint32_t i = s->step.item_count++,
             blocks = (s->r->options.context + s->r->settings.kv_block_tokens - 1) / s->r->settings.kv_block_tokens;
    assert_true(i < RIG_ITEMS && blocks <= RIG_BLOCKS && s->step.shape.tokens + count <= RIG_TOKENS && slot < s->r->settings.sequences);
    for (uint32_t b = 0; b < blocks; b++) s->blocks[i][b] = b * s->r->settings.sequences + slot;
    s->items[i] = (ofl_step_item){.slot = slot,
                                  .first_position = first_position,
                                  .token_count = count,
                                  .prefill = count > 1,
                                  .wants_logits = wants_logits,
                                  .block_count = blocks,
                                  .blocks = s->blocks[i]};
    memcpy(s->tokens + s->step.shape.tokens, tokens, count * sizeof *tokens);
    s->step.shape.tokens += count;
    s->step.shape.logits_rows += wants_logits;
}

/* Runs it; the logits are the forward pass's own until the next step. */
static inline const float *rig_run(rig_step *s)
{
    const float *logits = NULL;
    assert_app(forward_step(s->r->f, &s->step, s->tokens, 0, NULL));
    assert_app(forward_logits(s->r->f, &logits));
    return logits;
}

/* Logits of every position of one sequence in slot: shares of `chunk` tokens, each cut into single tokens where all are wanted. */
static inline void rig_all_logits(rig *r, uint32_t slot, const int32_t *ids, uint32_t count, uint32_t chunk, float *out)
{
    static rig_step s;
    for (uint32_t first = 0; first < count; first += chunk) {
        uint32_t now = count - first < chunk ? count - first : chunk;
        rig_begin(&s, r);
        for (uint32_t t = 0; t < now; t++) rig_add(&s, slot, first + t, ids + first + t, 1, true);
        memcpy(out + (uint64_t)first * r->shape.vocab_size, rig_run(&s), (uint64_t)now * r->shape.vocab_size * sizeof *out);
    }
}

/* Logits of the last position after shares of `chunk` tokens. */
static inline const float *rig_last_logits(rig *r, uint32_t slot, const int32_t *ids, uint32_t count, uint32_t chunk)
{
    static rig_step s;
    const float *logits = NULL;
    for (uint32_t first = 0; first < count; first += chunk) {
        uint32_t now = count - first < chunk ? count - first : chunk;
        rig_begin(&s, r);
        rig_add(&s, slot, first, ids + first, now, first + now == count);
        logits = rig_run(&s);
    }
    return logits;
}

static inline double rig_distance(const float *got, const float *wanted, uint64_t count)
{
    double above = 0, below = 0;
    for (uint64_t i = 0; i < count; i++) {
        above += ((double)got[i] - (double)wanted[i]) * ((double)got[i] - (double)wanted[i]);
        below += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(above / below);
}

#endif

/* A program outside the tree, in the C that is C++ too: its own weights, a plan, a loop that streams them, a queue of requests. Prints one
 * line and exits 0 when every weight came as it was. Compiled against headers in which the newest members are cut off it does the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ofload/ofload.h>

enum { LAYERS = 12, SIZE = 256 };

static uint32_t weights[LAYERS][SIZE][SIZE]; /* (layer, row, column) */

/* A struct as callers fill it. */
#define FILL(type, name)             \
    type name;                       \
    memset(&name, 0, sizeof name);   \
    name.struct_size = sizeof name

static void check(ofl_status status)
{
    if (status == OFL_OK) return;
    (void)fprintf(stderr, "client: %s: %s\n", ofl_status_name(status), ofl_error_message());
    exit(1);
}

static ofl_model *describe(void)
{
    ofl_model_builder *builder;
    ofl_model *model;
    FILL(ofl_model_shape, shape);
    FILL(ofl_kv_layer, kv);
    shape.block_count = LAYERS;
    shape.hidden_size = shape.ffn_size = shape.vocab_size = SIZE;
    shape.head_count = shape.head_count_kv = 4;
    shape.head_dim_k = shape.head_dim_v = 64;
    shape.trained_context_tokens = 64;
    kv.kind = OFL_KV_FULL;
    kv.head_count_kv = 4;
    kv.k_elements = kv.v_elements = SIZE;
    check(ofl_model_builder_create("chain", "llama", &shape, &builder));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        FILL(ofl_tensor_source, source);
        (void)snprintf(name, sizeof name, "layer %d", i);
        source.name = name;
        source.dtype = OFL_DTYPE_F32;
        source.tensor_class = OFL_CLASS_DENSE;
        source.role = OFL_ROLE_FFN_DOWN;
        source.block = i;
        source.n_dims = 2;
        source.dims[0] = source.dims[1] = SIZE;
        source.data = weights[i];
        check(ofl_model_builder_add_tensor(builder, &source));
        check(ofl_model_builder_set_kv_layer(builder, (uint32_t)i, &kv));
    }
    check(ofl_model_builder_finish(builder, &model));
    return model;
}

static ofl_machine *given_machine(void)
{
    ofl_machine *machine;
    check(ofl_machine_create("given", &machine));
    check(ofl_machine_set(machine, OFL_FIGURE_VRAM, 2.5e6, OFL_SOURCE_GIVEN));
    check(ofl_machine_set(machine, OFL_FIGURE_LINK, 1e9, OFL_SOURCE_GIVEN));
    check(ofl_machine_set(machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN));
    check(ofl_machine_assume(machine));
    return machine;
}

/* Acquires every unit and compares what came with the caller's own. */
static int step(ofl_engine *engine, uint32_t units)
{
    int same = 1;
    for (uint32_t unit = 0; unit < units; unit++) {
        FILL(ofl_view, view);
        check(ofl_engine_acquire(engine, unit, NULL, &view));
        for (uint32_t i = 0; i < view.slice_count; i++) {
            const ofl_view_slice *slice = &view.slices[i];
            same = same && memcmp(slice->data, weights[slice->tensor][slice->row_first], (size_t)slice->bytes) == 0;
        }
        check(ofl_engine_release(engine, unit, NULL));
    }
    return same;
}

int main(void)
{
    ofl_device *device;
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_front *front;
    uint64_t id;
    int steps = 0, same = 1;
    for (uint32_t i = 0; i < LAYERS * SIZE * SIZE; i++) (&weights[0][0][0])[i] = i * 2654435761u;
    ofl_model *model = describe();
    ofl_machine *machine = given_machine();
    FILL(ofl_workload, work);
    FILL(ofl_engine_options, options);
    FILL(ofl_front_options, admission);
    FILL(ofl_request, request);
    FILL(ofl_forecast, forecast);
    FILL(ofl_budget, budget);
    FILL(ofl_engine_stats, stats);
    work.context_tokens = 64;
    work.sequences = 1;
    work.prefill_chunk_tokens = 8;
    admission.admission = OFL_LONGEST_FIRST;
    request.prompt_tokens = 8;
    request.max_new_tokens = 4;
    check(ofl_device_open("sim:vram=3MB,h2d=1GB/s,clock=virtual", &device));
    check(ofl_plan_make(model, machine, &work, &plan));
    check(ofl_plan_forecast_get(plan, &forecast));
    check(ofl_plan_budget_get(plan, &budget));
    check(ofl_engine_open(plan, model, device, &options, &engine));
    check(ofl_front_create(plan, &admission, &front));
    check(ofl_front_submit(front, &request, &id));
    for (;; steps++) {
        const uint8_t finished = 0;
        FILL(ofl_step, next);
        ofl_status status = ofl_front_next_step(front, &next);
        if (status == OFL_END) break;
        check(status);
        same = same && step(engine, ofl_plan_unit_count(plan)) && next.item_count == 1;
        check(ofl_front_commit(front, &finished, forecast.step.step_seconds));
    }
    check(ofl_engine_stats_get(engine, &stats));
    printf("ofload %s: %d steps, %s, %s\n", ofl_version(), steps,
           stats.bytes_streamed > 0 && budget.ring_bytes > 0 ? "streamed" : "NOTHING STREAMED",
           same ? "every weight as it was" : "WRONG WEIGHTS");
    ofl_front_destroy(front);
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
    ofl_device_close(device);
    return same && steps == 4 && stats.bytes_streamed > 0 ? 0 : 1;
}

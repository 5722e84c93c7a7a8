#include "batch/cpu/calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/app_error.h"

enum { UNITS = 32, UNITS_LEAST = 4 /* two of each kind */, COLUMNS = 512, ROWS = 128, STEPS = 7 };
#define PAUSE_LEAST 50e-6 /* as if something were computed, so that copies are there when they are wanted */
#define PAUSE_MOST 5e-3
#define ALL_BYTES 1e9 /* more than all units need */

typedef struct calling {
    ofl_device *device;
    int32_t units;
    void *data; /* behind every matrix */
    ofl_model *model;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_engine *engine;
    double pause;
    double times[2][UNITS * STEPS]; /* of units that stay, of those that are streamed */
    size_t counts[2];
} calling;

static double now(const calling *c) { return (double)ofl_device_now_ns(c->device) * 1e-9; }

static ofl_status make_model(calling *c)
{
    const ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = (uint32_t)c->units, .hidden_size = COLUMNS, .head_count = 8,
                                   .head_count_kv = 1, .head_dim_k = 64, .head_dim_v = 64, .ffn_size = ROWS, .vocab_size = 16,
                                   .trained_context_tokens = 16};
    ofl_model_builder *builder = NULL;
    ofl_status status = ofl_model_builder_create("calls", "llama", &shape, &builder);
    for (int32_t i = 0; i < c->units && status == OFL_OK; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "block.%d", i);
        const ofl_tensor_source source = {
            .struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_BF16, .tensor_class = OFL_CLASS_DENSE, .role = OFL_ROLE_FFN_UP,
            .block = i, .n_dims = 2, .dims = {COLUMNS, ROWS}, .data = c->data};
        status = ofl_model_builder_add_tensor(builder, &source);
    }
    if (status == OFL_OK) return ofl_model_builder_finish(builder, &c->model);
    ofl_model_builder_destroy(builder);
    return status;
}

static ofl_status make_plan(calling *c, double vram)
{
    const ofl_workload work = {.struct_size = sizeof work, .context_tokens = 16, .sequences = 1, .prefill_chunk_tokens = 1,
                               .force_headroom = 1, .cut = OFL_CUT_OFF};
    ofl_plan_destroy(c->plan);
    c->plan = NULL;
    ofl_status status = ofl_machine_set(c->machine, OFL_FIGURE_VRAM, floor(vram), OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_plan_make(c->model, c->machine, &work, &c->plan) : status;
}

/* Half of the units stay. */
static ofl_status plan_half(calling *c)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_status status = ofl_machine_create("calls", &c->machine);
    if (status == OFL_OK) status = ofl_machine_set(c->machine, OFL_FIGURE_LINK, 1e9, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_set(c->machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_set(c->machine, OFL_FIGURE_VRAM, ALL_BYTES, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_assume(c->machine);
    if (status == OFL_OK) status = make_plan(c, ALL_BYTES);
    if (status == OFL_OK) status = ofl_plan_budget_get(c->plan, &budget);
    return status == OFL_OK ? make_plan(c, (double)budget.total_bytes - (double)budget.resident_bytes / 2) : status;
}

static void pass_time(const calling *c)
{
    double until = now(c) + c->pause;
    while (now(c) < until) {}
}

static ofl_status call_unit(calling *c, uint32_t index, double *waited_out)
{
    ofl_unit unit = {.struct_size = sizeof unit};
    ofl_view view = {.struct_size = sizeof view};
    ofl_status status = ofl_plan_unit_get(c->plan, index, &unit);
    double began = now(c);
    if (status == OFL_OK) status = ofl_engine_acquire(c->engine, index, NULL, &view);
    double acquired = now(c) - began;
    pass_time(c);
    began = now(c);
    if (status == OFL_OK) status = ofl_engine_release(c->engine, index, NULL);
    int streamed = unit.piece_bytes != 0;
    c->times[streamed][c->counts[streamed]++] = acquired + now(c) - began;
    *waited_out = fmax(*waited_out, acquired);
    return status;
}

/* The first step waits for its copies: twice the longest wait is pause enough for the others. */
static ofl_status call_steps(calling *c)
{
    double waited = 0;
    ofl_status status = OFL_OK;
    for (int step = 0; step < STEPS && status == OFL_OK; step++) {
        for (uint32_t i = 0; i < (uint32_t)c->units && status == OFL_OK; i++) status = call_unit(c, i, &waited);
        if (status == OFL_OK) status = ofl_engine_step_end(c->engine);
        if (step > 0) continue;
        c->pause = fmin(fmax(2 * waited, PAUSE_LEAST), PAUSE_MOST);
        c->counts[0] = c->counts[1] = 0;
    }
    return status;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(calling *c, int streamed)
{
    qsort(c->times[streamed], c->counts[streamed], sizeof c->times[0][0], ascending);
    return c->counts[streamed] > 0 ? c->times[streamed][c->counts[streamed] / 2] : 0;
}

static ofl_status run(calling *c)
{
    c->data = calloc(ROWS * COLUMNS, 2);
    if (c->data == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    ofl_status status = make_model(c);
    if (status == OFL_OK) status = plan_half(c);
    if (status == OFL_OK) status = ofl_engine_open(c->plan, c->model, c->device, NULL, &c->engine);
    if (status == OFL_OK) status = call_steps(c);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static void close_all(calling *c)
{
    ofl_engine_close(c->engine);
    ofl_plan_destroy(c->plan);
    ofl_machine_destroy(c->machine);
    ofl_model_destroy(c->model);
    free(c->data);
    *c = (calling){.device = c->device, .units = c->units};
}

/* With fewer units where the device has no memory for them all; where it has none for the fewest, the times stay 0: it is told elsewhere. */
static ofl_status run_where_it_fits(calling *c)
{
    ofl_status status = run(c);
    while (status == OFL_ERROR_DEVICE_MEMORY && c->units > UNITS_LEAST) {
        close_all(c);
        c->units /= 2;
        status = run(c);
    }
    if (status != OFL_ERROR_DEVICE_MEMORY) return status;
    c->counts[0] = c->counts[1] = 0;
    return OFL_OK;
}

ofl_status calls_measure(ofl_device *device, double *per_unit_out, double *per_piece_out)
{
    ofl_device_info info = {.struct_size = sizeof info};
    calling *c = calloc(1, sizeof *c);
    *per_unit_out = *per_piece_out = 0;
    if (c == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    c->device = device;
    c->units = UNITS;
    ofl_status status = ofl_device_info_get(device, &info);
    if (status != OFL_OK) status = app_forward(status);
    else if (!info.virtual_clock) status = run_where_it_fits(c);
    if (status == OFL_OK) {
        *per_unit_out = median(c, 0);
        *per_piece_out = fmax(0, median(c, 1) - *per_unit_out);
    }
    close_all(c);
    free(c);
    return status;
}

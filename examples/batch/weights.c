#include "batch/weights.h"

#include <stdlib.h>

#include "common/app_error.h"

#define NO_UNIT UINT32_MAX

typedef struct stop { /* a slice on the way */
    uint32_t slice, unit, tensor;
    uint64_t columns;
    ofl_dtype dtype;
    bool last_of_tensor, last_of_unit; /* last_of_unit: the next stop is in another one */
} stop;

struct weights {
    const ofl_model *model;
    const ofl_plan *plan;
    ofl_engine *engine;
    ofl_device *device;
    ofl_stream *stream;
    stop *stops;
    uint32_t stop_count, at;
    uint32_t held; /* unit, or NO_UNIT */
    ofl_view view;
    uint64_t waited_ns;
    void (*mark)(void *context, bool after); /* NULL: nobody watches */
    void *mark_context;
    const weights_held *memory; /* not NULL: instead of engine and plan */
};

static ofl_status count_stops(const ofl_plan *plan, const uint32_t *tensors, uint32_t count, uint32_t *out)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first, slices;
        ofl_status status = ofl_plan_tensor_slices(plan, tensors[i], &first, &slices);
        if (status != OFL_OK) return app_forward(status);
        total += slices;
    }
    if (total == 0 || total > UINT32_MAX / 2)
        return app_fail(OFL_ERROR_MISMATCH, "weights: the plan has no parts for this model; make it anew");
    *out = (uint32_t)total;
    return OFL_OK;
}

static ofl_status add_tensor(weights *w, uint32_t tensor)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_slice slice = {.struct_size = sizeof slice};
    uint32_t first = 0, count = 0;
    ofl_status status = ofl_model_tensor_get(w->model, tensor, &info);
    if (status == OFL_OK) status = ofl_plan_tensor_slices(w->plan, tensor, &first, &count);
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) {
        status = ofl_plan_slice_get(w->plan, first + i, &slice);
        w->stops[w->stop_count++] = (stop){.slice = first + i,
                                           .unit = slice.unit,
                                           .tensor = tensor,
                                           .columns = info.dims[0],
                                           .dtype = info.dtype,
                                           .last_of_tensor = i + 1 == count};
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

ofl_status weights_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, ofl_stream *stream,
                        const uint32_t *tensors, uint32_t count, weights **out)
{
    uint32_t stops = 0;
    ofl_status status = count_stops(plan, tensors, count, &stops);
    if (status != OFL_OK) return status;
    weights *w = calloc(1, sizeof *w);
    if (w != NULL) w->stops = calloc(stops, sizeof *w->stops);
    if (w == NULL || w->stops == NULL) {
        weights_close(w);
        return app_fail(OFL_ERROR_HOST_MEMORY, "weights: out of host memory; free some");
    }
    w->model = model;
    w->plan = plan;
    w->engine = engine;
    w->device = device;
    w->stream = stream;
    w->held = NO_UNIT;
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) status = add_tensor(w, tensors[i]);
    for (uint32_t i = 0; i < w->stop_count; i++)
        w->stops[i].last_of_unit = i + 1 == w->stop_count || w->stops[i].unit != w->stops[i + 1].unit;
    if (status == OFL_OK)
        *out = w;
    else
        weights_close(w);
    return status;
}

ofl_status weights_open_held(const ofl_model *model, const weights_held *held, uint32_t count, weights **out)
{
    weights *w = calloc(1, sizeof *w);
    if (w == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "weights: out of host memory; free some");
    w->model = model;
    w->memory = held;
    w->stop_count = count;
    w->held = NO_UNIT;
    *out = w;
    return OFL_OK;
}

void weights_seek(weights *w, uint32_t at) { w->at = at; }

void weights_close(weights *w)
{
    if (w == NULL) return;
    weights_abandon(w);
    free(w->stops);
    free(w);
}

void weights_rewind(weights *w)
{
    w->at = 0;
    w->waited_ns = 0;
}

void weights_watch(weights *w, void (*mark)(void *context, bool after), void *context)
{
    w->mark = mark;
    w->mark_context = context;
}

uint64_t weights_waited_ns(const weights *w) { return w->waited_ns; }

static ofl_status let_go(weights *w)
{
    uint32_t unit = w->held;
    if (unit == NO_UNIT) return OFL_OK;
    w->held = NO_UNIT;
    ofl_status status = ofl_engine_release(w->engine, unit, w->stream);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

void weights_abandon(weights *w) { (void)let_go(w); }

static void mark(const weights *w, uint32_t unit, bool after)
{
    ofl_unit planned = {.struct_size = sizeof planned};
    if (w->mark == NULL || ofl_plan_unit_get(w->plan, unit, &planned) != OFL_OK || planned.piece_bytes == 0) return;
    w->mark(w->mark_context, after);
}

static ofl_status hold(weights *w, uint32_t unit)
{
    if (w->held == unit) return OFL_OK;
    ofl_status status = let_go(w);
    if (status != OFL_OK) return status;
    uint64_t before = ofl_device_now_ns(w->device);
    w->view = (ofl_view){.struct_size = sizeof w->view};
    mark(w, unit, false);
    status = ofl_engine_acquire(w->engine, unit, w->stream, &w->view);
    mark(w, unit, true);
    w->waited_ns += ofl_device_now_ns(w->device) - before;
    if (status != OFL_OK) return app_forward(status);
    w->held = unit;
    return OFL_OK;
}

/* The slice among those of the held unit. */
static ofl_status find_slice(const weights *w, uint32_t slice, const ofl_view_slice **out)
{
    ofl_slice planned = {.struct_size = sizeof planned};
    ofl_status status = ofl_plan_slice_get(w->plan, slice, &planned);
    if (status != OFL_OK) return app_forward(status);
    for (uint32_t i = 0; i < w->view.slice_count; i++) {
        const ofl_view_slice *seen = &w->view.slices[i];
        if (seen->tensor == planned.tensor && seen->row_first == planned.row_first) {
            *out = seen;
            return OFL_OK;
        }
    }
    return app_fail(OFL_ERROR_INTERNAL, "weights: the engine's unit %u lacks a slice that the plan has", planned.unit);
}

static ofl_status next_in_memory(const weights *w, weight_part *out)
{
    const weights_held *held = &w->memory[w->at];
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(w->model, held->tensor, &info);
    if (status != OFL_OK) return app_forward(status);
    *out = (weight_part){.data = held->data,
                         .tensor = held->tensor,
                         .dtype = info.dtype,
                         .row_first = held->row_first,
                         .row_count = held->row_count,
                         .columns = info.dims[0],
                         .last = true};
    return OFL_OK;
}

ofl_status weights_next(weights *w, weight_part *out)
{
    if (w->at == w->stop_count) return app_fail(OFL_ERROR_STATE, "weights: the step has read all of them");
    if (w->memory != NULL) return next_in_memory(w, out);
    const stop *s = &w->stops[w->at];
    const ofl_view_slice *seen;
    ofl_status status = hold(w, s->unit);
    if (status == OFL_OK) status = find_slice(w, s->slice, &seen);
    if (status != OFL_OK) return status;
    *out = (weight_part){.data = seen->data,
                         .tensor = s->tensor,
                         .dtype = s->dtype,
                         .row_first = seen->row_first,
                         .row_count = seen->row_count,
                         .columns = s->columns,
                         .last = s->last_of_tensor};
    return OFL_OK;
}

ofl_status weights_done(weights *w)
{
    if (w->memory != NULL) {
        w->at++;
        return OFL_OK;
    }
    const stop *s = &w->stops[w->at++];
    return s->last_of_unit ? let_go(w) : OFL_OK;
}

static ofl_status vector_in_memory(const weights *w, uint32_t tensor, const void **out)
{
    for (uint32_t i = 0; i < w->stop_count; i++) {
        if (w->memory[i].tensor != tensor) continue;
        *out = w->memory[i].data;
        return OFL_OK;
    }
    return app_fail(OFL_ERROR_INTERNAL, "weights: tensor %u is not held", tensor);
}

static ofl_status vector_of_engine(weights *w, uint32_t tensor, const void **out, bool *stays_out)
{
    ofl_slice slice = {.struct_size = sizeof slice};
    const ofl_view_slice *seen;
    uint32_t first, count;
    ofl_status status = ofl_engine_resident(w->engine, tensor, out);
    *stays_out = status == OFL_OK;
    if (status != OFL_ERROR_NOT_FOUND) return status == OFL_OK ? OFL_OK : app_forward(status);
    status = ofl_plan_tensor_slices(w->plan, tensor, &first, &count);
    if (status == OFL_OK) status = ofl_plan_slice_get(w->plan, first, &slice);
    if (status != OFL_OK) return app_forward(status);
    status = hold(w, slice.unit);
    if (status == OFL_OK) status = find_slice(w, first, &seen);
    if (status == OFL_OK) *out = seen->data;
    return status;
}

ofl_status weights_vector(weights *w, uint32_t tensor, weight_vector *out)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    const void *data = NULL;
    bool stays = true;
    ofl_status status = ofl_model_tensor_get(w->model, tensor, &info);
    if (status != OFL_OK) return app_forward(status);
    status = w->memory != NULL ? vector_in_memory(w, tensor, &data) : vector_of_engine(w, tensor, &data, &stays);
    if (status == OFL_OK) *out = (weight_vector){data, info.dtype, info.elements, stays};
    return status;
}

/* The plan as its users see it. */
#include "plan/plan_state.h"

#include <string.h>

void ofl_plan_destroy(ofl_plan *plan)
{
    if (plan == NULL) return;
    ofl_plan_draft_clear(&plan->draft);
    ofl_plan_facts_clear(&plan->facts);
    for (uint32_t i = 0; i < plan->advice_count; i++) ofl_free(plan->advice[i]);
    ofl_free(plan->above_bound_why);
    ofl_free(plan->unit_names);
    ofl_free(plan);
}

static ofl_status make(ofl_plan *plan, const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload)
{
    ofl_plan_settings settings;
    ofl_plan_search search;
    ofl_plan_draft scratch = {0};
    ofl_status status = ofl_plan_facts_read(&plan->facts, model, machine);
    if (status == OFL_OK) status = ofl_plan_job_read(&plan->facts, &plan->wish, &settings, model, workload);
    if (status == OFL_OK) status = ofl_plan_search_open(&plan->facts, &plan->wish, &settings, &scratch, &search);
    if (status == OFL_OK) status = ofl_plan_solve(&search, &plan->draft);
    if (status == OFL_OK) status = ofl_plan_finish(plan);
    if (status == OFL_OK) status = ofl_plan_forecast_make(&search, plan);
    if (status == OFL_OK) status = ofl_plan_advise(&search, plan);
    ofl_plan_draft_clear(&scratch);
    return status;
}

ofl_status ofl_plan_make(const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload, ofl_plan **out)
{
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no place for the result");
    *out = NULL;
    if (model == NULL || machine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no model or no machine given");
    ofl_plan *plan = ofl_alloc(1, sizeof *plan);
    if (plan == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
    ofl_status status = make(plan, model, machine, workload);
    if (status == OFL_OK) *out = plan;
    else ofl_plan_destroy(plan);
    return status;
}

const char *ofl_plan_model_identity(const ofl_plan *plan) { return plan != NULL ? plan->facts.model_identity : ""; }
const char *ofl_plan_machine_identity(const ofl_plan *plan) { return plan != NULL ? plan->facts.machine_identity : ""; }

static ofl_status no_plan(void) { return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no plan given"); }

ofl_status ofl_plan_budget_get(const ofl_plan *plan, ofl_budget *out)
{
    return plan == NULL ? no_plan() : ofl_struct_out(out, &plan->draft.budget, sizeof plan->draft.budget, "ofl_budget");
}

ofl_status ofl_plan_settings_get(const ofl_plan *plan, ofl_plan_settings *out)
{
    return plan == NULL ? no_plan() : ofl_struct_out(out, &plan->draft.settings, sizeof plan->draft.settings, "ofl_plan_settings");
}

ofl_status ofl_plan_forecast_get(const ofl_plan *plan, ofl_forecast *out)
{
    return plan == NULL ? no_plan() : ofl_struct_out(out, &plan->forecast, sizeof plan->forecast, "ofl_forecast");
}

ofl_status ofl_plan_decode_step(const ofl_plan *plan, uint32_t sequences, ofl_step_shape *out)
{
    if (plan == NULL) return no_plan();
    if (sequences == 0) return ofl_fail(OFL_ERROR_ARGUMENT, "decode step: no sequence; ask for at least one");
    ofl_step_shape shape = ofl_plan_decode_shape(&plan->draft.settings, sequences);
    return ofl_struct_out(out, &shape, sizeof shape, "ofl_step_shape");
}

const char *ofl_plan_above_bound_why(const ofl_plan *plan)
{
    return plan != NULL && plan->above_bound_why != NULL ? plan->above_bound_why : "";
}

uint32_t ofl_plan_forecast_row_count(const ofl_plan *plan) { return plan != NULL ? plan->row_count : 0; }

ofl_status ofl_plan_forecast_row_get(const ofl_plan *plan, uint32_t row, ofl_forecast_row *out)
{
    if (row >= ofl_plan_forecast_row_count(plan))
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: row %u: there are %u", row, ofl_plan_forecast_row_count(plan));
    return ofl_struct_out(out, &plan->rows[row], sizeof *out, "ofl_forecast_row");
}

uint32_t ofl_plan_unit_count(const ofl_plan *plan) { return plan != NULL ? (uint32_t)plan->draft.cut.unit_count : 0; }
uint32_t ofl_plan_slice_count(const ofl_plan *plan) { return plan != NULL ? (uint32_t)plan->draft.cut.slice_count : 0; }

ofl_status ofl_plan_unit_get(const ofl_plan *plan, uint32_t unit, ofl_unit *out)
{
    if (unit >= ofl_plan_unit_count(plan))
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: unit %u: there are %u", unit, ofl_plan_unit_count(plan));
    return ofl_struct_out(out, &plan->draft.cut.units[unit], sizeof *out, "ofl_unit");
}

ofl_status ofl_plan_slice_get(const ofl_plan *plan, uint32_t slice, ofl_slice *out)
{
    if (slice >= ofl_plan_slice_count(plan))
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: slice %u: there are %u", slice, ofl_plan_slice_count(plan));
    return ofl_struct_out(out, &plan->draft.cut.slices[slice], sizeof *out, "ofl_slice");
}

ofl_status ofl_plan_tensor_slices(const ofl_plan *plan, uint32_t tensor, uint32_t *first_out, uint32_t *count_out)
{
    if (plan == NULL || first_out == NULL || count_out == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no plan or no place for the result");
    if (tensor >= plan->facts.tensor_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: tensor %u: there are %u", tensor, (unsigned)plan->facts.tensor_count);
    *first_out = plan->facts.tensors[tensor].slice_first;
    *count_out = plan->facts.tensors[tensor].slice_count;
    return OFL_OK;
}

uint32_t ofl_plan_advice_count(const ofl_plan *plan) { return plan != NULL ? plan->advice_count : 0; }
const char *ofl_plan_advice(const ofl_plan *plan, uint32_t index) { return index < ofl_plan_advice_count(plan) ? plan->advice[index] : ""; }

ofl_status ofl_plan_estimate_step(const ofl_plan *plan, const ofl_step_shape *step, ofl_step_estimate *out)
{
    ofl_step_shape shape;
    ofl_step_estimate estimate;
    if (plan == NULL) return no_plan();
    ofl_status status = ofl_struct_in(&shape, sizeof shape, step, "ofl_step_shape");
    if (status == OFL_OK) status = ofl_plan_draft_estimate(&plan->facts, &plan->draft, &shape, &estimate);
    return status == OFL_OK ? ofl_struct_out(out, &estimate, sizeof estimate, "ofl_step_estimate") : status;
}

/* The parts of a plan's check, each written apart from what made what it looks at. */
#ifndef OFLOAD_LIB_PLAN_CHECK_H
#define OFLOAD_LIB_PLAN_CHECK_H

#include "plan/plan_state.h"

typedef struct ofl_checking {
    const ofl_plan *plan;
    const ofl_model *model; /* NULL: the plan is held against itself alone */
    ofl_status status;      /* what a contradiction is reported as */
} ofl_checking;

ofl_status ofl_check_wrong(const ofl_checking *c, const char *what);

/* check.c: the plan against itself */
uint64_t ofl_check_chunk(const ofl_plan_draft *draft, ofl_tier tier); /* most bytes of one copy from there */
uint64_t ofl_check_copies(const ofl_plan *plan, const ofl_unit *unit, uint64_t pinned_chunk, uint64_t bounced_chunk);
ofl_status ofl_check_pieces(const ofl_checking *c);
ofl_status ofl_check_weights(const ofl_checking *c);
ofl_status ofl_check_budget(const ofl_checking *c);
ofl_status ofl_check_kv_region(const ofl_checking *c);
ofl_status ofl_check_activations(const ofl_checking *c);
ofl_status ofl_check_host(const ofl_checking *c);

/* check_model.c: against the model */
ofl_status ofl_check_identity(const ofl_checking *c);
ofl_status ofl_check_shape(const ofl_checking *c);
ofl_status ofl_check_tensors(const ofl_checking *c);
ofl_status ofl_check_kv(const ofl_checking *c);
ofl_status ofl_check_workspace(const ofl_checking *c);

/* check_forecast.c: the times, and a step played through anew */
ofl_status ofl_check_compute(const ofl_checking *c);
ofl_status ofl_check_link(const ofl_checking *c);
ofl_status ofl_check_step(const ofl_checking *c);
ofl_status ofl_check_forecast(const ofl_checking *c);
/* A decode step as the plan's units, pieces and rates say, by a simulation of its own. OFL_ERROR_HOST_MEMORY. */
ofl_status ofl_check_replay(const ofl_plan *plan, double *step_seconds_out);

#endif

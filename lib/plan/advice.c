/* Short sentences about what would help. */
#include "plan/plan_state.h"

ofl_status ofl_plan_advise(ofl_plan *plan)
{
    (void)plan;
    return OFL_OK;
}
ofl_status ofl_plan_identify(ofl_plan *plan) { (void)plan; return OFL_OK; }

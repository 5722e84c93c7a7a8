/* What the page and the sweep show, as one SVG. */
#ifndef OFLOAD_PLAN_PICTURE_H
#define OFLOAD_PLAN_PICTURE_H

#include "plan/curve.h"
#include "plan/page.h"
#include "plan/page_facts.h"

/* Buckets as bars, layers as a strip, tokens/s against sequences; owned. */
ofl_status picture_plan(const page *p, char **text_out);
/* A curve alone, under the model and the machine; `varied` as for head_figures, `words` below it or NULL; owned. */
ofl_status picture_sweep(const ofl_model *model, const ofl_machine *machine, const facts *f, ofl_figure varied, const curve *c,
                         const char *words, char **text_out);

#endif

/* The lines that head every view: which model, which machine. Each returns an owned line without its end, or NULL: out of memory. */
#ifndef OFLOAD_PLAN_HEAD_H
#define OFLOAD_PLAN_HEAD_H

#include "plan/page_facts.h"

/* All but its name: "llama, 32 layers, …". */
char *head_model(const ofl_model *model, const facts *f);
/* Its name. */
char *head_machine(const ofl_machine *machine);
/* Its figures, each with where it comes from; `varied` is not named: a sweep gives it row by row. OFL_FIGURE_COUNT: none is. */
char *head_figures(const ofl_machine *machine, ofl_figure varied);
/* All of it, printed. */
ofl_status head_print(const ofl_model *model, const ofl_machine *machine, const facts *f, ofl_figure varied);

#endif

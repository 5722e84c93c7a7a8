/* What the page shows, collected from model and plan. */
#ifndef OFLOAD_PLAN_PAGE_FACTS_H
#define OFLOAD_PLAN_PAGE_FACTS_H

#include <stdbool.h>

#include <ofload/ofload.h>

#include "plan/curve.h"

typedef struct facts {
    ofl_budget budget;
    ofl_plan_settings settings;
    ofl_forecast forecast;
    uint32_t blocks, experts, experts_used;
    uint64_t weight_bytes, trained_context;
    uint64_t expert_bytes, expert_bytes_read; /* stored; expected to be read by a step of the planned sequences */
    double parameters;
    const char *main_type; /* that most bytes have */
    bool one_type;         /* of all matrices */
    double *layer_share;   /* owned, per block: resident bytes ÷ placed bytes */
    double head_share;     /* of the output head; −1: there is none of its own to place */
    uint64_t lookup_host_bytes;
    uint64_t streamed[4];  /* by tier */
    curve_point *by_sequences; /* owned: tokens/s, each number of sequences planned anew */
    uint32_t by_sequences_count;
} facts;

/* Free with facts_free. */
ofl_status facts_collect(const ofl_model *model, const ofl_plan *plan, facts *out);
/* Of the model alone: name, layers, parameters, types, bytes; all else zero. */
ofl_status facts_collect_model(const ofl_model *model, facts *out);
/* Tokens/s against sequences, with the knee; borrowed from the facts. */
curve facts_curve(const facts *f);
void facts_free(facts *f);

#endif

/* Sizes and figures of a forward pass that follow from the model's shape, whatever computes. */
#ifndef OFLOAD_BATCH_FORWARD_SIZES_H
#define OFLOAD_BATCH_FORWARD_SIZES_H

#include <ofload/plan.h>

/* Elements of the widest row that a product reads. */
uint64_t forward_widest(const ofl_model_shape *shape);
/* What scores are multiplied with: the model's own figure, or 1 / √(elements of a head). */
float forward_attention_scale(const ofl_model_shape *shape);
/* The budget's activations and logits for that many tokens a step and rows of logits; its workspace stays. */
ofl_status forward_budget_less(const ofl_model_shape *shape, ofl_compute_type type, uint32_t tokens, uint32_t rows, ofl_budget *budget);

#endif

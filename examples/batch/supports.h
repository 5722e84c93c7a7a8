/* Which models the forward pass can run, and where their tensors are. */
#ifndef OFLOAD_BATCH_SUPPORTS_H
#define OFLOAD_BATCH_SUPPORTS_H

#include <ofload/model.h>

#define NO_TENSOR UINT32_MAX

/* The tensor with this role in this block, or NO_TENSOR. */
uint32_t tensor_of(const ofl_model *model, uint32_t block, ofl_tensor_role role);
/* The matrix whose rows are the tokens: the embedding, or the tied head. */
uint32_t tensor_of_tokens(const ofl_model *model, const ofl_model_shape *shape);

/* A block's matrices in the order in which they are read. */
extern const ofl_tensor_role block_matrices[7];
/* The matrices of a step in the order in which they are read, the head last. *out: the caller's, to free. */
ofl_status tensors_in_order(const ofl_model *model, const ofl_model_shape *shape, uint32_t **out, uint32_t *count_out);
/* Rows and columns that a matrix with this role has. */
void matrix_size(const ofl_model_shape *shape, ofl_tensor_role role, uint64_t *rows_out, uint64_t *columns_out);

#endif

/* Rotary embedding: which frequencies, and turning a token's heads. */
#ifndef OFLOAD_BATCH_ROPE_H
#define OFLOAD_BATCH_ROPE_H

#include <ofload/model.h>

#define ROPE_MAX_DIM 512u

typedef struct rope {
    uint32_t dim;
    ofl_rope_pairing pairing;
    double magnitude; /* yarn's, of cosine and sine */
    double frequencies[ROPE_MAX_DIM / 2];
} rope;

/* factors: what a rope factors tensor divides the frequencies by (dim / 2 of them), or NULL. OFL_ERROR_UNSUPPORTED names what it does not
 * know. */
ofl_status rope_init(rope *r, const ofl_model_shape *shape, const float *factors);
/* With the factors that a model may bring as a tensor (GGUF). */
ofl_status rope_open(rope *r, const ofl_model *model, const ofl_model_shape *shape);
/* dim / 2 cosines, then dim / 2 sines. */
void rope_table(const rope *r, uint32_t position, float *table);
/* Turns the first dim elements of `heads` heads, head_dim apart. */
void rope_turn(const rope *r, const float *table, float *row, uint32_t heads, uint32_t head_dim);

#endif

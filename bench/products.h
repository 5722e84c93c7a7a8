/* Real products of bf16 weights with a step's tokens, on the calling thread: what ofload-batch computes with. */
#ifndef OFLOAD_BENCH_PRODUCTS_H
#define OFLOAD_BENCH_PRODUCTS_H

#include <ofload/ofload.h>

typedef struct products products;
typedef struct matrix_size { uint64_t rows, columns; } matrix_size;

ofl_status products_open(uint32_t tokens, uint64_t most_rows, uint64_t most_columns, products **out);
void products_close(products *p);
ofl_status products_run(products *p, const void *weights, matrix_size size);
/* All matrices of the view; vectors are left out. */
ofl_status products_view(products *p, const ofl_model *model, const ofl_view *view);
/* Seconds for a weight element, on a layer of these matrices after the other, that no cache holds, while the device's link (bytes per second)
 * carries copies as it does in a step. The median of a few layers. */
ofl_status products_measure(products *p, ofl_device *device, double link, const matrix_size *layer, size_t count, double *seconds_per_element);

#endif

/* Models described in JSON: everything but the weights. */
#ifndef OFLOAD_LIB_DESCRIPTION_H
#define OFLOAD_LIB_DESCRIPTION_H

#include "base/json_pull.h"
#include "model/model.h"

/* The "shape" object: fields by their names in ofl_model_shape. */
ofl_status ofl_description_read_shape(ofl_json_pull *pull, ofl_model_shape *shape);
ofl_status ofl_description_open(const char *path, ofl_model **out);

#endif

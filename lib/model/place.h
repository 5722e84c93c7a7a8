/* Where a tensor belongs, by its name: looked up in tables, one per naming scheme. */
#ifndef OFLOAD_LIB_PLACE_H
#define OFLOAD_LIB_PLACE_H

#include "model/model.h"

typedef struct ofl_place_rule {
    const char *stem; /* the whole name after the block's prefix; at its end '*' stands for anything */
    ofl_tensor_role role;
    ofl_tensor_class tensor_class;
} ofl_place_rule;

/* The first rule that matches, or NULL. */
const ofl_place_rule *ofl_place_find(const ofl_place_rule *rules, size_t count, const char *stem);
/* Reads a decimal block number of at most 6 digits and a dot after it: the rest of the name, or NULL. */
const char *ofl_place_number(const char *text, uint32_t *number_out);

#endif

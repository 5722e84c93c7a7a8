/* Tells models with the same headers apart, as fine-tunes of one model have: by a sample of their weights. */
#ifndef OFLOAD_BATCH_CONTENTS_H
#define OFLOAD_BATCH_CONTENTS_H

#include <ofload/ofload.h>

#include "common/app_error.h"
#include "common/hash.h"

/* 32 hex digits over ofl_model_identity and 4 KiB from the middle of up to 8 tensors of each role, those of the first and the last block
 * among them: a fine-tune changes all tensors of some roles. Neither path nor time of the file counts. Reads less than 1 MiB; OFL_ERROR_IO. */
ofl_status contents_hash(const ofl_model *model, char hex_out[HASH128_HEX_BYTES]);

#endif

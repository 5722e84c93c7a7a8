/* Hugging Face folders: safetensors files, their index, config.json. */
#ifndef OFLOAD_LIB_HF_H
#define OFLOAD_LIB_HF_H

#include <cjson/cJSON.h>

#include "base/json_pull.h"
#include "model/model.h"

/* Reads one file's header: its tensors join the model, still without role. */
ofl_status ofl_safetensors_read(ofl_model *model, const char *path);

/* Finds the folder's safetensors files (by the index where there is one) and reads them. Tensors that the index does not name are dropped
 * with a note. */
ofl_status ofl_hf_read_files(ofl_model *model, const char *folder);

/* config.json, and in it the object that describes the text model. */
typedef struct ofl_hf_config {
    cJSON *tree;
    const cJSON *text; /* the text model's object; may be the whole */
    const char *path;
    const char *model_type; /* "" when not given */
} ofl_hf_config;

ofl_status ofl_hf_config_read(ofl_model *model, const char *path, ofl_hf_config *out);
void ofl_hf_config_end(ofl_hf_config *config);
/* The first of these keys ("a|b|c") that is given and not null: in the text model's object, then in the whole. NULL: none. */
const cJSON *ofl_hf_find(const ofl_hf_config *config, const char *keys);
/* Each leaves *out as it is when nothing is given. OFL_ERROR_FORMAT for what is no whole number below 2^32 (or no finite number, or no
 * boolean). */
ofl_status ofl_hf_get_u32(const ofl_hf_config *config, const char *keys, uint32_t *out);
ofl_status ofl_hf_get_double(const ofl_hf_config *config, const char *keys, double *out);
ofl_status ofl_hf_get_bool(const ofl_hf_config *config, const char *keys, bool *out);
const char *ofl_hf_get_text(const ofl_hf_config *config, const char *keys); /* "" when it is no string */
bool ofl_hf_number(const cJSON *item, uint32_t *out);
bool ofl_hf_is(const ofl_hf_config *config, const char *prefix); /* model_type begins so */

ofl_status ofl_hf_read_shape(ofl_model *model, const ofl_hf_config *config);
ofl_status ofl_hf_read_kv(ofl_model *model, const ofl_hf_config *config);
ofl_status ofl_hf_place_tensors(ofl_model *model, const ofl_hf_config *config);
/* What the elements of packed tensors stand for. */
ofl_status ofl_hf_count_parameters(ofl_model *model, const ofl_hf_config *config);
ofl_status ofl_hf_open(const char *folder, ofl_model **out);

#endif

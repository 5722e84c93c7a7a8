/* GGUF: container, metadata, and what they say about the model. */
#ifndef OFLOAD_LIB_GGUF_H
#define OFLOAD_LIB_GGUF_H

#include "base/file.h"
#include "model/model.h"

typedef enum ofl_gguf_type {
    OFL_GGUF_U8,
    OFL_GGUF_I8,
    OFL_GGUF_U16,
    OFL_GGUF_I16,
    OFL_GGUF_U32,
    OFL_GGUF_I32,
    OFL_GGUF_F32,
    OFL_GGUF_BOOL,
    OFL_GGUF_STRING,
    OFL_GGUF_ARRAY,
    OFL_GGUF_U64,
    OFL_GGUF_I64,
    OFL_GGUF_F64,
    OFL_GGUF_TYPE_COUNT
} ofl_gguf_type;

typedef union ofl_gguf_value {
    uint64_t u;
    int64_t i;
    double f;
    const char *text; /* NULL when too long to be kept */
} ofl_gguf_value;

typedef struct ofl_gguf_entry {
    const char *key;
    uint64_t offset; /* of an array's first element */
    uint64_t count;  /* array elements, bytes of a string */
    ofl_gguf_value value;
    uint8_t type, element_type;
} ofl_gguf_entry;

/* The keys of one file, sorted. Arrays stay in the file. */
struct ofl_gguf_metadata {
    ofl_model_file file;
    ofl_gguf_entry *entries;
    uint64_t count, capacity;
    uint64_t kept_text_bytes;
};

ofl_status ofl_gguf_metadata_read(ofl_model *model, ofl_reader *reader, uint64_t count, ofl_gguf_metadata *metadata);
const ofl_gguf_entry *ofl_gguf_find(const ofl_gguf_metadata *metadata, const char *key);

/* Each leaves *out as it is when the key is absent. OFL_ERROR_FORMAT for another type or a value out of range. */
ofl_status ofl_gguf_get_u32(const ofl_gguf_metadata *metadata, const char *key, uint32_t *out);
ofl_status ofl_gguf_get_u64(const ofl_gguf_metadata *metadata, const char *key, uint64_t *out);
ofl_status ofl_gguf_get_double(const ofl_gguf_metadata *metadata, const char *key, double *out);
ofl_status ofl_gguf_get_text(const ofl_gguf_metadata *metadata, const char *key, const char **out);
/* A scalar for all layers, or an array of exactly `layers` whole numbers or booleans. *given_out: 0 absent, 1 scalar, 2 array. */
ofl_status ofl_gguf_get_layers(const ofl_gguf_metadata *metadata, const char *key, uint32_t layers, uint32_t *values, int *given_out);

/* Reads one file's header: its tensors join the model, still without role; its keys go to *metadata_out (destroy it, or hand it to the
 * model). */
ofl_status ofl_gguf_read_file(ofl_model *model, const char *path, ofl_gguf_metadata **metadata_out);
/* Shape and KV layers from the keys; architecture and tensor names must be known. */
ofl_status ofl_gguf_read_shape(ofl_model *model, const ofl_gguf_metadata *metadata);
/* KV layers; kv_heads: one per block. */
ofl_status ofl_gguf_read_kv(ofl_model *model, const ofl_gguf_metadata *metadata, const uint32_t *kv_heads);
/* Role, class and block of every tensor from its name. */
ofl_status ofl_gguf_place_tensors(ofl_model *model);
ofl_status ofl_gguf_open(const char *path, ofl_model **out);

#endif

/* The model as its readers build it: notes, files, tensors and layers are added, then it is completed once and never changes again. */
#ifndef OFLOAD_LIB_MODEL_H
#define OFLOAD_LIB_MODEL_H

#include <ofload/model.h>

#include "base/base.h"
#include "base/sha256.h"

/* More than any published model has; what lies beyond is refused before memory is taken for it. */
#define OFL_MODEL_MAX_BLOCKS 65536u
#define OFL_MODEL_MAX_TENSORS (1u << 18)
#define OFL_MODEL_MAX_TEXT_BYTES (UINT64_C(24) << 20) /* names, dims and kept texts: what keeps a plan below 64 MiB whatever the header */
#define OFL_NO_FILE UINT32_MAX

/* Why no step reads a tensor. X(name, text). */
#define OFL_UNUSED_LIST(X)                                                                                  \
    X(STATED, "described as unused") X(IMAGES, "part for images and other media") X(VISION, "vision part") \
    X(AUDIO, "audio part") X(PREDICTION, "prediction block") X(BUFFER, "buffer that is computed anew")

typedef enum ofl_unused {
#define OFL_UNUSED_ENUM(name, text) OFL_UNUSED_##name,
    OFL_UNUSED_LIST(OFL_UNUSED_ENUM)
#undef OFL_UNUSED_ENUM
} ofl_unused;

/* Packed: a mixture of experts has more than 100,000 of these. */
typedef struct ofl_tensor {
    const char *name;
    const uint64_t *dims;
    uint64_t bytes;
    union {
        uint64_t offset;  /* in the file */
        const void *data; /* when file is OFL_NO_FILE; NULL: not at hand */
    } at;
    uint32_t file;
    uint32_t sequence; /* as added */
    int32_t block;
    uint8_t dtype, tensor_class, role, n_dims;
    uint8_t unused; /* ofl_unused; counts only in that class */
    bool also_lookup, dropped;
} ofl_tensor;

typedef struct ofl_model_file {
    const char *path;
    uint64_t bytes, device, inode;
    int64_t changed_seconds, changed_nanoseconds;
} ofl_model_file;

typedef struct ofl_text_chunk ofl_text_chunk;
typedef struct ofl_gguf_metadata ofl_gguf_metadata;

struct ofl_model {
    ofl_model_format format;
    const char *path, *name, *architecture;
    char identity[OFL_SHA256_HEX];
    ofl_model_shape shape;
    uint32_t prediction_blocks; /* stored after the blocks that run, not used */
    ofl_tensor *tensors;
    uint64_t tensor_count, tensor_capacity;
    ofl_kv_layer *kv; /* shape.block_count of them */
    ofl_model_file *files;
    uint64_t file_count, file_capacity;
    const char **notes;
    uint64_t note_count, note_capacity;
    bool names_checked;            /* no two tensors share one */
    uint32_t tied_tensor;          /* index of the matrix that is embedding and head, or UINT32_MAX */
    ofl_gguf_metadata *metadata;   /* NULL unless GGUF */
    ofl_text_chunk *texts;         /* all strings and dims */
    uint64_t text_bytes;           /* of them all; at most OFL_MODEL_MAX_TEXT_BYTES */
    bool text_full;                /* more were asked for */
};

/* A tensor to be added; dims are copied, and so is the name unless kept_name (the model's own text already) is given. */
typedef struct ofl_tensor_draft {
    const char *name;
    uint64_t name_bytes;
    const char *kept_name;
    ofl_dtype dtype;
    ofl_tensor_class tensor_class;
    ofl_tensor_role role;
    int32_t block;
    bool also_lookup;
    uint32_t n_dims;
    uint64_t dims[OFL_MAX_DIMS];
    uint32_t file;
    uint64_t offset;
    const void *data;
} ofl_tensor_draft;

/* texts.c. Memory of the model, freed with it; NULL when there is none or the limit is met (no sentence set: ofl_model_out_of_memory says
 * which). */
void *ofl_model_take(ofl_model *model, uint64_t bytes);
const char *ofl_model_text(ofl_model *model, const char *text, uint64_t bytes);
void ofl_model_drop_texts(ofl_model *model);
ofl_status ofl_model_out_of_memory(const ofl_model *model);

ofl_status ofl_model_new(ofl_model_format format, const char *path, ofl_model **out);
ofl_status ofl_model_set_texts(ofl_model *model, const char *name, const char *architecture);
ofl_status ofl_model_add_note(ofl_model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Looks the file up: it must be a regular one. */
ofl_status ofl_model_add_file(ofl_model *model, const char *path, uint32_t *index_out);
/* The open file is still the one that was looked up: OFL_ERROR_IO otherwise. */
ofl_status ofl_model_file_check(const ofl_model_file *file, int descriptor);
ofl_status ofl_model_add_tensor(ofl_model *model, const ofl_tensor_draft *draft);
/* Bytes of a tensor of this type and shape; OFL_ERROR_FORMAT or _OVERFLOW with `name` in the sentence. */
ofl_status ofl_tensor_bytes(const char *name, ofl_dtype dtype, uint32_t n_dims, const uint64_t *dims, uint64_t *bytes_out);

uint64_t ofl_tensor_elements(const ofl_tensor *tensor);
/* No parameter: rope factors, or what lies unused within a block that runs (masks, frequencies that a writer left in). */
bool ofl_tensor_is_buffer(const ofl_model *model, const ofl_tensor *tensor);

/* shape.block_count layers of one kind to begin with: OFL_KV_FULL of the shape's heads. */
ofl_status ofl_model_make_kv(ofl_model *model);
/* A layer as given from outside: known kind, a window where one is needed. OFL_ERROR_ARGUMENT. */
ofl_status ofl_kv_layer_check(const ofl_kv_layer *layer, uint32_t index);
/* The tie is what the tensors say: without an output matrix the embedding is dense, executed as the head, and looked up too. */
ofl_status ofl_model_resolve_tie(ofl_model *model);
/* Refuses two tensors of one name. `by_name_out` (may be NULL) gets the tensors' indices in order of names, for ofl_free. */
ofl_status ofl_model_check_names(ofl_model *model, uint32_t **by_name_out);
/* Sorts, counts, identifies. Checks that blocks are within the shape. */
ofl_status ofl_model_complete(ofl_model *model);

bool ofl_dtype_known(uint64_t dtype);
bool ofl_dtype_from_name(const char *name, ofl_dtype *out);

void ofl_gguf_metadata_destroy(ofl_gguf_metadata *metadata);

#endif

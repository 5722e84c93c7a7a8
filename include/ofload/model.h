/* A model: names, classes, sizes and KV geometry of its tensors, and where their bytes are. Knows no hardware.
 *
 * Threads: a model is read-only once opened (or built); any number of threads may use it at once.
 * Ownership: strings and infos handed out are borrowed from the model and live as long as it does.
 * Errors: every function returning ofl_status sets the thread's diagnostic; outputs as ofload.h says. */
#ifndef OFLOAD_MODEL_H
#define OFLOAD_MODEL_H

#include <stddef.h>
#include <ofload/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text, elements per block, bits per block). GGUF types first in their own numbering, then those only found in safetensors. */
#define OFL_DTYPE_LIST(X)                                                                                            \
    X(F32, 0, "F32", 1, 32) X(F16, 1, "F16", 1, 16) X(Q4_0, 2, "Q4_0", 32, 144) X(Q4_1, 3, "Q4_1", 32, 160)          \
    X(Q5_0, 6, "Q5_0", 32, 176) X(Q5_1, 7, "Q5_1", 32, 192) X(Q8_0, 8, "Q8_0", 32, 272) X(Q8_1, 9, "Q8_1", 32, 288)  \
    X(Q2_K, 10, "Q2_K", 256, 672) X(Q3_K, 11, "Q3_K", 256, 880) X(Q4_K, 12, "Q4_K", 256, 1152)                       \
    X(Q5_K, 13, "Q5_K", 256, 1408) X(Q6_K, 14, "Q6_K", 256, 1680) X(Q8_K, 15, "Q8_K", 256, 2336)                     \
    X(IQ2_XXS, 16, "IQ2_XXS", 256, 528) X(IQ2_XS, 17, "IQ2_XS", 256, 592) X(IQ3_XXS, 18, "IQ3_XXS", 256, 784)        \
    X(IQ1_S, 19, "IQ1_S", 256, 400) X(IQ4_NL, 20, "IQ4_NL", 32, 144) X(IQ3_S, 21, "IQ3_S", 256, 880)                 \
    X(IQ2_S, 22, "IQ2_S", 256, 656) X(IQ4_XS, 23, "IQ4_XS", 256, 1088) X(I8, 24, "I8", 1, 8) X(I16, 25, "I16", 1, 16) \
    X(I32, 26, "I32", 1, 32) X(I64, 27, "I64", 1, 64) X(F64, 28, "F64", 1, 64) X(IQ1_M, 29, "IQ1_M", 256, 448)       \
    X(BF16, 30, "BF16", 1, 16) X(TQ1_0, 34, "TQ1_0", 256, 432) X(TQ2_0, 35, "TQ2_0", 256, 528)                       \
    X(MXFP4, 39, "MXFP4", 32, 136) X(NVFP4, 40, "NVFP4", 64, 288) X(Q1_0, 41, "Q1_0", 128, 144)                      \
    X(Q2_0, 42, "Q2_0", 64, 144)                                                                                     \
    X(BOOL, 100, "BOOL", 1, 8) X(F4, 101, "F4", 1, 4) X(F6_E2M3, 102, "F6_E2M3", 1, 6) X(F6_E3M2, 103, "F6_E3M2", 1, 6) \
    X(U8, 104, "U8", 1, 8) X(F8_E5M2, 105, "F8_E5M2", 1, 8) X(F8_E4M3, 106, "F8_E4M3", 1, 8)                         \
    X(F8_E8M0, 107, "F8_E8M0", 1, 8) X(F8_E4M3FNUZ, 108, "F8_E4M3FNUZ", 1, 8) X(F8_E5M2FNUZ, 109, "F8_E5M2FNUZ", 1, 8) \
    X(U16, 110, "U16", 1, 16) X(U32, 111, "U32", 1, 32) X(C64, 112, "C64", 1, 64) X(U64, 113, "U64", 1, 64)

/* How elements are stored. */
typedef enum ofl_dtype {
#define OFL_DTYPE_ENUM(name, value, text, elements, bits) OFL_DTYPE_##name = value,
    OFL_DTYPE_LIST(OFL_DTYPE_ENUM)
#undef OFL_DTYPE_ENUM
} ofl_dtype;

/* "BF16", …; "?" for an unknown type. Static. */
OFL_API const char *ofl_dtype_name(ofl_dtype dtype);
/* Elements of a block, the smallest run of them that is stored on its own; 0 for an unknown type. */
OFL_API uint32_t ofl_dtype_block_elements(ofl_dtype dtype);
/* Bits of such a block; 0 for an unknown type. */
OFL_API uint32_t ofl_dtype_block_bits(ofl_dtype dtype);
/* Bytes of `elements` contiguous elements. OFL_ERROR_ARGUMENT when they are no whole number of blocks or bytes, OFL_ERROR_OVERFLOW. */
OFL_API ofl_status ofl_dtype_bytes(ofl_dtype dtype, uint64_t elements, uint64_t *bytes_out);
/* 1: an element is a number, in a block or alone, that another type could hold, too. 0: whole numbers, truth values and scales, in which
 * several weights may be packed, or none. */
OFL_API int ofl_dtype_holds_weights(ofl_dtype dtype);

/* How a step reads a tensor. */
typedef enum ofl_tensor_class {
    OFL_CLASS_DENSE,  /* read whole in every step */
    OFL_CLASS_LOOKUP, /* a few rows a step */
    OFL_CLASS_EXPERT, /* only the routed ones */
    OFL_CLASS_UNUSED  /* never read by this project (vision tower, prediction block): listed, never placed */
} ofl_tensor_class;

/* What a tensor is for, the same whatever the file calls it. X(name, text). In execution order within a block. */
#define OFL_ROLE_LIST(X)                                                                                           \
    X(EMBEDDING, "token embedding") X(ROPE_FREQS, "rope factors")                                                  \
    X(ATTN_NORM, "attention norm") X(ATTN_QKV, "fused q/k/v") X(ATTN_Q, "q") X(ATTN_Q_BIAS, "q bias") X(ATTN_K, "k") \
    X(ATTN_K_BIAS, "k bias") X(ATTN_V, "v") X(ATTN_V_BIAS, "v bias") X(ATTN_Q_NORM, "q norm")                      \
    X(ATTN_K_NORM, "k norm") X(ATTN_OUTPUT, "attention output") X(ATTN_OUTPUT_BIAS, "attention output bias")       \
    X(ATTN_POST_NORM, "norm after attention") X(ATTN_OTHER, "attention, other")                                    \
    X(FFN_NORM, "feed-forward norm") X(FFN_ROUTER, "expert router") X(FFN_GATE, "gate") X(FFN_UP, "up")            \
    X(FFN_DOWN, "down") X(FFN_POST_NORM, "norm after feed-forward") X(FFN_OTHER, "feed-forward, other")            \
    X(OUTPUT_NORM, "final norm") X(OUTPUT, "output head") X(OUTPUT_BIAS, "output head bias") X(OTHER, "other")

/* One of OFL_ROLE_LIST. */
typedef enum ofl_tensor_role {
#define OFL_ROLE_ENUM(name, text) OFL_ROLE_##name,
    OFL_ROLE_LIST(OFL_ROLE_ENUM)
#undef OFL_ROLE_ENUM
    OFL_ROLE_COUNT
} ofl_tensor_role;

/* The block of what comes before the first one; the output's block number is the number of blocks. */
#define OFL_BLOCK_INPUT (-1)
/* Most dimensions of a tensor. */
#define OFL_MAX_DIMS 8u

/* A tensor. */
typedef struct ofl_tensor_info {
    uint32_t struct_size;
    ofl_dtype dtype;
    ofl_tensor_class tensor_class;
    ofl_tensor_role role;
    uint32_t also_lookup; /* 1: a dense tensor whose rows are gathered too (output head tied to the embedding) */
    int32_t block;        /* transformer block, or OFL_BLOCK_INPUT */
    const char *name;     /* as the file has it */
    uint32_t n_dims;
    uint64_t dims[OFL_MAX_DIMS]; /* dims[0] is contiguous: a matrix is (dims[1] rows, dims[0] columns) */
    uint64_t row_count;   /* product of dims[1…]; 1 for a vector */
    uint64_t row_bytes;   /* bytes of dims[0] elements; row_count × row_bytes = bytes */
    uint64_t elements;
    uint64_t bytes;
    const char *unused_why; /* OFL_CLASS_UNUSED: why no step reads it, in a few words; static. NULL for the other classes */
} ofl_tensor_info;

/* Where a model came from. */
typedef enum ofl_model_format { OFL_FORMAT_GGUF, OFL_FORMAT_HF, OFL_FORMAT_DESCRIPTION, OFL_FORMAT_BUILDER } ofl_model_format;

/* Which elements of a head turn together. */
typedef enum ofl_rope_pairing {
    OFL_ROPE_HALF,       /* element i turns with i + dim/2 */
    OFL_ROPE_INTERLEAVED /* element 2i turns with 2i + 1 */
} ofl_rope_pairing;

/* How positions beyond the trained ones are scaled. */
typedef enum ofl_rope_scaling {
    OFL_ROPE_NONE,
    OFL_ROPE_LINEAR,
    OFL_ROPE_LLAMA3,
    OFL_ROPE_YARN,
    OFL_ROPE_LONGROPE,
    OFL_ROPE_DYNAMIC
} ofl_rope_scaling;

/* The numbers a forward pass and a planner need. 0 where a model has no such thing. */
typedef struct ofl_model_shape {
    uint32_t struct_size;
    uint32_t block_count;   /* transformer blocks that run; prediction blocks are not counted */
    uint32_t hidden_size;
    uint32_t head_count;
    uint32_t head_count_kv; /* the largest over all layers; per layer: ofl_model_kv_layer_get */
    uint32_t head_dim_k;
    uint32_t head_dim_v;
    uint32_t ffn_size;      /* the largest over all layers */
    uint32_t vocab_size;    /* rows of the output head */
    uint32_t expert_count;
    uint32_t expert_used_count;
    uint32_t tied_output;   /* 1: no output matrix is stored, the embedding serves */
    uint64_t trained_context_tokens;
    uint64_t parameter_count; /* of all that is stored, unused parts too; packed weights unpacked, without scales and buffers */
    double norm_epsilon;
    ofl_rope_pairing rope_pairing;
    ofl_rope_scaling rope_scaling;
    uint32_t rope_dim;      /* rotated elements of each head */
    uint32_t rope_original_context;
    double rope_freq_base;
    double rope_factor;
    double rope_low_freq_factor, rope_high_freq_factor;                      /* llama3 */
    double rope_attention_factor, rope_beta_fast, rope_beta_slow;            /* yarn; attention factor 0: by formula */
    double attention_scale; /* 0: 1/sqrt(head_dim_k) */
    double attention_softcap, final_softcap;
    double embedding_scale, residual_scale, logit_scale; /* 0: none */
} ofl_model_shape;

/* How keys and values are stored. */
typedef enum ofl_kv_type { OFL_KV_F16, OFL_KV_BF16, OFL_KV_F32, OFL_KV_Q8_0, OFL_KV_F8 } ofl_kv_type;

/* "f16", …; static, "?" for an unknown type. */
OFL_API const char *ofl_kv_type_name(ofl_kv_type type);

/* What a layer keeps of its context. */
typedef enum ofl_kv_kind {
    OFL_KV_FULL,    /* every token */
    OFL_KV_SLIDING, /* keeps min(context, window) tokens */
    OFL_KV_CHUNKED, /* the same, window = chunk */
    OFL_KV_LATENT,  /* one compressed vector of k_elements per token, no V */
    OFL_KV_SHARED,  /* uses another layer's cache */
    OFL_KV_NONE     /* linear or recurrent: a fixed state per sequence, or nothing */
} ofl_kv_kind;

/* A layer's cache. */
typedef struct ofl_kv_layer {
    uint32_t struct_size;
    ofl_kv_kind kind;
    uint32_t head_count_kv;
    uint64_t k_elements; /* per token, all heads */
    uint64_t v_elements;
    uint64_t window_tokens; /* sliding and chunked */
    uint64_t state_bytes;   /* per sequence, whatever its length */
} ofl_kv_layer;

/* A model; read-only. */
typedef struct ofl_model ofl_model;

/* Opens a GGUF file (any part of a split set), a Hugging Face folder (config.json + safetensors), or a description in JSON, told apart
 * by content. Reads headers only.
 * OFL_ERROR_NOT_FOUND, _IO, _FORMAT (with file and field), _UNSUPPORTED (a known thing this version cannot place), _HOST_MEMORY. */
OFL_API ofl_status ofl_model_open(const char *path, ofl_model **out);
/* Frees it. Readers, engines and what was borrowed from it must be gone. NULL is allowed. */
OFL_API void ofl_model_destroy(ofl_model *model);

/* Where it came from. */
OFL_API ofl_model_format ofl_model_format_get(const ofl_model *model);
/* The path as opened; "" for a built one. */
OFL_API const char *ofl_model_path(const ofl_model *model);
/* Never NULL; printable UTF-8: other bytes of the file are "?". */
OFL_API const char *ofl_model_name(const ofl_model *model);
/* GGUF's name for it: "llama", "qwen2", …; never NULL. */
OFL_API const char *ofl_model_architecture(const ofl_model *model);
/* 64 hex digits: SHA-256 of the headers (names, shapes, types, offsets, sizing keys). */
OFL_API const char *ofl_model_identity(const ofl_model *model);
/* Its numbers; out->struct_size is set by the caller. */
OFL_API ofl_status ofl_model_shape_get(const ofl_model *model, ofl_model_shape *out);

/* How many things are worth telling the user (a default that was used, a file that was ignored). */
OFL_API uint32_t ofl_model_note_count(const ofl_model *model);
/* One of them, a sentence; "" beyond the last. */
OFL_API const char *ofl_model_note(const ofl_model *model, uint32_t index);

/* How many tensors, in execution order: input, block 0, 1, …, output, then the unused ones. */
OFL_API uint32_t ofl_model_tensor_count(const ofl_model *model);
/* One of them. */
OFL_API ofl_status ofl_model_tensor_get(const ofl_model *model, uint32_t index, ofl_tensor_info *out);
/* First tensor with this role in this block. OFL_ERROR_NOT_FOUND sets no new sentence. */
OFL_API ofl_status ofl_model_tensor_find(const ofl_model *model, int32_t block, ofl_tensor_role role, uint32_t *index_out);
/* Copies bytes [offset, offset + bytes) of a tensor's data to host memory; blocks for the read. OFL_ERROR_IO, OFL_ERROR_ARGUMENT
 * (range). */
OFL_API ofl_status ofl_model_tensor_read(const ofl_model *model, uint32_t index, uint64_t offset, uint64_t bytes, void *to);
/* The caller's own memory behind a built tensor; NULL when its bytes are in a file. */
OFL_API const void *ofl_model_tensor_data(const ofl_model *model, uint32_t index);
/* The other way round: the built tensor whose bytes begin at `data`, for loops that know their matrices by address. Looks through all
 * tensors. OFL_ERROR_NOT_FOUND sets no new sentence. */
OFL_API ofl_status ofl_model_tensor_at(const ofl_model *model, const void *data, uint32_t *index_out);

/* Bytes that a reader's buffer begins at a multiple of. */
#define OFL_MODEL_READ_ALIGNMENT 4096u
/* For data that are read again in every step: the files stay open, and reads pass the page cache by (O_DIRECT) where the file system
 * allows it; where it does not, what was read is dropped from the page cache. */
typedef struct ofl_model_reader ofl_model_reader;
/* Opens the model's files. The model must outlive the reader. OFL_ERROR_IO. */
OFL_API ofl_status ofl_model_reader_open(const ofl_model *model, ofl_model_reader **out);
/* When no thread reads any more. NULL is allowed. */
OFL_API void ofl_model_reader_close(ofl_model_reader *reader);
/* Bytes [offset, offset + bytes) of a tensor, somewhere in `buffer`: *data_out says where. The buffer begins at a multiple of
 * OFL_MODEL_READ_ALIGNMENT and has room for bytes + 2 × that. Blocks for the read. Any number of threads may read at once.
 * OFL_ERROR_IO also when the file has changed since the model was opened. */
OFL_API ofl_status ofl_model_reader_read(ofl_model_reader *reader, uint32_t index, uint64_t offset, uint64_t bytes, void *buffer,
                                         const void **data_out);

/* KV cache of ONE sequence that holds `context_tokens` tokens: the one function that planner, front and driver size the cache by.
 * Σ over layers of kept(layer, context) × (k_elements + v_elements) × bytes of the type (block types padded to whole blocks). */
OFL_API ofl_status ofl_model_kv_bytes(const ofl_model *model, ofl_kv_type type, uint64_t context_tokens, uint64_t *bytes_out);
/* The same for one layer, which is below block_count. */
OFL_API ofl_status ofl_model_kv_layer_bytes(const ofl_model *model, uint32_t layer, ofl_kv_type type, uint64_t context_tokens,
                                            uint64_t *bytes_out);
/* What a layer keeps. layer < block_count. */
OFL_API ofl_status ofl_model_kv_layer_get(const ofl_model *model, uint32_t layer, ofl_kv_layer *out);
/* What one more token costs while no window is full: ofl_model_kv_bytes(1). */
OFL_API ofl_status ofl_model_kv_bytes_per_token(const ofl_model *model, ofl_kv_type type, uint64_t *bytes_out);
/* Recurrent state of one sequence, bytes. */
OFL_API ofl_status ofl_model_state_bytes(const ofl_model *model, uint64_t *bytes_out);

/* Bytes of all experts as stored; 0 for a model without. */
OFL_API ofl_status ofl_model_expert_bytes(const ofl_model *model, uint64_t *bytes_out);
/* Bytes of experts read by a step of `tokens` tokens, each of them sent to expert_used_count of expert_count experts evenly: of E experts,
 * E × (1 − (1 − k/E)^tokens) different ones are expected to be read. All are where the shape names no count. Modelled, not measured: real
 * routing is not even. */
OFL_API ofl_status ofl_model_expert_bytes_per_step(const ofl_model *model, uint64_t tokens, double *bytes_out);
/* The share in it: 0 of no tokens, else 1 − (1 − used/count)^tokens; 1 where count or used is 0 or used is not below count. */
OFL_API double ofl_expert_share(uint32_t count, uint32_t used, double tokens);

/* What a GGUF file says under a key. */
typedef enum ofl_metadata_kind {
    OFL_METADATA_UINT,
    OFL_METADATA_INT,
    OFL_METADATA_FLOAT,
    OFL_METADATA_BOOL,
    OFL_METADATA_STRING,
    OFL_METADATA_ARRAY
} ofl_metadata_kind;
/* A value. Its string is borrowed from the model. */
typedef struct ofl_metadata {
    uint32_t struct_size;
    ofl_metadata_kind kind;
    ofl_metadata_kind element_kind; /* arrays */
    uint64_t count;                 /* array elements, or bytes of a string */
    uint64_t unsigned_value;        /* UINT, BOOL */
    int64_t signed_value;           /* INT */
    double float_value;             /* FLOAT */
    const char *string;             /* count bytes, NUL after them; may hold NULs */
} ofl_metadata;
/* Scalars and strings up to 1 MiB come with their value; arrays with kind and count only. OFL_ERROR_NOT_FOUND sets no new sentence; other
 * formats than GGUF have no key at all: read config.json and tokenizer.json in ofl_model_path. */
OFL_API ofl_status ofl_model_metadata_get(const ofl_model *model, const char *key, ofl_metadata *out);
/* Calls item(context, index, value) for each element of an array, in order, reading the file anew; `value` (and its string) lives for
 * that call only. A non-zero return stops the walk, which then returns OFL_ERROR_CANCELLED. OFL_ERROR_NOT_FOUND, _IO. */
OFL_API ofl_status ofl_model_metadata_each(const ofl_model *model, const char *key,
                                           int (*item)(void *context, uint64_t index, const ofl_metadata *value), void *context);

/* Makes a model out of the caller's own weights: describe the shape, add tensors in execution order, finish. */
typedef struct ofl_model_builder ofl_model_builder;
/* A tensor to be added. */
typedef struct ofl_tensor_source {
    uint32_t struct_size;
    const char *name;      /* copied; unique */
    ofl_dtype dtype;
    ofl_tensor_class tensor_class;
    ofl_tensor_role role;
    int32_t block;
    uint32_t also_lookup;
    uint32_t n_dims;
    uint64_t dims[OFL_MAX_DIMS];
    const void *data;      /* the tensor's bytes, kept alive by the caller until the model is destroyed; or NULL with a file: */
    const char *file;      /* copied */
    uint64_t file_offset;  /* of its first byte */
} ofl_tensor_source;
/* Begins. name and architecture are copied, NULL is "". The architecture matters to programs that ask for it alone. */
OFL_API ofl_status ofl_model_builder_create(const char *name, const char *architecture, const ofl_model_shape *shape,
                                            ofl_model_builder **out);
/* Adds one. Nothing of its bytes is read or copied. OFL_ERROR_ARGUMENT: an unknown type, no whole number of blocks, a file that is too
 * short; OFL_ERROR_NOT_FOUND, _IO (file), _OVERFLOW. */
OFL_API ofl_status ofl_model_builder_add_tensor(ofl_model_builder *builder, const ofl_tensor_source *tensor);
/* Without it every layer is OFL_KV_FULL with head_count_kv × head_dim_k and × head_dim_v elements. */
OFL_API ofl_status ofl_model_builder_set_kv_layer(ofl_model_builder *builder, uint32_t layer, const ofl_kv_layer *kv);
/* Hands over the model. The builder is destroyed whatever the outcome. OFL_ERROR_ARGUMENT: no tensor, two of one name, a block beyond the
 * shape's; OFL_ERROR_OVERFLOW. */
OFL_API ofl_status ofl_model_builder_finish(ofl_model_builder *builder, ofl_model **out);
/* For one that is not to be finished. NULL is allowed. */
OFL_API void ofl_model_builder_destroy(ofl_model_builder *builder);

/* Weights of one kind: of each block one matrix, at even distances in the caller's memory. Frozen layout: arrays of it cross the API. */
typedef struct ofl_stack {
    ofl_tensor_role role;   /* EMBEDDING, OUTPUT_NORM, OUTPUT and OUTPUT_BIAS stand once, before and after the blocks */
    ofl_dtype dtype;
    const void *data;       /* block 0's, its rows one after the other */
    uint64_t rows, columns; /* a row makes one output; a vector is one row */
    uint64_t stride_bytes;  /* from one block's to the next one's, no less than a matrix; 0: just that, so they follow each other */
} ofl_stack;
/* The builder in one call: shape.block_count blocks, each with the stacks in the order given, which should be the order of use. An
 * embedding and an output head at one address are one tied matrix: of equal rows, columns and type, else OFL_ERROR_ARGUMENT.
 * shape.tied_output may be 0 all the same; where it is set and there is no tied head: OFL_ERROR_ARGUMENT. Nothing is copied: the memory is
 * the caller's, and must stay until the model is destroyed. Errors as of ofl_model_builder_add_tensor and _finish. */
OFL_API ofl_status ofl_model_from_stacks(const char *name, const ofl_model_shape *shape, const ofl_stack *stacks, uint32_t count,
                                         ofl_model **out);

#ifdef __cplusplus
}
#endif
#endif

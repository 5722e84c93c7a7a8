/* Models for tests of the forward pass: tiny checkpoints with the logits that a float32 reference gave, and a bigger one to be streamed. Include
 * after support.h. */
#ifndef OFLOAD_TEST_FORWARD_MODELS_H
#define OFLOAD_TEST_FORWARD_MODELS_H

#include "batch/cpu/vector.h"
#include "support/forward_rig.h"

#define GOLDEN OFLOAD_SOURCE_DIR "/tests/golden/"

static const struct {
    const char *model, *logits;
} tiny[] = {{GOLDEN "tiny_llama", GOLDEN "tiny_llama/hf.logits"}, {GOLDEN "tiny_llama/model.gguf", GOLDEN "tiny_llama/gguf.logits"},
            {GOLDEN "tiny_qwen2", GOLDEN "tiny_qwen2/hf.logits"}, {GOLDEN "tiny_qwen2/model.gguf", GOLDEN "tiny_qwen2/gguf.logits"},
            {GOLDEN "tiny_qwen3", GOLDEN "tiny_qwen3/hf.logits"}, {GOLDEN "tiny_qwen3/model.gguf", GOLDEN "tiny_qwen3/gguf.logits"}};
#define TINY (sizeof tiny / sizeof tiny[0])

typedef struct golden {
    char *file;
    uint32_t count, vocab;
    const int32_t *ids;
    const float *logits;
} golden;

static inline golden read_golden(const char *path)
{
    golden g = {.file = test_read(path, NULL)};
    memcpy(&g.count, g.file, 4);
    memcpy(&g.vocab, g.file + 4, 4);
    g.ids = (const int32_t *)(const void *)(g.file + 8);
    g.logits = (const float *)(const void *)(g.file + 8 + 4 * (uint64_t)g.count);
    return g;
}

/* A model big enough to be streamed, random weights in memory, every matrix of another stored type. */
#define BIG_HIDDEN 256u
#define BIG_FFN 704u
#define BIG_VOCAB 700u
#define BIG_BLOCKS 3u
#define BIG_PARTS 12
#define BIG_TENSORS (2 + BIG_PARTS * BIG_BLOCKS)

typedef struct big_model {
    void *data[BIG_TENSORS];
    uint32_t count;
} big_model;

static inline void random_bytes(uint8_t *data, uint64_t bytes, ofl_dtype dtype, uint64_t *seed)
{
    uint64_t block = ofl_dtype_block_bits(dtype) / 8;
    for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)test_random(seed);
    for (uint64_t i = 0; i < bytes; i += block) {
        float value = ((float)(test_random(seed) % 2001) - 1000) * 1e-4f;
        uint16_t half = dtype == OFL_DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(dtype == OFL_DTYPE_F16 ? value : value * 0.05f);
        if (dtype == OFL_DTYPE_F32)
            memcpy(data + i, &value, sizeof value);
        else
            memcpy(data + i, &half, sizeof half);
        if (dtype == OFL_DTYPE_Q4_1 || dtype == OFL_DTYPE_Q4_K) memcpy(data + i + 2, &half, sizeof half);
    }
}

static inline void add_tensor(ofl_model_builder *builder, big_model *big, ofl_tensor_role role, int32_t block, ofl_dtype dtype, uint64_t rows,
                       uint64_t columns)
{
    char name[64];
    uint64_t bytes, seed = big->count;
    (void)snprintf(name, sizeof name, "%d.%d", (int)block, (int)role);
    assert_ok(ofl_dtype_bytes(dtype, rows * columns, &bytes));
    void *data = malloc(bytes);
    assert_non_null(data);
    random_bytes(data, bytes, dtype, &seed);
    ofl_tensor_source source = {.struct_size = sizeof source,
                                .name = name,
                                .dtype = dtype,
                                .role = role,
                                .block = block,
                                .n_dims = rows == 1 ? 1 : 2,
                                .dims = {columns, rows},
                                .data = data,
                                .also_lookup = role == OFL_ROLE_OUTPUT};
    big->data[big->count++] = data;
    assert_ok(ofl_model_builder_add_tensor(builder, &source));
}

static inline ofl_model *build_big(big_model *big)
{
    static const struct {
        ofl_tensor_role role;
        ofl_dtype dtype;
        uint64_t rows, columns;
    } parts[BIG_PARTS] = {{OFL_ROLE_ATTN_NORM, OFL_DTYPE_F32, 1, BIG_HIDDEN},
                          {OFL_ROLE_ATTN_Q, OFL_DTYPE_BF16, BIG_HIDDEN, BIG_HIDDEN},
                          {OFL_ROLE_ATTN_K, OFL_DTYPE_F32, BIG_HIDDEN / 2, BIG_HIDDEN},
                          {OFL_ROLE_ATTN_V, OFL_DTYPE_F32, BIG_HIDDEN / 2, BIG_HIDDEN},
                          {OFL_ROLE_ATTN_OUTPUT, OFL_DTYPE_F16, BIG_HIDDEN, BIG_HIDDEN},
                          {OFL_ROLE_FFN_NORM, OFL_DTYPE_BF16, 1, BIG_HIDDEN},
                          {OFL_ROLE_FFN_GATE, OFL_DTYPE_Q4_1, BIG_FFN, BIG_HIDDEN},
                          {OFL_ROLE_FFN_UP, OFL_DTYPE_Q8_0, BIG_FFN, BIG_HIDDEN},
                          {OFL_ROLE_FFN_DOWN, OFL_DTYPE_BF16, BIG_HIDDEN, BIG_FFN},
                          {OFL_ROLE_ATTN_Q_BIAS, OFL_DTYPE_F32, 1, BIG_HIDDEN},
                          {OFL_ROLE_ATTN_K_BIAS, OFL_DTYPE_F16, 1, BIG_HIDDEN / 2},
                          {OFL_ROLE_ATTN_V_BIAS, OFL_DTYPE_BF16, 1, BIG_HIDDEN / 2}};
    ofl_model_shape shape = {.struct_size = sizeof shape,
                             .block_count = BIG_BLOCKS,
                             .hidden_size = BIG_HIDDEN,
                             .head_count = 8,
                             .head_count_kv = 4,
                             .head_dim_k = 32,
                             .head_dim_v = 32,
                             .ffn_size = BIG_FFN,
                             .vocab_size = BIG_VOCAB,
                             .tied_output = 1,
                             .trained_context_tokens = 512,
                             .norm_epsilon = 1e-5,
                             .rope_dim = 32,
                             .rope_freq_base = 10000};
    ofl_model_builder *builder = NULL;
    ofl_model *model = NULL;
    *big = (big_model){.count = 0};
    assert_ok(ofl_model_builder_create("big", "qwen2", &shape, &builder));
    for (uint32_t b = 0; b < BIG_BLOCKS; b++) {
        for (int i = 0; i < BIG_PARTS; i++)
            add_tensor(builder, big, parts[i].role, (int32_t)b, parts[i].dtype, parts[i].rows, parts[i].columns);
    }
    add_tensor(builder, big, OFL_ROLE_OUTPUT_NORM, BIG_BLOCKS, OFL_DTYPE_F16, 1, BIG_HIDDEN);
    add_tensor(builder, big, OFL_ROLE_OUTPUT, BIG_BLOCKS, OFL_DTYPE_Q4_K, BIG_VOCAB, BIG_HIDDEN);
    assert_ok(ofl_model_builder_finish(builder, &model));
    return model;
}

static inline void free_big(big_model *big)
{
    for (uint32_t i = 0; i < big->count; i++) free(big->data[i]);
}

/* Three sequences of different ages in one step, prefill and decode mixed. */
static inline void run_batch(rig *r, const int32_t *ids, float *out)
{
    static rig_step s;
    uint64_t row = BIG_VOCAB * sizeof *out;
    rig_begin(&s, r);
    rig_add(&s, 1, 0, ids + 3, 20, false);
    rig_add(&s, 2, 0, ids, 9, true);
    memcpy(out, rig_run(&s), row);
    rig_begin(&s, r);
    rig_add(&s, 1, 20, ids + 23, 1, true);
    rig_add(&s, 2, 9, ids + 9, 1, true);
    rig_add(&s, 0, 0, ids + 5, 30, true);
    memcpy(out + BIG_VOCAB, rig_run(&s), 3 * row);
}

#endif

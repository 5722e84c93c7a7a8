#include "support/gguf_writer.h"

#include "base/base.h"

/* Keys of a llama with `blocks` layers of hidden size 64, 4 heads, 2 KV heads of 16. */
static void llama_keys(gguf_writer *writer, uint32_t blocks)
{
    gguf_start(writer);
    gguf_key_string(writer, "general.architecture", "llama");
    gguf_key_u32(writer, "llama.block_count", blocks);
    gguf_key_u32(writer, "llama.embedding_length", 64);
    gguf_key_u32(writer, "llama.context_length", 2048);
    gguf_key_u32(writer, "llama.feed_forward_length", 128);
    gguf_key_u32(writer, "llama.attention.head_count", 4);
    gguf_key_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static void tensor(gguf_writer *writer, const char *name, uint64_t columns, uint64_t rows)
{
    float values[4] = {1, 2, 3, 4};
    uint64_t dims[2] = {columns, rows};
    size_t bytes = (size_t)(columns * (rows > 0 ? rows : 1)) * sizeof(float);
    float *data = calloc(1, bytes);
    memcpy(data, values, sizeof values);
    gguf_tensor(writer, name, 0, rows > 0 ? 2 : 1, dims, data, bytes);
    free(data);
}

static ofl_model *opened(const gguf_writer *writer, const char *name)
{
    ofl_model *model = NULL;
    gguf_save(writer, test_path(name));
    assert_ok(ofl_model_open(test_path(name), &model));
    return model;
}

static ofl_tensor_info info_of(const ofl_model *model, uint32_t index)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_tensor_get(model, index, &info));
    return info;
}

static ofl_model_shape shape_of(const ofl_model *model)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    return shape;
}

static uint64_t kv(const ofl_model *model, uint64_t context)
{
    uint64_t bytes = 0;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, context, &bytes));
    return bytes;
}

static void test_tied_llama(void **state)
{
    (void)state;
    gguf_writer writer;
    llama_keys(&writer, 2);
    gguf_key_u32(&writer, "llama.attention.head_count_kv", 2);
    gguf_key_string(&writer, "general.name", "Tiny");
    static const char *const stored[] = {"token_embd.weight",     "rope_freqs.weight",      "blk.1.ffn_down.weight", "blk.1.attn_q.weight",
                                         "blk.0.ffn_gate.weight", "blk.0.attn_norm.weight", "blk.0.strange.weight",  "output_norm.weight"};
    for (size_t i = 0; i < OFL_COUNT_OF(stored); i++) tensor(&writer, stored[i], 64, strstr(stored[i], "norm") != NULL ? 0 : 100);
    ofl_model *model = opened(&writer, "tied.gguf");
    static const char *const order[] = {"rope_freqs.weight",   "blk.0.attn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.strange.weight",
                                        "blk.1.attn_q.weight", "blk.1.ffn_down.weight",  "output_norm.weight",    "token_embd.weight"};
    assert_int_equal(ofl_model_tensor_count(model), OFL_COUNT_OF(order));
    for (uint32_t i = 0; i < OFL_COUNT_OF(order); i++) assert_string_equal(info_of(model, i).name, order[i]);
    ofl_tensor_info embedding = info_of(model, 7);
    assert_int_equal(embedding.tensor_class, OFL_CLASS_DENSE);
    assert_int_equal(embedding.also_lookup, 1);
    assert_int_equal(embedding.block, 2);
    assert_int_equal(embedding.row_count, 100);
    assert_int_equal(embedding.row_bytes, 256);
    uint32_t index = 0;
    assert_ok(ofl_model_tensor_find(model, 2, OFL_ROLE_OUTPUT, &index));
    assert_int_equal(index, 7);
    assert_ok(ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, &index));
    assert_int_equal(index, 7);
    ofl_model_shape shape = shape_of(model);
    assert_int_equal(shape.tied_output, 1);
    assert_int_equal(shape.vocab_size, 100);
    assert_int_equal(shape.rope_pairing, OFL_ROPE_INTERLEAVED);
    assert_int_equal(shape.rope_dim, 16);
    assert_int_equal(kv(model, 1), 2 * 2 * 2 * 16 * 2);
    assert_string_equal(ofl_model_name(model), "Tiny");
    float read[2];
    assert_ok(ofl_model_tensor_read(model, 3, 4, 8, read));
    assert_true(read[0] == 2 && read[1] == 3);
    ofl_model_destroy(model);
    gguf_end(&writer);
}

static void test_untied_qwen(void **state)
{
    (void)state;
    gguf_writer writer;
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "qwen3");
    gguf_key_u32(&writer, "qwen3.block_count", 1);
    gguf_key_u32(&writer, "qwen3.embedding_length", 64);
    gguf_key_u32(&writer, "qwen3.attention.head_count", 4);
    gguf_key_u32(&writer, "qwen3.attention.key_length", 32);
    gguf_key_u32(&writer, "qwen3.attention.value_length", 32);
    tensor(&writer, "output.weight", 64, 90);
    tensor(&writer, "token_embd.weight", 64, 90);
    tensor(&writer, "blk.0.attn_q_norm.weight", 32, 0);
    ofl_model *model = opened(&writer, "untied.gguf");
    assert_string_equal(info_of(model, 0).name, "token_embd.weight");
    assert_int_equal(info_of(model, 0).tensor_class, OFL_CLASS_LOOKUP);
    assert_int_equal(info_of(model, 0).block, OFL_BLOCK_INPUT);
    assert_int_equal(info_of(model, 1).role, OFL_ROLE_ATTN_Q_NORM);
    assert_int_equal(info_of(model, 2).role, OFL_ROLE_OUTPUT);
    assert_int_equal(shape_of(model).rope_pairing, OFL_ROPE_HALF);
    assert_int_equal(shape_of(model).head_dim_k, 32);
    assert_int_equal(kv(model, 1), 4 * 64 * 2); /* head_count_kv absent: as many as heads, and a note says so */
    assert_int_equal(ofl_model_note_count(model), 1);
    assert_non_null(strstr(ofl_model_note(model, 0), "head_count_kv"));
    assert_string_equal(ofl_model_name(model), "untied");
    ofl_model_destroy(model);
    gguf_end(&writer);
}

typedef struct walked {
    uint64_t count, bytes;
    char last[32];
} walked;

static int count_text(void *context, uint64_t index, const ofl_metadata *value)
{
    walked *seen = context;
    assert_int_equal(index, seen->count++);
    assert_int_equal(value->kind, OFL_METADATA_STRING);
    assert_int_equal(strlen(value->string), value->count);
    seen->bytes += value->count;
    (void)snprintf(seen->last, sizeof seen->last, "%s", value->string);
    return seen->count == 1000 && seen->bytes == 0;
}

static int stop(void *context, uint64_t index, const ofl_metadata *value)
{
    (void)value;
    *(uint64_t *)context = index;
    return index == 5;
}

enum { METADATA_TOKENS = 262144 };

/* "t0", "t1", … */
static void metadata_tokens(gguf_writer *writer)
{
    gguf_key(writer, "tokenizer.ggml.tokens", GGUF_ARRAY);
    size_t used = 12;
    unsigned char *array = calloc(1, 12 + (size_t)METADATA_TOKENS * 20);
    array[0] = GGUF_STRING;
    array[6] = METADATA_TOKENS >> 16; /* u64 at 4 */
    for (int i = 0; i < METADATA_TOKENS; i++) {
        int length = snprintf((char *)array + used + 8, 12, "t%d", i);
        array[used] = (unsigned char)length;
        used += 8 + (size_t)length;
    }
    gguf_raw(writer, array, used);
    free(array);
}

static void metadata_keys(gguf_writer *writer)
{
    llama_keys(writer, 1);
    metadata_tokens(writer);
    gguf_key(writer, "big", GGUF_U64);
    gguf_raw_u64(writer, UINT64_MAX, 8);
    gguf_key(writer, "small", GGUF_I16);
    gguf_raw_u64(writer, 0xfffe, 2);
    gguf_key(writer, "nested", GGUF_ARRAY); /* two deep: passed over */
    gguf_raw_u64(writer, GGUF_ARRAY, 4);
    gguf_raw_u64(writer, 2, 8);
    for (uint64_t i = 0; i < 2; i++) {
        gguf_raw_u64(writer, GGUF_U16, 4);
        gguf_raw_u64(writer, i, 8);
        gguf_raw_u64(writer, 7, (unsigned)(2 * i));
    }
    char *licence = malloc((2 << 20) + 1); /* a long text before a key that matters */
    memset(licence, 'x', 2 << 20);
    licence[2 << 20] = '\0';
    gguf_key_string(writer, "general.license", licence);
    free(licence);
    gguf_key_u32(writer, "llama.attention.head_count_kv", 1);
}

static void check_scalars(const ofl_model *model)
{
    ofl_metadata value = {.struct_size = sizeof value};
    assert_ok(ofl_model_metadata_get(model, "big", &value));
    assert_int_equal(value.kind, OFL_METADATA_UINT);
    assert_true(value.unsigned_value == UINT64_MAX);
    assert_ok(ofl_model_metadata_get(model, "small", &value));
    assert_int_equal(value.signed_value, -2);
    assert_ok(ofl_model_metadata_get(model, "general.license", &value));
    assert_int_equal(value.count, 2 << 20);
    assert_null(value.string);
    assert_ok(ofl_model_metadata_get(model, "general.architecture", &value));
    assert_string_equal(value.string, "llama");
    assert_ok(ofl_model_metadata_get(model, "tokenizer.ggml.tokens", &value));
    assert_int_equal(value.kind, OFL_METADATA_ARRAY);
    assert_int_equal(value.element_kind, OFL_METADATA_STRING);
    assert_int_equal(value.count, METADATA_TOKENS);
    assert_int_equal(ofl_model_metadata_get(model, "no.such", &value), OFL_ERROR_NOT_FOUND);
    assert_int_equal(shape_of(model).head_count_kv, 1);
}

static void test_metadata(void **state)
{
    (void)state;
    gguf_writer writer;
    metadata_keys(&writer);
    tensor(&writer, "token_embd.weight", 64, 10);
    ofl_model *model = opened(&writer, "metadata.gguf");
    check_scalars(model);
    walked seen = {0};
    assert_ok(ofl_model_metadata_each(model, "tokenizer.ggml.tokens", count_text, &seen));
    assert_int_equal(seen.count, METADATA_TOKENS);
    assert_string_equal(seen.last, "t262143");
    uint64_t stopped = 0;
    assert_status(ofl_model_metadata_each(model, "tokenizer.ggml.tokens", stop, &stopped), OFL_ERROR_CANCELLED);
    assert_int_equal(stopped, 5);
    assert_status(ofl_model_metadata_each(model, "nested", stop, &stopped), OFL_ERROR_UNSUPPORTED);
    assert_status(ofl_model_metadata_each(model, "big", stop, &stopped), OFL_ERROR_FORMAT);
    ofl_model_destroy(model);
    gguf_end(&writer);
}

static void split_part(const char *prefix, uint32_t number, uint32_t count, uint32_t says_count, uint32_t total, const char *name)
{
    gguf_writer writer;
    char path[256];
    if (number == 0) {
        llama_keys(&writer, 3);
    } else {
        gguf_start(&writer);
    }
    gguf_key(&writer, "split.no", GGUF_U16);
    gguf_raw_u64(&writer, number, 2);
    gguf_key(&writer, "split.count", GGUF_U16);
    gguf_raw_u64(&writer, says_count, 2);
    gguf_key(&writer, "split.tensors.count", GGUF_I32);
    gguf_raw_u64(&writer, total, 4);
    if (name != NULL) tensor(&writer, name, 64, 64);
    (void)snprintf(path, sizeof path, "%s-%05u-of-%05u.gguf", prefix, number + 1, count);
    gguf_save(&writer, test_path(path));
    gguf_end(&writer);
}

static void test_split_set(void **state)
{
    (void)state;
    ofl_model *first = NULL, *second = NULL;
    split_part("m", 0, 3, 3, 2, NULL); /* metadata only */
    split_part("m", 1, 3, 3, 2, "blk.0.attn_q.weight");
    split_part("m", 2, 3, 3, 2, "token_embd.weight");
    assert_ok(ofl_model_open(test_path("m-00001-of-00003.gguf"), &first));
    assert_ok(ofl_model_open(test_path("m-00002-of-00003.gguf"), &second));
    assert_string_equal(ofl_model_identity(first), ofl_model_identity(second));
    assert_int_equal(ofl_model_tensor_count(second), 2);
    float read[4];
    assert_ok(ofl_model_tensor_read(second, 1, 0, 16, read));
    assert_true(read[3] == 4);
    ofl_model_destroy(first);
    ofl_model_destroy(second);
}

static void test_broken_split_sets(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    split_part("gap", 0, 3, 3, 2, "blk.0.attn_q.weight");
    split_part("gap", 1, 3, 3, 2, "token_embd.weight");
    assert_status(ofl_model_open(test_path("gap-00001-of-00003.gguf"), &model), OFL_ERROR_NOT_FOUND);
    assert_non_null(strstr(ofl_error_message(), "gap-00003-of-00003.gguf"));
    split_part("mix", 0, 2, 2, 2, "blk.0.attn_q.weight");
    split_part("mix", 1, 2, 4, 2, "token_embd.weight");
    assert_status(ofl_model_open(test_path("mix-00001-of-00002.gguf"), &model), OFL_ERROR_FORMAT);
    assert_non_null(strstr(ofl_error_message(), "mix-00002-of-00002.gguf"));
    split_part("sum", 0, 2, 2, 3, "blk.0.attn_q.weight");
    split_part("sum", 1, 2, 2, 3, "token_embd.weight");
    assert_status(ofl_model_open(test_path("sum-00002-of-00002.gguf"), &model), OFL_ERROR_FORMAT);
    split_part("two", 0, 2, 2, 2, "token_embd.weight");
    split_part("two", 1, 2, 2, 2, "token_embd.weight");
    assert_status(ofl_model_open(test_path("two-00002-of-00002.gguf"), &model), OFL_ERROR_FORMAT);
    assert_non_null(strstr(ofl_error_message(), "token_embd.weight"));
    split_part("odd", 0, 2, 2, 1, "token_embd.weight");
    assert_int_equal(rename(test_path("odd-00001-of-00002.gguf"), test_path("odd.gguf")), 0);
    assert_status(ofl_model_open(test_path("odd.gguf"), &model), OFL_ERROR_FORMAT);
    assert_null(model);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    gguf_writer writer;
    llama_keys(&writer, 2);
    gguf_key_u32_array(&writer, "llama.attention.head_count_kv", (const uint32_t[]){2, 4}, 2);
    tensor(&writer, "token_embd.weight", 64, 10);
    tensor(&writer, "blk.0.attn_q.weight", 64, 64);
    gguf_save(&writer, test_path("faults.gguf"));
    gguf_end(&writer);
    ofl_status status = OFL_ERROR_HOST_MEMORY;
    uint64_t nth = 0;
    while (status == OFL_ERROR_HOST_MEMORY) {
        ofl_model *model = NULL;
        (void)ofl_fault_allocation(++nth);
        status = ofl_model_open(test_path("faults.gguf"), &model);
        (void)ofl_fault_allocation(0);
        assert_true((status == OFL_OK) == (model != NULL));
        ofl_model_destroy(model);
    }
    assert_ok(status);
    assert_true(nth > 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tied_llama), cmocka_unit_test(test_untied_qwen),       cmocka_unit_test(test_metadata),
    cmocka_unit_test(test_split_set),  cmocka_unit_test(test_broken_split_sets), cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)

/* GGUF files that must be refused: each with a status and a sentence, none with a crash. */
#include "support/gguf_writer.h"

#include "base/base.h"

static void keys(gguf_writer *writer)
{
    gguf_start(writer);
    gguf_key_string(writer, "general.architecture", "llama");
    gguf_key_u32(writer, "llama.block_count", 1);
    gguf_key_u32(writer, "llama.embedding_length", 64);
    gguf_key_u32(writer, "llama.attention.head_count", 4);
}

static void expect(const char *what, ofl_status wanted, const char *word)
{
    ofl_model *model = NULL;
    ofl_status status = ofl_model_open(test_path("bad.gguf"), &model);
    if (status != wanted) fail_msg("%s: %s instead of %s: %s", what, ofl_status_name(status), ofl_status_name(wanted), ofl_error_message());
    if (strstr(ofl_error_message(), word) == NULL) fail_msg("%s: \"%s\" is not in: %s", what, word, ofl_error_message());
    if (status != OFL_OK) assert_null(model);
    ofl_model_destroy(model);
}

static void expect_written(gguf_writer *writer, const char *what, ofl_status wanted, const char *word)
{
    gguf_save(writer, test_path("bad.gguf"));
    gguf_end(writer);
    expect(what, wanted, word);
}

static void test_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        uint32_t type, n_dims;
        uint64_t dims[4];
        uint64_t offset;
        ofl_status wanted;
        const char *word;
    } cases[] = {
        {"2^64 - 16 bytes", 0, 3, {4, 1073741823, 1073741825}, 0, OFL_ERROR_OVERFLOW, "t.weight"},
        {"product", 0, 3, {UINT64_C(1) << 40, UINT64_C(1) << 40, 2}, 0, OFL_ERROR_OVERFLOW, "t.weight"},
        {"negative dimension", 0, 1, {UINT64_MAX}, 0, OFL_ERROR_FORMAT, "negative"},
        {"5 dimensions", 0, 5, {1, 1, 1, 1}, 0, OFL_ERROR_FORMAT, "5 dimensions"},
        {"9 dimensions", 0, 9, {1, 1, 1, 1}, 0, OFL_ERROR_FORMAT, "9 dimensions"},
        {"2^32 - 1 dimensions", 0, UINT32_MAX, {1}, 0, OFL_ERROR_FORMAT, "dimensions"},
        {"offset not 0", 0, 1, {16}, 64, OFL_ERROR_FORMAT, "offset 64"},
        {"offset not aligned", 0, 1, {16}, 33, OFL_ERROR_FORMAT, "offset 33"},
        {"offset wraps", 0, 1, {16}, UINT64_MAX - 31, OFL_ERROR_FORMAT, "offset"},
        {"removed type 4", 4, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 4"},
        {"removed type 5", 5, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 5"},
        {"removed type 31", 31, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 31"},
        {"removed type 38", 38, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 38"},
        {"type 43", 43, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 43"},
        {"type 100 is another format's", 100, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 100"},
        {"type 200", 200, 2, {64, 2}, 0, OFL_ERROR_UNSUPPORTED, "type 200"},
        {"columns", 8, 2, {33, 32}, 0, OFL_ERROR_FORMAT, "33 columns"},
        {"beyond the end", 0, 1, {4096}, 0, OFL_ERROR_FORMAT, "the file is cut"},
        {"MXFP4 experts beyond the end", 39, 3, {2880, 2880, 32}, 0, OFL_ERROR_FORMAT, "needs 1410"},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        gguf_writer writer;
        keys(&writer);
        uint64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        memcpy(dims, cases[i].dims, sizeof cases[i].dims);
        if (cases[i].n_dims <= 9) {
            gguf_tensor_at(&writer, "t.weight", cases[i].type, cases[i].n_dims, dims, cases[i].offset);
        } else { /* the count alone is wrong */
            gguf_tensor_at(&writer, "t.weight", cases[i].type, 1, dims, cases[i].offset);
            memset(writer.tensors + 16, 0xff, 4);
        }
        expect_written(&writer, cases[i].what, cases[i].wanted, cases[i].word);
    }
}

static void test_second_tensor(void **state)
{
    (void)state;
    static const uint64_t offsets[] = {0, 32, 96, 33, UINT64_MAX - 31};
    for (size_t i = 0; i < OFL_COUNT_OF(offsets); i++) {
        gguf_writer writer;
        keys(&writer);
        gguf_tensor(&writer, "a.weight", 0, 1, (const uint64_t[]){16}, NULL, 256);
        gguf_tensor_at(&writer, "b.weight", 0, 1, (const uint64_t[]){16}, offsets[i]);
        expect_written(&writer, "second offset", OFL_ERROR_FORMAT, "b.weight");
    }
    gguf_writer writer;
    keys(&writer);
    gguf_tensor(&writer, "a.weight", 0, 1, (const uint64_t[]){16}, NULL, 64);
    gguf_tensor(&writer, "a.weight", 0, 1, (const uint64_t[]){16}, NULL, 64);
    expect_written(&writer, "same name", OFL_ERROR_FORMAT, "a.weight");
    keys(&writer);
    expect_written(&writer, "no tensors", OFL_ERROR_FORMAT, "no tensors");
    keys(&writer);
    gguf_tensor(&writer, "blk.1.attn_q.weight", 0, 1, (const uint64_t[]){16}, NULL, 64);
    expect_written(&writer, "block beyond", OFL_ERROR_FORMAT, "blk.1.");
    keys(&writer);
    gguf_tensor(&writer, "a-name-of-more-than-the-sixty-three-bytes-that-a-tensor-name-may-have", 0, 1, (const uint64_t[]){16}, NULL, 64);
    expect_written(&writer, "long name", OFL_ERROR_FORMAT, "name of tensor 0");
}

static void write_counts(uint32_t version, uint64_t tensors, uint64_t key_count, size_t extra)
{
    unsigned char file[128] = {'G',
                               'G',
                               'U',
                               'F',
                               (unsigned char)version,
                               (unsigned char)(version >> 8),
                               (unsigned char)(version >> 16),
                               (unsigned char)(version >> 24)};
    for (unsigned i = 0; i < 8; i++) {
        file[8 + i] = (unsigned char)(tensors >> (8 * i));
        file[16 + i] = (unsigned char)(key_count >> (8 * i));
    }
    test_write(test_path("bad.gguf"), file, 24 + extra);
}

static void test_headers(void **state)
{
    (void)state;
    write_counts(3, 0, UINT64_C(1) << 32, 0);
    expect("keys", OFL_ERROR_FORMAT, "metadata keys");
    write_counts(3, UINT64_C(1) << 63, 0, 0);
    expect("tensors", OFL_ERROR_FORMAT, "tensors");
    write_counts(3, 3, 0, 48);
    expect("one tensor too many", OFL_ERROR_FORMAT, "3 tensors");
    write_counts(1, 0, 0, 0);
    expect("version 1", OFL_ERROR_UNSUPPORTED, "version 1");
    write_counts(4, 0, 0, 0);
    expect("version 4", OFL_ERROR_UNSUPPORTED, "version 4");
    write_counts(3u << 24, 0, 0, 0);
    expect("swapped", OFL_ERROR_UNSUPPORTED, "big-endian");
    test_write(test_path("bad.gguf"), "GGUF\3\0\0", 7);
    expect("7 bytes", OFL_ERROR_FORMAT, "it is 7 bytes");
    test_write(test_path("bad.gguf"), "GG", 2);
    expect("2 bytes", OFL_ERROR_FORMAT, "too short");
    ofl_model *model = NULL;
    assert_status(ofl_model_open(test_path("none.gguf"), &model), OFL_ERROR_NOT_FOUND);
    assert_status(ofl_model_open("/dev/null", &model), OFL_ERROR_IO);
    assert_status(ofl_model_open("", &model), OFL_ERROR_ARGUMENT);
}

static void test_strings(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_C(0x40000000), 26, UINT64_C(1) << 63};
    for (size_t i = 0; i < OFL_COUNT_OF(lengths); i++) {
        write_counts(3, 0, 1, 0); /* a key that long in 25 bytes after its length */
        size_t bytes = 24;
        unsigned char file[64] = {0};
        char *head = test_read(test_path("bad.gguf"), NULL);
        memcpy(file, head, bytes);
        free(head);
        for (unsigned b = 0; b < 8; b++) file[bytes++] = (unsigned char)(lengths[i] >> (8 * b));
        test_write(test_path("bad.gguf"), file, bytes + 25);
        expect("key length", OFL_ERROR_FORMAT, "metadata key 0");
        gguf_writer writer;
        keys(&writer);
        gguf_key(&writer, "text", GGUF_STRING);
        gguf_raw_u64(&writer, lengths[i], 8);
        gguf_raw(&writer, "short", 5);
        expect_written(&writer, "string length", OFL_ERROR_FORMAT, "text");
    }
    gguf_writer writer;
    keys(&writer);
    gguf_key_u32(&writer, "llama.block_count", 1);
    expect_written(&writer, "key twice", OFL_ERROR_FORMAT, "twice");
    keys(&writer);
    gguf_key_u32(&writer, "", 1);
    expect_written(&writer, "empty key", OFL_ERROR_FORMAT, "0 bytes long");
    keys(&writer);
    gguf_key(&writer, "odd", 13);
    gguf_raw_u64(&writer, 0, 8);
    expect_written(&writer, "value type", OFL_ERROR_FORMAT, "odd");
}

static void test_arrays(void **state)
{
    (void)state;
    gguf_writer writer;
    keys(&writer);
    gguf_key(&writer, "deep", GGUF_ARRAY);
    for (int i = 0; i < 100000; i++) {
        gguf_raw_u64(&writer, GGUF_ARRAY, 4);
        gguf_raw_u64(&writer, 1, 8);
    }
    gguf_raw_u64(&writer, GGUF_U8, 4);
    gguf_raw_u64(&writer, 0, 8);
    expect_written(&writer, "nesting", OFL_ERROR_FORMAT, "deep");
    static const uint64_t counts[] = {UINT64_MAX, (UINT64_C(1) << 30) + 1, UINT64_C(1) << 61, 1000};
    for (size_t i = 0; i < OFL_COUNT_OF(counts); i++) {
        keys(&writer);
        gguf_key(&writer, "array", GGUF_ARRAY);
        gguf_raw_u64(&writer, GGUF_U64, 4);
        gguf_raw_u64(&writer, counts[i], 8);
        expect_written(&writer, "array count", OFL_ERROR_FORMAT, "array");
    }
}

static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t value;
        unsigned bytes;
    } cases[] = {{GGUF_U32, 0, 4},        {GGUF_U32, 12, 4},         {GGUF_U32, 24, 4}, {GGUF_U32, 4, 4}, {GGUF_U32, 1u << 30, 4},
                 {GGUF_U32, 1u << 31, 4}, {GGUF_I32, 0xffffffe0, 4}, {GGUF_U64, 32, 8}, {GGUF_U16, 32, 2}};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        gguf_writer writer;
        keys(&writer);
        gguf_key(&writer, "general.alignment", cases[i].type);
        gguf_raw_u64(&writer, cases[i].value, cases[i].bytes);
        expect_written(&writer, "alignment", OFL_ERROR_FORMAT, "general.alignment");
    }
    gguf_writer writer;
    keys(&writer);
    gguf_key_string(&writer, "general.alignment", "32");
    expect_written(&writer, "alignment", OFL_ERROR_FORMAT, "general.alignment");
    keys(&writer);
    gguf_key_u32(&writer, "general.alignment", 64);
    writer.alignment = 64;
    gguf_tensor(&writer, "a.weight", 0, 1, (const uint64_t[]){4}, NULL, 16);
    gguf_tensor(&writer, "b.weight", 0, 1, (const uint64_t[]){4}, NULL, 16);
    gguf_save(&writer, test_path("bad.gguf"));
    gguf_end(&writer);
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(test_path("bad.gguf"), &model));
    ofl_model_destroy(model);
}

/* A whole file cut at every byte: never opened, never a crash, and the full one opens. */
static void test_every_cut(void **state)
{
    (void)state;
    gguf_writer writer;
    keys(&writer);
    gguf_key_u32_array(&writer, "llama.attention.head_count_kv", (const uint32_t[]){2}, 1);
    gguf_tensor(&writer, "token_embd.weight", 0, 2, (const uint64_t[]){16, 2}, NULL, 128);
    gguf_tensor(&writer, "blk.0.attn_q.weight", 8, 2, (const uint64_t[]){32, 2}, NULL, 68);
    size_t bytes;
    unsigned char *file = gguf_bytes(&writer, &bytes);
    ofl_model *model = NULL;
    for (size_t cut = 0; cut < bytes; cut++) {
        test_write(test_path("cut.gguf"), file, cut);
        assert_status(ofl_model_open(test_path("cut.gguf"), &model), OFL_ERROR_FORMAT);
        assert_non_null(strstr(ofl_error_message(), "cut.gguf"));
    }
    test_write(test_path("cut.gguf"), file, bytes);
    assert_ok(ofl_model_open(test_path("cut.gguf"), &model));
    ofl_model_destroy(model);
    free(file);
    gguf_end(&writer);
}

/* Random damage: any status, no crash (the sanitizers watch). */
static void test_damage(void **state)
{
    (void)state;
    gguf_writer writer;
    keys(&writer);
    gguf_key_u32_array(&writer, "llama.attention.head_count_kv", (const uint32_t[]){2}, 1);
    gguf_key_string_array(&writer, "tokenizer.ggml.tokens", (const char *const[]){"a", "bc"}, 2);
    gguf_tensor(&writer, "token_embd.weight", 0, 2, (const uint64_t[]){16, 2}, NULL, 128);
    size_t bytes;
    unsigned char *file = gguf_bytes(&writer, &bytes);
    uint64_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        size_t at = (size_t)(test_random(&seed) % bytes);
        unsigned char before = file[at];
        file[at] = (unsigned char)test_random(&seed);
        test_write(test_path("damage.gguf"), file, bytes);
        ofl_model *model = NULL;
        (void)ofl_model_open(test_path("damage.gguf"), &model);
        ofl_model_destroy(model);
        file[at] = before;
    }
    free(file);
    gguf_end(&writer);
}

static void test_heads(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 7, 64};
    gguf_writer writer;
    for (size_t i = 0; i < OFL_COUNT_OF(wrong); i++) {
        gguf_start(&writer);
        gguf_key_string(&writer, "general.architecture", "llama");
        gguf_key_u32(&writer, "llama.block_count", 1);
        gguf_key_u32(&writer, "llama.embedding_length", 4096);
        gguf_key_u32(&writer, "llama.attention.head_count", 32);
        gguf_key_u32(&writer, "llama.attention.head_count_kv", wrong[i]);
        gguf_tensor(&writer, "token_embd.weight", 0, 1, (const uint64_t[]){4}, NULL, 16);
        expect_written(&writer, "KV heads", OFL_ERROR_FORMAT, "head_count_kv");
    }
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "llama");
    gguf_key_u32(&writer, "llama.block_count", 1);
    gguf_key_u32(&writer, "llama.embedding_length", 4096);
    gguf_key_u32(&writer, "llama.attention.head_count", 0);
    gguf_tensor(&writer, "token_embd.weight", 0, 1, (const uint64_t[]){4}, NULL, 16);
    expect_written(&writer, "no heads", OFL_ERROR_FORMAT, "head_count");
    keys(&writer);
    gguf_key_u32_array(&writer, "llama.attention.head_count_kv", (const uint32_t[]){2, 2}, 2);
    gguf_tensor(&writer, "token_embd.weight", 0, 1, (const uint64_t[]){4}, NULL, 16);
    expect_written(&writer, "array too long", OFL_ERROR_FORMAT, "2 elements for 1 layers");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tensors),   cmocka_unit_test(test_second_tensor), cmocka_unit_test(test_headers),
    cmocka_unit_test(test_strings),   cmocka_unit_test(test_arrays),        cmocka_unit_test(test_alignment),
    cmocka_unit_test(test_every_cut), cmocka_unit_test(test_damage),        cmocka_unit_test(test_heads),
};
TEST_MAIN(tests)

#include "support/gguf_writer.h"
#include "support/token_golden.h"

#define TOKENS 16

typedef struct gguf_case {
    const char *model, *pre;
    const char *tokens[TOKENS], *merges[8];
    int32_t types[TOKENS]; /* type 0 everywhere: the file has no list of types */
    float scores[TOKENS];
    bool scored, no_merges;
    int eos; /* 0: none */
    int types_short;
} gguf_case;

static size_t count_texts(const char *const *texts, size_t room)
{
    size_t count = 0;
    while (count < room && texts[count] != NULL) count++;
    return count;
}

static void add_numbers(gguf_writer *w, const char *key, uint32_t type, const void *values, size_t count)
{
    gguf_key(w, key, GGUF_ARRAY);
    gguf_raw_u64(w, type, 4);
    gguf_raw_u64(w, count, 8);
    gguf_raw(w, values, 4 * count);
}

/* The least that opens as a model. */
static void add_model(gguf_writer *w)
{
    static const char *const blocks[] = {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"};
    const uint64_t dims[2] = {4, 4}, table[2] = {4, TOKENS};
    gguf_key_string(w, "general.architecture", "llama");
    gguf_key_u32(w, "llama.block_count", 1);
    gguf_key_u32(w, "llama.embedding_length", 4);
    gguf_key_u32(w, "llama.context_length", 64);
    gguf_key_u32(w, "llama.feed_forward_length", 4);
    gguf_key_u32(w, "llama.attention.head_count", 2);
    gguf_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_tensor(w, "token_embd.weight", 0, 2, table, NULL, 16 * TOKENS);
    gguf_tensor(w, "output_norm.weight", 0, 1, dims, NULL, 16);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        char name[64];
        bool norm = strstr(blocks[i], "norm") != NULL;
        (void)snprintf(name, sizeof name, "blk.0.%s.weight", blocks[i]);
        gguf_tensor(w, name, 0, norm ? 1 : 2, dims, NULL, norm ? 16 : 64);
    }
}

static ofl_model *gguf_model(const gguf_case *c)
{
    gguf_writer w;
    ofl_model *model = NULL;
    size_t count = count_texts(c->tokens, TOKENS), typed = 0;
    gguf_start(&w);
    add_model(&w);
    if (c->model != NULL) gguf_key_string(&w, "tokenizer.ggml.model", c->model);
    if (c->pre != NULL) gguf_key_string(&w, "tokenizer.ggml.pre", c->pre);
    if (count != 0) gguf_key_string_array(&w, "tokenizer.ggml.tokens", c->tokens, count);
    for (size_t i = 0; i < count; i++) typed += c->types[i] != 0;
    if (typed != 0) add_numbers(&w, "tokenizer.ggml.token_type", GGUF_I32, c->types, count - (size_t)c->types_short);
    if (c->scored) add_numbers(&w, "tokenizer.ggml.scores", GGUF_F32, c->scores, count);
    if (!c->no_merges) gguf_key_string_array(&w, "tokenizer.ggml.merges", c->merges, count_texts(c->merges, 8));
    if (c->eos != 0) gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)c->eos);
    gguf_save(&w, test_path("case.gguf"));
    gguf_end(&w);
    assert_ok(ofl_model_open(test_path("case.gguf"), &model));
    return model;
}

static void assert_tokens(tokenizer *t, const char *text, size_t count, const int32_t *wanted)
{
    token_list list = {0};
    golden_encode(t, text, false, &list);
    if (list.count != count) fail_msg("\"%s\": %zu tokens, not %zu", text, list.count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(list.ids[i], wanted[i]);
    tokens_free(&list);
}
#define ASSERT_TOKENS(t, text, ...) assert_tokens(t, text, sizeof((const int32_t[]){__VA_ARGS__}) / 4, (const int32_t[]){__VA_ARGS__})

/* Merges go by score, the leftmost of equals first; what has no token is spelt in bytes; "</s>" and "<0x41>" in a text are plain. */
static void test_score_merged_gguf(void **state)
{
    (void)state;
    static const gguf_case c = {.model = "llama",
                                .tokens = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "ab", "ba", "\u2581a", "aba", "s", "</", ">", "</s"},
                                .types = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                .scores = {0, 0, 0, 0, 0, -9, -9, -9, -1, -1, -5, -7, -9, -9, -9, -2},
                                .scored = true,
                                .no_merges = true,
                                .eos = 2};
    ofl_model *model = gguf_model(&c);
    tokenizer *t = NULL;
    size_t bytes;
    assert_app_ok(tokenizer_open(model, &t));
    ofl_model_destroy(model);
    ASSERT_TOKENS(t, "a", 10);
    ASSERT_TOKENS(t, "abab", 5, 8, 8);
    ASSERT_TOKENS(t, "bab", 5, 9, 7);
    ASSERT_TOKENS(t, "baba", 5, 9, 9);
    ASSERT_TOKENS(t, "b a", 5, 7, 10);
    ASSERT_TOKENS(t, "\u00e9", 5, 3, 4);
    ASSERT_TOKENS(t, "\u00e8", 5, 0); /* no byte token for its second byte */
    assert_int_equal(tokenizer_begin(t), 1);
    assert_true(tokenizer_is_end(t, 2));
    assert_memory_equal(tokenizer_bytes(t, 10, &bytes), " a", 2);
    assert_int_equal(bytes, 2);
    assert_memory_equal(tokenizer_bytes(t, 3, &bytes), "\xC3", 1);
    assert_int_equal(bytes, 1);
    token_list list = {0};
    golden_encode(t, "</s>", false, &list);
    for (size_t i = 0; i < list.count; i++) assert_int_not_equal(list.ids[i], 2);
    golden_encode(t, "a</s>a", true, &list); /* a space before each piece of text */
    assert_int_equal(list.count, 3);
    assert_int_equal(list.ids[1], 2);
    assert_int_equal(list.ids[2], 10);
    tokens_free(&list);
    tokenizer_close(t);
}

/* The token that text[from…to) is, or -1. */
static int32_t token_of(const gguf_case *c, const char *text, size_t from, size_t to)
{
    for (int32_t i = 0; i < TOKENS; i++) {
        if (strlen(c->tokens[i]) == to - from && memcmp(c->tokens[i], text + from, to - from) == 0) return i;
    }
    return -1;
}

/* The rule of score merging, done the slow way: piece i is text[cuts[i]…cuts[i + 1]). */
static size_t merge_slowly(const gguf_case *c, const char *text, int32_t *ids)
{
    size_t cuts[64], count = strlen(text), best;
    for (size_t i = 0; i <= count; i++) cuts[i] = i;
    do {
        float score = 0;
        best = count;
        for (size_t i = 0; i + 1 < count; i++) {
            int32_t id = token_of(c, text, cuts[i], cuts[i + 2]);
            if (id < 0 || (best != count && c->scores[id] <= score)) continue;
            best = i;
            score = c->scores[id];
        }
        if (best == count) break;
        memmove(&cuts[best + 1], &cuts[best + 2], (count - best - 1) * sizeof cuts[0]);
        count--;
    } while (count > 1);
    for (size_t i = 0; i < count; i++) ids[i] = token_of(c, text, cuts[i], cuts[i + 1]);
    return count;
}

static void test_score_merging_equals_the_slow_way(void **state)
{
    (void)state;
    gguf_case c = {.model = "llama",
                   .tokens = {"a", "b", "aa", "ab", "ba", "bb", "aba", "bab", "aab", "abab", "bbb", "aaaa", "abba", "babab", "aabaab", "bbbb"},
                   .scored = true,
                   .no_merges = true};
    uint64_t random = 31;
    for (int round = 0; round < 60; round++) {
        tokenizer *t = NULL;
        for (size_t i = 0; i < TOKENS; i++) c.scores[i] = (float)(test_random(&random) % 6);
        ofl_model *model = gguf_model(&c);
        assert_app_ok(tokenizer_open(model, &t));
        ofl_model_destroy(model);
        t->prefix = PREFIX_NEVER;
        for (int word = 0; word < 40; word++) {
            char text[61];
            int32_t wanted[64];
            size_t bytes = 1 + test_random(&random) % 60;
            for (size_t i = 0; i < bytes; i++) text[i] = test_random(&random) % 2 ? 'a' : 'b';
            text[bytes] = 0;
            size_t count = merge_slowly(&c, text, wanted);
            assert_tokens(t, text, count, wanted);
        }
        tokenizer_close(t);
    }
}

static void test_byte_level_gguf(void **state)
{
    (void)state;
    static const gguf_case c = {.model = "gpt2",
                                .pre = "gpt-2",
                                .tokens = {"<|endoftext|>", "a", "b", "\u0120", "ab", "\u0120a", "\u00c3", "\u00a9", "\u00c3\u00a9", "<tag>", "<|odd|>", "[PAD11]"},
                                .types = {3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 5},
                                .merges = {"\u0120 a", "a b", "\u00c3 \u00a9", "a x"},
                                .eos = 4};
    ofl_model *model = gguf_model(&c);
    tokenizer *t = NULL;
    size_t bytes;
    assert_app_ok(tokenizer_open(model, &t));
    ofl_model_destroy(model);
    ASSERT_TOKENS(t, "ab ab", 1, 2, 5, 2); /* "ab" is the end token and so comes out of no text */
    ASSERT_TOKENS(t, "\u00e9b", 8, 2);
    ASSERT_TOKENS(t, "a?b", 1, 2); /* a byte that the vocabulary does not have */
    ASSERT_TOKENS(t, "a<tag>b", 1, 9, 2);
    ASSERT_TOKENS(t, "a<|odd|>b", 1, 2);
    assert_memory_equal(tokenizer_bytes(t, 8, &bytes), "\u00e9", 2);
    assert_int_equal(tokenizer_size(t), 11);
    assert_true(tokenizer_is_end(t, 0) && tokenizer_is_end(t, 4));
    assert_int_equal(tokenizer_begin(t), -1);
    tokenizer_close(t);
}

static void test_broken_gguf_tokenizers_are_refused(void **state)
{
    (void)state;
    static const struct {
        gguf_case c;
        ofl_status status;
        const char *part;
    } cases[] = {
        {{.model = "gpt2", .pre = "gpt-2"}, OFL_ERROR_UNSUPPORTED, "tokenizer.ggml.tokens"},
        {{.pre = "gpt-2", .tokens = {"a"}}, OFL_ERROR_UNSUPPORTED, "tokenizer.ggml.model"},
        {{.model = "bert", .tokens = {"a"}}, OFL_ERROR_UNSUPPORTED, "bert"},
        {{.model = "gpt2", .tokens = {"a"}}, OFL_ERROR_UNSUPPORTED, "tokenizer.ggml.pre"},
        {{.model = "gpt2", .pre = "default", .tokens = {"a"}}, OFL_ERROR_UNSUPPORTED, "\"default\""},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .no_merges = true}, OFL_ERROR_FORMAT, "merges"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .merges = {"ab"}}, OFL_ERROR_FORMAT, "merges"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .merges = {"x y"}}, OFL_ERROR_FORMAT, "merges"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .eos = 2}, OFL_ERROR_FORMAT, "eos_token_id"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .types = {1, 7}}, OFL_ERROR_FORMAT, "token_type"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .types = {1, 1}, .types_short = 1}, OFL_ERROR_FORMAT, "token_type"},
        {{.model = "llama", .tokens = {"a", "b"}}, OFL_ERROR_FORMAT, "scores"},
        {{.model = "llama", .tokens = {"a", "b"}, .types = {1, 6}, .scored = true}, OFL_ERROR_FORMAT, "byte token"},
        {{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b"}, .types = {5, 5}}, OFL_ERROR_FORMAT, "empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tokenizer *t = NULL;
        ofl_model *model = gguf_model(&cases[i].c);
        assert_app_fails(tokenizer_open(model, &t), cases[i].status, cases[i].part);
        assert_null(t);
        ofl_model_destroy(model);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_score_merged_gguf),
    cmocka_unit_test(test_score_merging_equals_the_slow_way),
    cmocka_unit_test(test_byte_level_gguf),
    cmocka_unit_test(test_broken_gguf_tokenizers_are_refused),
};
TEST_MAIN(tests)

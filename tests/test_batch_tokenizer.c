#include "support/token_golden.h"

#include <sys/stat.h>

#include "common/utf8.h"

static void test_ids_equal_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "qwen2", "prepend", "metaspace", "gemma"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[40];
        (void)snprintf(file, sizeof file, "%s.ids.json", names[i]);
        tokenizer *t = golden_tokenizer(names[i]);
        cJSON *ids = golden_json(file);
        assert_golden_ids(t, ids, names[i]);
        assert_golden_ids(t, ids, names[i]); /* from the cache */
        cJSON_Delete(ids);
        tokenizer_close(t);
    }
}

static size_t random_text(uint64_t *random, char *text, size_t characters)
{
    static const uint32_t likely[] = {' ', 'e', 'a', '\n', '1', 0xE9, 0x301, 0x65E5, 0x1F600, '<', '|', '\'', '\t', 0x430};
    size_t bytes = 0;
    for (size_t i = 0; i < characters; i++) {
        uint64_t kind = test_random(random) % 8;
        uint32_t code = (uint32_t)(kind < 4   ? likely[test_random(random) % 14]
                                   : kind < 7 ? test_random(random) % 0x500
                                              : test_random(random) % 0x110000);
        if (code >= 0xD800 && code < 0xE000) code = 'x';
        bytes += utf8_write(code, text + bytes);
    }
    return bytes;
}

/* Whatever the text: decoding gives the same bytes back, and no control token comes out of it. */
static void assert_round_trips(tokenizer *t, const char *text, size_t bytes, size_t skipped)
{
    token_list list = {0};
    size_t back_bytes;
    assert_app_ok(tokenizer_encode(t, text, bytes, false, &list));
    for (size_t i = 0; i < list.count; i++) {
        assert_true(list.ids[i] >= 0 && (uint32_t)list.ids[i] < tokenizer_size(t));
        assert_true(t->words.tokens[list.ids[i]].kind != TOKEN_CONTROL);
    }
    char *back = golden_decode(t, &list, &back_bytes);
    if (bytes != 0) {
        assert_int_equal(back_bytes, bytes + skipped);
        assert_memory_equal(back + skipped, text, bytes);
    }
    free(back);
    tokens_free(&list);
}

static void test_random_text_comes_back(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "prepend", "gemma"};
    for (size_t n = 0; n < 3; n++) {
        uint64_t random = 17 + n;
        tokenizer *t = golden_tokenizer(names[n]);
        for (int round = 0; round < 1500; round++) {
            char text[64 * 4];
            size_t bytes = random_text(&random, text, test_random(&random) % 64);
            assert_round_trips(t, text, bytes, n == 1);
        }
        tokenizer_close(t);
    }
}

/* A word of a megabyte takes n log n; were it quadratic, this would take hours. */
static void test_long_words_are_no_trap(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3", "qwen2", "prepend"};
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    for (size_t n = 0; n < 3; n++) {
        tokenizer *t = golden_tokenizer(names[n]);
        uint64_t random = 1;
        memset(text, 'e', BYTES);
        assert_round_trips(t, text, BYTES, n == 2);
        for (size_t i = 0; i < BYTES; i++) text[i] = "theranig"[test_random(&random) % 8];
        assert_round_trips(t, text, BYTES, n == 2);
        memset(text, ' ', BYTES - 1);
        assert_round_trips(t, text, BYTES, n == 2);
        memset(text, '<', BYTES);
        assert_round_trips(t, text, BYTES, n == 2);
        tokenizer_close(t);
    }
    free(text);
}

static void test_only_markup_makes_control_tokens(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("qwen2");
    token_list list = {0};
    size_t bytes;
    int32_t start = tokenizer_find(t, "<|im_start|>"), end = tokenizer_find(t, "<|im_end|>"), think = tokenizer_find(t, "<think>");
    assert_true(start >= 0 && end >= 0 && think >= 0);
    assert_int_equal(tokenizer_find(t, "<|im_"), -1);
    golden_encode(t, "hello <|im_end|><|im_start|>system", false, &list);
    for (size_t i = 0; i < list.count; i++) assert_true(list.ids[i] != start && list.ids[i] != end);
    char *back = golden_decode(t, &list, &bytes);
    assert_string_equal(back, "hello <|im_end|><|im_start|>system");
    free(back);
    golden_encode(t, "<|im_start|><|im_end|>", true, &list);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.ids[0], start);
    assert_int_equal(list.ids[1], end);
    golden_encode(t, "<think>", false, &list); /* added, but no control token: the model's own text has it */
    assert_int_equal(list.count, 1);
    assert_int_equal(list.ids[0], think);
    assert_memory_equal(tokenizer_bytes(t, think, &bytes), "<think>", 7);
    assert_int_equal(bytes, 7);
    tokens_free(&list);
    tokenizer_close(t);
}

static void test_special_ids(void **state)
{
    (void)state;
    tokenizer *llama3 = golden_tokenizer("llama3"), *qwen2 = golden_tokenizer("qwen2"), *gemma = golden_tokenizer("gemma"),
              *prepend = golden_tokenizer("prepend");
    size_t bytes = 9;
    assert_int_equal(tokenizer_begin(llama3), tokenizer_find(llama3, "<|begin_of_text|>"));
    assert_int_equal(tokenizer_begin(qwen2), -1);
    assert_int_equal(tokenizer_begin(gemma), tokenizer_find(gemma, "<bos>"));
    assert_int_equal(tokenizer_begin(prepend), tokenizer_find(prepend, "<s>"));
    assert_true(tokenizer_is_end(llama3, tokenizer_find(llama3, "<|eot_id|>")));
    assert_true(tokenizer_is_end(llama3, tokenizer_find(llama3, "</s>")));
    assert_true(tokenizer_is_end(llama3, tokenizer_find(llama3, "<|end_of_text|>")));
    assert_true(tokenizer_is_end(qwen2, tokenizer_find(qwen2, "<|im_end|>")));
    assert_true(tokenizer_is_end(qwen2, tokenizer_find(qwen2, "<|endoftext|>")));
    assert_true(tokenizer_is_end(gemma, tokenizer_find(gemma, "<end_of_turn>")));
    assert_true(tokenizer_is_end(gemma, tokenizer_find(gemma, "<eos>")));
    assert_false(tokenizer_is_end(gemma, tokenizer_begin(gemma)));
    assert_false(tokenizer_is_end(gemma, -1));
    assert_string_equal(tokenizer_bytes(gemma, tokenizer_begin(gemma), &bytes), "");
    assert_int_equal(bytes, 0);
    assert_string_equal(tokenizer_bytes(gemma, -1, &bytes), "");
    assert_string_equal(tokenizer_bytes(gemma, INT32_MAX, &bytes), "");
    assert_null(tokenizer_template(gemma));
    tokenizer_close(llama3);
    tokenizer_close(qwen2);
    tokenizer_close(gemma);
    tokenizer_close(prepend);
}

static void test_invalid_text_is_refused(void **state)
{
    (void)state;
    tokenizer *t = golden_tokenizer("llama3");
    token_list list = {0};
    assert_app_ok(tokens_push(&list, 5));
    assert_app_fails(tokenizer_encode(t, "ab\xFF", 3, false, &list), OFL_ERROR_ARGUMENT, "UTF-8");
    assert_app_fails(tokenizer_encode(t, "\xE2\x82", 2, true, &list), OFL_ERROR_ARGUMENT, "UTF-8");
    assert_int_equal(list.count, 1);
    tokens_free(&list);
    tokenizer_close(t);
}

/* --- folders --- */

static tokenizer *open_texts(const char *name, const char *json, const char *config, const char *generation, ofl_status wanted,
                             const char *part)
{
    char path[300];
    const char *folder = test_path(name);
    tokenizer *t = NULL;
    (void)snprintf(path, sizeof path, "mkdir -p %s && rm -f %s/*", folder, folder);
    assert_int_equal(test_run(path, NULL), 0);
    const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    const char *const texts[] = {json, config, generation};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (texts[i] != NULL) test_write(path, texts[i], strlen(texts[i]));
    }
    ofl_status got = tokenizer_open_folder(folder, &t);
    if (got != wanted) fail_msg("%s: %s: %s", json, ofl_status_name(got), app_error());
    if (wanted == OFL_OK) return t;
    assert_null(t);
    if (strstr(app_error(), part) == NULL) fail_msg("%s: says: %s", json, app_error());
    return NULL;
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void test_broken_folders_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        ofl_status status;
        const char *part;
    } cases[] = {
        {NULL, OFL_ERROR_NOT_FOUND, "tokenizer.json"},
        {"", OFL_ERROR_FORMAT, "not a JSON object"},
        {"[]", OFL_ERROR_FORMAT, "not a JSON object"},
        {"{} x", OFL_ERROR_FORMAT, "not a JSON object"},
        {"{", OFL_ERROR_FORMAT, "not a JSON object"},
        {"{}", OFL_ERROR_FORMAT, "model"},
        {"{\"a\":\"\xFF\"}", OFL_ERROR_FORMAT, "UTF-8"},
        {"{\"a\":\"\\u0000\"}", OFL_ERROR_FORMAT, "NUL"},
        {"{\"model\":{\"type\":\"Unigram\"}}", OFL_ERROR_UNSUPPORTED, "Unigram"},
        {"{\"model\":{\"vocab\":{}}}", OFL_ERROR_FORMAT, "type"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", OFL_ERROR_FORMAT, "empty"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", OFL_ERROR_FORMAT, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", OFL_ERROR_FORMAT, "valid id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", OFL_ERROR_FORMAT, "valid id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e18},\"merges\":[]}}", OFL_ERROR_FORMAT, "valid id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9999999},\"merges\":[]}}", OFL_ERROR_FORMAT, "valid id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", OFL_ERROR_FORMAT, "valid id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", OFL_ERROR_FORMAT, "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", OFL_ERROR_FORMAT, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", OFL_ERROR_FORMAT, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a \"]}}", OFL_ERROR_FORMAT, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"\"]}}", OFL_ERROR_FORMAT, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", OFL_ERROR_FORMAT, "pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\",\"c\"]]}}", OFL_ERROR_FORMAT, "pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", OFL_ERROR_FORMAT, "pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"x y\"]}}", OFL_ERROR_FORMAT, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", OFL_ERROR_UNSUPPORTED, "dropout"},
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}}", OFL_ERROR_UNSUPPORTED,
         "suffix"},
        {"{\"normalizer\":{\"type\":\"Lowercase\"}," MODEL "}", OFL_ERROR_UNSUPPORTED, "Lowercase"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}," MODEL "}", OFL_ERROR_UNSUPPORTED,
         "Replace"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":7}," MODEL "}", OFL_ERROR_FORMAT, "normalizers"},
        {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," MODEL "}", OFL_ERROR_UNSUPPORTED, "BertPreTokenizer"},
        {"{\"pre_tokenizer\":{}," MODEL "}", OFL_ERROR_FORMAT, "type"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(\"}}," MODEL "}",
         OFL_ERROR_UNSUPPORTED, "pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"[a&&b]\"}}," MODEL "}",
         OFL_ERROR_UNSUPPORTED, "&&"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"\"}}," MODEL "}", OFL_ERROR_FORMAT,
         "pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Torn\",\"pattern\":{\"Regex\":\"a\"}}," MODEL "}", OFL_ERROR_UNSUPPORTED,
         "Torn"},
        {"{\"added_tokens\":7," MODEL "}", OFL_ERROR_FORMAT, "added_tokens"},
        {"{\"added_tokens\":[{\"id\":3}]," MODEL "}", OFL_ERROR_FORMAT, "added_tokens"},
        {"{\"added_tokens\":[{\"content\":\"x\",\"id\":99999999}]," MODEL "}", OFL_ERROR_FORMAT, "added_tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        (void)open_texts("broken", cases[i].json, NULL, NULL, cases[i].status, cases[i].part);
    (void)open_texts("broken", "{" MODEL "}", "[", NULL, OFL_ERROR_FORMAT, "tokenizer_config.json");
    (void)open_texts("broken", "{" MODEL "}", NULL, "{\"eos_token_id\":[1,\"x\"]}", OFL_ERROR_FORMAT, "eos_token_id");
    char deep[4000] = "{\"normalizer\":";
    for (int i = 0; i < 60; i++) strcat(deep, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 60; i++) strcat(deep, "]}");
    strcat(deep, "}");
    (void)open_texts("broken", deep, NULL, NULL, OFL_ERROR_FORMAT, "model");
}

/* Any damage to the file gives an error or a tokenizer that works, never a crash. */
static void test_damaged_files_do_no_harm(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2/tokenizer.json", "prepend/tokenizer.json"};
    static const char *const bits[] = {"null", "{}", "[]", "-1", "\"\"", "1e9", "\"x y\"", "true"};
    uint64_t random = 29;
    int opened = 0, refused = 0;
    for (int round = 0; round < 400; round++) {
        tokenizer *t = NULL;
        size_t bytes;
        char *text = test_read(golden_path(names[round % 2]), &bytes);
        for (int damage = 0; damage < 1 + round % 3; damage++) {
            size_t at = test_random(&random) % bytes;
            const char *bit = bits[test_random(&random) % 8];
            const char *value = memchr(text + at, ':', bytes - at);
            if (round % 4 == 3) text[at] = (char)test_random(&random);
            else if (value != NULL && value + 8 < text + bytes) memcpy(text + (value - text) + 1, bit, strlen(bit));
        }
        if (round % 8 == 5) bytes = test_random(&random) % bytes;
        if (round == 0) assert_int_equal(mkdir(test_path("damaged"), 0700), 0);
        test_write(test_path("damaged/tokenizer.json"), text, bytes);
        if (tokenizer_open_folder(test_path("damaged"), &t) == OFL_OK) {
            token_list list = {0};
            assert_app_ok(tokenizer_encode(t, "The night \n\u00e9 123", 17, false, &list));
            for (size_t i = 0; i < list.count; i++) (void)tokenizer_bytes(t, list.ids[i], &bytes);
            tokens_free(&list);
            opened++;
        } else {
            assert_true(app_error()[0] != 0);
            refused++;
        }
        tokenizer_close(t);
        free(text);
    }
    assert_true(opened > 20 && refused > 100);
}

static void test_settings_beside_the_tokenizer(void **state)
{
    (void)state;
    tokenizer *t = open_texts(
        "settings",
        "{\"added_tokens\":[{\"content\":\"<e>\",\"id\":3,\"special\":true},{\"content\":\"<b>\",\"id\":7,\"special\":true}]," MODEL "}",
        "{\"add_bos_token\":true,\"bos_token\":\"<b>\",\"eos_token\":{\"content\":\"<e>\"},"
        "\"chat_template\":[{\"name\":\"tools\",\"template\":\"x\"},{\"name\":\"default\",\"template\":\"y\"}]}",
        "{\"eos_token_id\":[2,99999]}", OFL_OK, NULL);
    size_t bytes;
    assert_int_equal(tokenizer_begin(t), 7);
    assert_int_equal(tokenizer_size(t), 8);
    assert_true(tokenizer_is_end(t, 3) && tokenizer_is_end(t, 2));
    assert_false(tokenizer_is_end(t, 7));
    assert_string_equal(tokenizer_template(t), "y");
    assert_string_equal(tokenizer_bytes(t, 5, &bytes), "");
    tokenizer_close(t);
}

static void test_settings_of_the_model(void **state)
{
    (void)state;
    token_list list = {0};
#define UNREACHED "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"<u>\":4},\"merges\":[]}}"
    tokenizer *whole =
        open_texts("whole", "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"unk_token\":\"<u>\",\"fuse_unk\":true," UNREACHED,
                   NULL, NULL, OFL_OK, NULL);
    tokenizer *merged = open_texts("merged", "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\"," UNREACHED, NULL, NULL, OFL_OK, NULL);
    golden_encode(whole, "ab", false, &list);
    assert_int_equal(list.count, 1);
    golden_encode(merged, "ab", false, &list);
    assert_int_equal(list.count, 2);
    golden_encode(whole, "xyazz", false, &list); /* a run of unknown characters is one */
    assert_int_equal(list.count, 3);
    golden_encode(merged, "xyazz", false, &list);
    assert_int_equal(list.count, 5);
    assert_int_equal(list.ids[0], 4);
    tokenizer_close(whole);
    tokenizer_close(merged);
    tokenizer *first = golden_tokenizer("metaspace");
    golden_encode(first, "e</s>e", true, &list); /* only what starts the text gets a space */
    size_t bytes;
    char *text = golden_decode(first, &list, &bytes);
    assert_string_equal(text, " ee");
    free(text);
    tokens_free(&list);
    tokenizer_close(first);
}

/* The pieces of a text by each way of splitting at letters. */
static ofl_status note_word(void *context, const char *word, size_t bytes)
{
    strncat(strcat(context, "["), word, bytes);
    strcat(context, "]");
    return OFL_OK;
}

static void test_ways_of_splitting(void **state)
{
    (void)state;
    static const struct {
        split_behaviour behaviour;
        bool invert;
        const char *wanted;
    } cases[] = {
        {SPLIT_ISOLATED, false, "[12][a][b][, ][c][.]"},    {SPLIT_REMOVED, false, "[12][, ][.]"},
        {SPLIT_MERGED_PREVIOUS, false, "[12a][b][, c][.]"}, {SPLIT_MERGED_NEXT, false, "[12][a][b, ][c.]"},
        {SPLIT_CONTIGUOUS, false, "[12][ab][, ][c][.]"},    {SPLIT_REMOVED, true, "[a][b][c]"},
        {SPLIT_CONTIGUOUS, true, "[12][ab][, ][c][.]"},     {SPLIT_MERGED_PREVIOUS, true, "[12][a][b, ][c.]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pretokenizer *p;
        char got[100] = "";
        assert_app_ok(pretokenizer_create(&p));
        assert_app_ok(pretokenizer_add(p, "\\p{L}", 5, cases[i].behaviour, cases[i].invert));
        assert_app_ok(pretokenizer_split(p, "12ab, c.", 8, note_word, got));
        assert_string_equal(got, cases[i].wanted);
        pretokenizer_free(p);
    }
}

static void test_named_pretokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *wanted;
    } cases[] = {
        {"gpt-2", "I'll see 123 dogs  now", "[I]['ll][ see][ 123][ dogs][ ][ now]"},
        {"gpt-2", "a\u3000\u3000b\u00a0c", "[a][\u3000][\u3000][b][\u00a0][c]"},
        {"smollm", "at 123.", "[at][ ][1][2][3][.]"},
        {"llama-bpe", "HE'LL pay 12345\n\n x", "[HE]['LL][ pay][ ][123][45][\n\n][ x]"},
        {"qwen2", "HE'LL 123", "[HE]['LL][ ][1][2][3]"},
        {"qwen35", "e\u0301te\u0301 1", "[e\u0301te\u0301][ ][1]"},
        {"gpt-4o", "camelCase it's 1234", "[camel][Case][ it's][ ][123][4]"},
        {"tekken", "camelCase it's 12", "[camel][Case][ it]['s][ ][1][2]"},
        {"deepseek-v3", "x=1234 \u65e5\u672c!ok", "[x][=][123][4][ ][\u65e5\u672c][!ok]"},
        {"gemma4", "a b\n\nc", "[a b][\n\n][c]"},
    };
    pretokenizer *p;
    pretokenizer_traits traits;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[200] = "";
        assert_app_ok(pretokenizer_create(&p));
        assert_app_ok(pretokenizer_add_named(p, cases[i].name, &traits));
        assert_app_ok(pretokenizer_split(p, cases[i].text, strlen(cases[i].text), note_word, got));
        assert_string_equal(got, cases[i].wanted);
        pretokenizer_free(p);
    }
    assert_app_ok(pretokenizer_create(&p));
    static const char *const unknown[] = {"default", "", "gpt", "pt-2", "|", "gpt-2|mpt", "kimi-k2"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_app_fails(pretokenizer_add_named(p, unknown[i], &traits), OFL_ERROR_UNSUPPORTED, unknown[i]);
    pretokenizer_free(p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ids_equal_the_reference),
    cmocka_unit_test(test_random_text_comes_back),
    cmocka_unit_test(test_long_words_are_no_trap),
    cmocka_unit_test(test_only_markup_makes_control_tokens),
    cmocka_unit_test(test_special_ids),
    cmocka_unit_test(test_invalid_text_is_refused),
    cmocka_unit_test(test_broken_folders_are_refused),
    cmocka_unit_test(test_settings_beside_the_tokenizer),
    cmocka_unit_test(test_ways_of_splitting),
    cmocka_unit_test(test_named_pretokenizers),
    cmocka_unit_test(test_damaged_files_do_no_harm),
    cmocka_unit_test(test_settings_of_the_model),
};
TEST_MAIN(tests)

/* Lines of the input: what is read, what becomes an error line, and which. */
#include "support/stub_model.h"

#include "batch/record.h"

/* ---- single lines ---- */

typedef struct case_of { const char *line, *code, *param, *says; } case_of;

#define CHAT(params)                                                                                                                               \
    "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/"                                                                                 \
    "completions\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" params "}}"
#define BODY(body) "{\"custom_id\":\"c\",\"url\":\"/v1/chat/completions\",\"body\":" body "}"

static const case_of bad[] = {
    {"42", "invalid_request", "", "no object"},
    {"null", "invalid_request", "", "no object"},
    {"[]", "invalid_request", "", "no object"},
    {"\"x\"", "invalid_request", "", "no object"},
    {"{\"a\":", "invalid_json", "", "no JSON"},
    {"{} {}", "invalid_json", "", "no JSON"},
    {"{\"custom_id\":\"\xFF\"}", "invalid_json", "", "UTF-8"},
    {"{\"custom_id\":\"\xED\xA0\x80\"}", "invalid_json", "", "UTF-8"},
    {"{\"custom_id\":\"a\\u0000b\"}", "invalid_json", "", "NUL"},
    {"{\"custom_id\":\"a\\u12\"}", "invalid_json", "", "hex"},
    {"{\"custom_id\":7}", "invalid_request", "custom_id", "string"},
    {"{\"url\":\"/v1/chat/completions\",\"body\":{}}", "invalid_request", "custom_id", "string"},
    {"{\"custom_id\":\"c\",\"body\":{}}", "invalid_url", "url", "/v1/completions"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/embeddings\",\"body\":{}}", "invalid_url", "url", "/v1/embeddings"},
    {"{\"custom_id\":\"c\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_request", "method", "POST"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\"}", "invalid_request", "body", "object"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_request", "body.prompt", "string"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[1,2]}}", "invalid_request", "body.prompt", "string"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[\"a\",\"b\"]}}", "invalid_request", "body.prompt", "one prompt"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"suffix\":\"b\"}}", "unsupported_parameter", "body.suffix",
     "suffix"},
    {BODY("{}"), "invalid_request", "body.messages", "message"},
    {BODY("{\"messages\":[]}"), "invalid_request", "body.messages", "message"},
    {BODY("{\"messages\":[7]}"), "invalid_request", "body.messages[0]", "object"},
    {BODY("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"a\"}]}"), "invalid_request", "body.messages[1]", "role"},
    {BODY("{\"messages\":[{\"role\":\"user\"}]}"), "invalid_request", "body.messages[0]", "content"},
    {BODY("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}"), "unsupported_parameter",
     "body.messages[0]", "image_url"},
    {BODY("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]}"), "unsupported_parameter", "body.messages[0]",
     "tool_calls"},
    {CHAT(",\"stream\":true"), "unsupported_parameter", "body.stream", "stream"},
    {CHAT(",\"logprobs\":3"), "invalid_request", "body.logprobs", "true or false"},
    {CHAT(",\"logprobs\":true,\"top_logprobs\":21"), "invalid_request", "body.top_logprobs", "0 to 20"},
    {CHAT(",\"logprobs\":true,\"top_logprobs\":1.5"), "invalid_request", "body.top_logprobs", "whole"},
    {CHAT(",\"top_logprobs\":2"), "invalid_request", "body.top_logprobs", "true beside it"},
    {CHAT(",\"logprobs\":false,\"top_logprobs\":2"), "invalid_request", "body.top_logprobs", "true beside it"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"logprobs\":6}}", "invalid_request", "body.logprobs",
     "0 to 5"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"logprobs\":true}}", "invalid_request", "body.logprobs",
     "0 to 5"},
    {"{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"top_logprobs\":2}}", "unsupported_parameter",
     "body.top_logprobs", "logprobs"},
    {CHAT(",\"tools\":[{}]"), "unsupported_parameter", "body.tools", "tools"},
    {CHAT(",\"response_format\":{\"type\":\"json_object\"}"), "unsupported_parameter", "body.response_format", "text"},
    {CHAT(",\"frequency_penalty\":0.5"), "unsupported_parameter", "body.frequency_penalty", "only 0"},
    {CHAT(",\"logit_bias\":{\"5\":1}"), "unsupported_parameter", "body.logit_bias", "logit_bias"},
    {CHAT(",\"some_new_thing\":3"), "unsupported_parameter", "body.some_new_thing", "some_new_thing"},
    {CHAT(",\"n\":5"), "invalid_request", "body.n", "1 to 4"},
    {CHAT(",\"n\":0"), "invalid_request", "body.n", "1 to 4"},
    {CHAT(",\"n\":\"2\""), "invalid_request", "body.n", "1 to 4"},
    {CHAT(",\"max_tokens\":0"), "invalid_request", "body.max_tokens", "at least 1"},
    {CHAT(",\"max_tokens\":1.5"), "invalid_request", "body.max_tokens", "whole"},
    {CHAT(",\"max_tokens\":1e30"), "invalid_request", "body.max_tokens", "whole"},
    {CHAT(",\"temperature\":-1"), "invalid_request", "body.temperature", "0"},
    {CHAT(",\"temperature\":\"0\""), "invalid_request", "body.temperature", "number"},
    {CHAT(",\"temperature\":0,\"temperature\":1"), "invalid_request", "body.temperature", "not two"},
    {CHAT(",\"top_p\":0"), "invalid_request", "body.top_p", "above 0"},
    {CHAT(",\"top_p\":1.01"), "invalid_request", "body.top_p", "up to 1"},
    {CHAT(",\"top_k\":-2"), "invalid_request", "body.top_k", "whole"},
    {CHAT(",\"seed\":1e300"), "invalid_request", "body.seed", "2^53"},
    {CHAT(",\"stop\":\"\""), "invalid_request", "body.stop", "empty"},
    {CHAT(",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]"), "invalid_request", "body.stop", "four"},
    {CHAT(",\"stop\":[1]"), "invalid_request", "body.stop", "string"},
    {CHAT(",\"model\":7"), "invalid_request", "body.model", "string"},
};

static void test_bad_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        request r;
        line_error error;
        size_t bytes = strlen(bad[i].line);
        char *exact = malloc(bytes + 1); /* so that a sanitizer sees a read beyond it */
        memcpy(exact, bad[i].line, bytes + 1);
        if (request_parse(exact, bytes, &r, &error)) fail_msg("accepted: %s", bad[i].line);
        if (strcmp(error.code, bad[i].code) != 0 || strcmp(error.param, bad[i].param) != 0 || strstr(error.message, bad[i].says) == NULL)
            fail_msg("%s: %s, %s, %s", bad[i].line, error.code, error.param, error.message);
        request_free(&r);
        free(exact);
    }
}

static void test_good_lines(void **state)
{
    (void)state;
    static const char *const good[] = {
        CHAT(""),
        CHAT(",\"stream\":false,\"tools\":[],\"tool_choice\":\"none\",\"logit_bias\":{},\"n\":1,\"logprobs\":null,\"some_new_thing\":null,\"user\":"
             "\"u\""),
        CHAT(",\"response_format\":{\"type\":\"text\"},\"presence_penalty\":0,\"top_logprobs\":0,\"metadata\":{\"a\":\"b\"},\"top_k\":-1,\"seed\":-"
             "5,\"stop\":[]"),
        BODY("{\"messages\":[{\"role\":\"system\",\"content\":\"a\",\"name\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
             "\"b\"},{\"type\":\"text\",\"text\":\"c\"}]}]}"),
        "{\"custom_id\":\"\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[\"a\"],\"echo\":false,\"best_of\":1}}  ",
        "{\"custom_id\":\"\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\",\"top_logprobs\":0,\"logprobs\":5}}",
        CHAT(",\"top_logprobs\":20,\"logprobs\":true"),
        CHAT(",\"logprobs\":false,\"top_logprobs\":0"),
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        request r;
        line_error error;
        size_t bytes = strlen(good[i]);
        char *exact = malloc(bytes);
        memcpy(exact, good[i], bytes);
        if (!request_parse(exact, bytes, &r, &error)) fail_msg("%s: %s", good[i], error.message);
        if (i == 3) assert_string_equal(r.messages[1].content, "bc");
        request_free(&r);
        free(exact);
    }
}

static void test_any_bytes(void **state)
{
    (void)state;
    uint64_t seed = 77;
    const char *base = CHAT(",\"max_tokens\":5,\"stop\":[\"a\\ud83d\\ude00\"]");
    size_t bytes = strlen(base);
    for (int round = 0; round < 20000; round++) {
        char *text = malloc(bytes);
        memcpy(text, base, bytes);
        size_t cut = test_random(&seed) % (bytes + 1);
        for (int i = 0; i < 3; i++) text[test_random(&seed) % bytes] = (char)test_random(&seed);
        request r;
        line_error error;
        (void)request_parse(text, round % 2 ? cut : bytes, &r, &error);
        request_free(&r);
        free(text);
    }
}

/* ---- whole files ---- */

static uint32_t count_lines(const char *text, const char *with)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, with)) != NULL; at++) count++;
    return count;
}

static char *run_file(const char *text, size_t bytes, int wanted)
{
    static int number;
    char in[40], out[40];
    (void)snprintf(in, sizeof in, "lines-in%d.jsonl", ++number);
    (void)snprintf(out, sizeof out, "lines-out%d.jsonl", number);
    const char *to = test_path(out);
    backend model = stub_backend();
    run_settings settings = stub_settings(test_path(in), to);
    int got = -1;
    test_write(settings.input, text, bytes);
    ofl_status status = batch_run(&settings, &model, &got);
    if (status != OFL_OK) fail_msg("%s", app_error());
    assert_int_equal(got, wanted);
    return test_read(to, NULL);
}

#define GOOD(id) "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"#ok\"}}"

static void test_one_file_of_everything(void **state)
{
    (void)state;
    static const char file[] = "\xEF\xBB\xBF" GOOD("first") "\n\n   \t\n42\nnull\n[]\n\"x\"\n{\"a\":\n\xFF\n" GOOD("second") "\r\n" GOOD("last");
    char *out = run_file(file, sizeof file - 1, EXIT_ERROR_LINES);
    assert_int_equal(count_lines(out, "\n"), 9);
    assert_int_equal(count_lines(out, "\"text\":\"ok\""), 3);
    for (int line = 4; line <= 9; line++) {
        char wanted[24];
        (void)snprintf(wanted, sizeof wanted, "\"line\":%d}", line);
        assert_int_equal(count_lines(out, wanted), 1);
    }
    free(out);
}

static void test_only_lf_ends_a_line(void **state)
{
    (void)state;
    /* U+2028, U+0085 and a lone CR are white space elsewhere. */
    static const char file[] = "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"#\xE2\x80\xA8\xC2\x85x\"}}\n" GOOD("b") "\r" "\n";
    char *out = run_file(file, sizeof file - 1, EXIT_DONE);
    assert_int_equal(count_lines(out, "\n"), 2);
    assert_non_null(strstr(out, "\"text\":\"\xE2\x80\xA8\xC2\x85x\""));
    free(out);
}

static void test_huge_and_deep_lines(void **state)
{
    (void)state;
    size_t huge = (size_t)JSONL_MAX_LINE_BYTES + 3000000, deep = 100000, at = 0;
    char *file = malloc(huge + deep + 4096);
    at += (size_t)sprintf(file + at, "%s\n", GOOD("a"));
    memset(file + at, 'x', huge);
    at += huge;
    file[at++] = '\n';
    memset(file + at, '[', deep);
    at += deep;
    at += (size_t)sprintf(file + at, "\n%s\n", GOOD("b"));
    char *out = run_file(file, at, EXIT_ERROR_LINES);
    assert_int_equal(count_lines(out, "\n"), 4);
    assert_int_equal(count_lines(out, "line_too_long"), 1);
    assert_int_equal(count_lines(out, "nested too deep"), 1);
    assert_int_equal(count_lines(out, "\"text\":\"ok\""), 2);
    free(out);
    free(file);
}

static void test_nothing_to_do_is_an_error(void **state)
{
    (void)state;
    backend model = stub_backend();
    run_settings settings = stub_settings(test_path("empty.jsonl"), test_path("empty-out.jsonl"));
    int got;
    test_write(settings.input, "\n \n", 3);
    assert_int_equal(batch_run(&settings, &model, &got), OFL_ERROR_ARGUMENT);
    settings.input = test_path("not-there.jsonl");
    assert_int_equal(batch_run(&settings, &model, &got), OFL_ERROR_IO);
    settings.input = test_folder();
    assert_int_equal(batch_run(&settings, &model, &got), OFL_ERROR_IO);
}

static void test_records_escape_everything(void **state)
{
    (void)state;
    char text[200];
    size_t bytes = 0;
    for (int c = 0; c < 0x80; c++) text[bytes++] = (char)c;
    record_maker maker = {HASH128_START, "a \"model\"\n", "f", 5, {NULL, NULL}};
    record_choice choice = {text, bytes, "stop", 3, NULL};
    buffer out = {0};
    assert_int_equal(record_answer(&maker, "id\t\"", 1, true, 2, &choice, 1, &out), OFL_OK);
    assert_int_equal(out.data[out.bytes - 1], '\n');
    assert_null(memchr(out.data, '\n', out.bytes - 1));
    assert_non_null(memmem(out.data, out.bytes, "\\u0000", 6));
    cJSON *nul_free = NULL;
    char *found = memmem(out.data, out.bytes, "\\u0000", 6);
    memcpy(found, "\\u0001", 6); /* cJSON cannot hold a NUL */
    nul_free = cJSON_ParseWithLength(out.data, out.bytes);
    assert_non_null(nul_free);
    assert_string_equal(cJSON_GetObjectItem(nul_free, "custom_id")->valuestring, "id\t\"");
    cJSON_Delete(nul_free);
    buffer_free(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_bad_lines),
    cmocka_unit_test(test_good_lines),
    cmocka_unit_test(test_any_bytes),
    cmocka_unit_test(test_one_file_of_everything),
    cmocka_unit_test(test_only_lf_ends_a_line),
    cmocka_unit_test(test_huge_and_deep_lines),
    cmocka_unit_test(test_nothing_to_do_is_an_error),
    cmocka_unit_test(test_records_escape_everything),
};
TEST_MAIN(tests)

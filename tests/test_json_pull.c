#include "support/support.h"

#include "base/json_pull.h"

static ofl_status walk(const char *text, size_t bytes, unsigned *events_out)
{
    ofl_reader reader;
    ofl_json_pull pull;
    test_write(test_path("j"), text, bytes);
    assert_ok(ofl_reader_open(&reader, test_path("j")));
    ofl_json_pull_start(&pull, &reader);
    ofl_json_event event = OFL_JSON_NULL;
    ofl_status status = OFL_OK;
    *events_out = 0;
    while (status == OFL_OK && event != OFL_JSON_END) {
        status = ofl_json_pull_next(&pull, &event);
        ++*events_out;
    }
    ofl_json_pull_end(&pull);
    ofl_reader_close(&reader);
    return status;
}

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned events;
    } cases[] = {{"{}", 3},
                 {" [ ] ", 3},
                 {"1", 2},
                 {"-0.5e+3", 2},
                 {"{\"a\":[1,true,null,\"x\"],\"b\":{}}", 13},
                 {"\"\\ud83d\\ude00\\n\\/\"", 2},
                 {"[[],[[]]]", 9}};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        unsigned events = 0;
        assert_ok(walk(cases[i].text, strlen(cases[i].text), &events));
        assert_int_equal(events, cases[i].events);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const cases[] = {"",
                                        " ",
                                        "{",
                                        "[",
                                        "[1",
                                        "[1,",
                                        "[1,]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "[1 2]",
                                        "[}",
                                        "{]",
                                        "01",
                                        "-",
                                        "1.",
                                        "1e",
                                        ".5",
                                        "+1",
                                        "tru",
                                        "nulL",
                                        "Infinity",
                                        "NaN",
                                        "\"",
                                        "\"\\x\"",
                                        "\"\\u12g4\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"a\nb\"",
                                        "\"\xff\"",
                                        "\"\xc0\x80\"",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xf4\x90\x80\x80\"",
                                        "\"\xe2\x82\"",
                                        "1 1",
                                        "{} x",
                                        "[1}",
                                        "11111111111111111111111111111111111111111111111111111111111111111111"};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        unsigned events;
        if (walk(cases[i], strlen(cases[i]), &events) != OFL_ERROR_FORMAT) fail_msg("accepted: %s", cases[i]);
    }
    char deep[200000];
    memset(deep, '[', 100000);
    unsigned events;
    assert_status(walk(deep, 100000, &events), OFL_ERROR_FORMAT);
    assert_int_equal(events, OFL_JSON_MAX_DEPTH + 1);
    memset(deep, '[', OFL_JSON_MAX_DEPTH);
    memset(deep + OFL_JSON_MAX_DEPTH, ']', OFL_JSON_MAX_DEPTH);
    assert_ok(walk(deep, 2 * OFL_JSON_MAX_DEPTH, &events));
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] = "{\"big\":18446744073709551615,\"long\":\"0123\",\"skip\":{\"a\":[1,{\"b\":\"c\"}]},\"list\":[3000000000,0],"
                               "\"pi\":3.25,\"none\":[]}";
    ofl_reader reader;
    ofl_json_pull pull;
    test_write(test_path("j"), text, sizeof text - 1);
    assert_ok(ofl_reader_open(&reader, test_path("j")));
    ofl_json_pull_start(&pull, &reader);
    uint64_t value = 0, list[2];
    uint32_t count = 0;
    double pi = 0;
    bool more = false;
    const char *string;
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_OBJECT, "all"));
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_string_equal(ofl_json_pull_text(&pull), "big");
    assert_ok(ofl_json_pull_u64(&pull, "big", &value));
    assert_true(value == UINT64_MAX);
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_ok(ofl_json_pull_string(&pull, "long", &string));
    assert_string_equal(string, "0123");
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_ok(ofl_json_pull_skip(&pull));
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_string_equal(ofl_json_pull_text(&pull), "list");
    assert_ok(ofl_json_pull_u64_array(&pull, "list", list, 2, &count));
    assert_int_equal(count, 2);
    assert_true(list[0] == UINT64_C(3000000000));
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_ok(ofl_json_pull_double(&pull, "pi", &pi));
    assert_true(pi == 3.25);
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_ok(ofl_json_pull_u64_array(&pull, "none", list, 2, &count));
    assert_int_equal(count, 0);
    assert_ok(ofl_json_pull_key(&pull, &more));
    assert_false(more);
    ofl_json_pull_end(&pull);
    ofl_reader_close(&reader);
}

static void test_numbers_that_are_not_whole(void **state)
{
    (void)state;
    static const char *const cases[] = {"18446744073709551616", "-1", "3.0", "1e3", "\"3\"", "null", "[1,2,3]"};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_reader reader;
        ofl_json_pull pull;
        uint64_t value = 7;
        test_write(test_path("j"), cases[i], strlen(cases[i]));
        assert_ok(ofl_reader_open(&reader, test_path("j")));
        ofl_json_pull_start(&pull, &reader);
        assert_status(ofl_json_pull_u64(&pull, "n", &value), OFL_ERROR_FORMAT);
        assert_int_equal(value, 7);
        ofl_json_pull_end(&pull);
        ofl_reader_close(&reader);
    }
}

/* Strings across the edges of the reader's buffer, and longer than what is kept. */
static void test_long_text(void **state)
{
    (void)state;
    size_t bytes = 200000;
    char *text = malloc(bytes + 64);
    ofl_reader reader;
    ofl_json_pull pull;
    ofl_json_event event;
    memset(text, ' ', bytes);
    memcpy(text + 65530, "[\"\\u00e4bcdefgh\", 1234567]", 26);
    test_write(test_path("j"), text, bytes);
    assert_ok(ofl_reader_open(&reader, test_path("j")));
    ofl_json_pull_start(&pull, &reader);
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_ARRAY, "a"));
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_STRING, "s"));
    assert_string_equal(ofl_json_pull_text(&pull), "\xc3\xa4"
                                                   "bcdefgh");
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_NUMBER, "n"));
    assert_string_equal(ofl_json_pull_text(&pull), "1234567");
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_ARRAY_END, "e"));
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_END, "e"));
    ofl_json_pull_end(&pull);
    ofl_reader_close(&reader);
    memset(text, 'x', bytes);
    text[0] = text[bytes - 1] = '"';
    test_write(test_path("j"), text, bytes);
    assert_ok(ofl_reader_open(&reader, test_path("j")));
    ofl_json_pull_start(&pull, &reader);
    assert_status(ofl_json_pull_next(&pull, &event), OFL_ERROR_UNSUPPORTED);
    ofl_json_pull_end(&pull);
    ofl_reader_seek(&reader, 0);
    ofl_json_pull_start(&pull, &reader);
    assert_ok(ofl_json_pull_skip(&pull));
    assert_ok(ofl_json_pull_expect(&pull, OFL_JSON_END, "e"));
    ofl_json_pull_end(&pull);
    ofl_reader_close(&reader);
    free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_good),      cmocka_unit_test(test_bad),
    cmocka_unit_test(test_values),    cmocka_unit_test(test_numbers_that_are_not_whole),
    cmocka_unit_test(test_long_text),
};
TEST_MAIN(tests)

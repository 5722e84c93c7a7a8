#include "support/support.h"

#include "batch/answer.h"
#include "common/utf8.h"

typedef struct piece { const char *text; size_t bytes; } piece;
#define PIECE(text) {text, sizeof(text) - 1}

/* Pushes pieces until stopped; asserts the final text. */
static void assert_answer(const char *const *stops, size_t stop_count, const piece *pieces, size_t count, const char *wanted, bool wanted_stop)
{
    answer a;
    size_t stop_bytes[ANSWER_MAX_STOPS] = {0};
    bool stopped = false;
    for (size_t i = 0; i < stop_count; i++) stop_bytes[i] = strlen(stops[i]);
    assert_ok(answer_init(&a, stops, stop_bytes, stop_count));
    for (size_t i = 0; i < count; i++) assert_ok(answer_push(&a, pieces[i].text, pieces[i].bytes, &stopped));
    assert_int_equal(stopped, wanted_stop);
    assert_ok(answer_finish(&a));
    assert_int_equal(a.bytes, strlen(wanted));
    if (a.bytes != 0) assert_memory_equal(a.text, wanted, a.bytes);
    answer_free(&a);
}
#define ASSERT_ANSWER(stops, pieces, wanted, stop) \
    assert_answer(stops, sizeof(stops) / sizeof(stops)[0], pieces, sizeof(pieces) / sizeof(pieces)[0], wanted, stop)

static void test_characters_come_whole(void **state)
{
    (void)state;
    static const piece thumb[] = {PIECE("\xF0"), PIECE("\x9F\x91"), PIECE("\x8D")}, hangul[] = {PIECE("\xED\x95"), PIECE("\x9C")};
    static const piece cut[] = {PIECE("\xF0")}, quote[] = {PIECE("\xE2\x80")}, broken[] = {PIECE("a\x80"), PIECE("\xE2"), PIECE("b")};
    static const piece late[] = {PIECE("ok \xF0\x9F"), PIECE("\x91 x")};
    assert_answer(NULL, 0, thumb, 3, "\xF0\x9F\x91\x8D", false);
    assert_answer(NULL, 0, hangul, 2, "\xED\x95\x9C", false);
    assert_answer(NULL, 0, cut, 1, "\xEF\xBF\xBD", false);
    assert_answer(NULL, 0, quote, 1, "\xEF\xBF\xBD", false);
    assert_answer(NULL, 0, broken, 3, "a\xEF\xBF\xBD\xEF\xBF\xBD" "b", false);
    assert_answer(NULL, 0, late, 2, "ok \xEF\xBF\xBD x", false);
    assert_answer(NULL, 0, cut, 0, "", false);
}

static void test_stop_strings_span_tokens(void **state)
{
    (void)state;
    static const char *const end[] = {"END"}, *const prefix[] = {"ENDING", "END"}, *const inner[] = {"abcd", "c"}, *const same[] = {"bc", "abc"}, *const turned[] = {"abc", "bc"};
    static const char *const twice[] = {"aab"};
    static const piece spanning[] = {PIECE("xE"), PIECE("N"), PIECE("Dy"), PIECE("more")}, partial[] = {PIECE("xE"), PIECE("N")};
    static const piece whole[] = {PIECE("x abcd")}, split[] = {PIECE("x a"), PIECE("b"), PIECE("c"), PIECE("d")};
    static const piece repeated[] = {PIECE("a"), PIECE("a"), PIECE("a"), PIECE("b")}, at_once[] = {PIECE("END")};
    ASSERT_ANSWER(end, spanning, "x", true);
    ASSERT_ANSWER(end, partial, "xEN", false);
    ASSERT_ANSWER(end, at_once, "", true);
    ASSERT_ANSWER(prefix, spanning, "x", true);
    ASSERT_ANSWER(inner, whole, "x ab", true);
    ASSERT_ANSWER(inner, split, "x ab", true);
    ASSERT_ANSWER(same, whole, "x ", true);
    ASSERT_ANSWER(turned, whole, "x ", true);
    ASSERT_ANSWER(twice, repeated, "a", true);
}

static void test_bad_stops_are_refused(void **state)
{
    (void)state;
    answer a;
    const char *stops[5] = {"a", "", "b", "c", "d"};
    size_t bytes[5] = {1, 0, 1, 1, 1};
    assert_status(answer_init(&a, stops, bytes, 2), OFL_ERROR_ARGUMENT);
    assert_status(answer_init(&a, stops, bytes, 5), OFL_ERROR_ARGUMENT);
    assert_ok(answer_init(&a, stops, bytes, 1));
    answer_free(&a);
}

static void test_utf8_edges(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80", "\x80", "\xFF", "\xE2\x82"};
    static const char *const good[] = {"\x7F", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(utf8_valid(bad[i], strlen(bad[i])));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(utf8_valid(good[i], strlen(good[i])));
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        if (code >= 0xD800 && code < 0xE000) continue;
        utf8_char c = utf8_read(text, utf8_write(code, text));
        assert_true(c.whole && c.code == code);
    }
    const char *text = "\xE3\x80\x80 \t x y\xC2\xA0\n";
    size_t count = strlen(text);
    utf8_trim(&text, &count);
    assert_int_equal(count, 3);
    assert_memory_equal(text, "x y", 3);
    text = " \n";
    count = 2;
    utf8_trim(&text, &count);
    assert_int_equal(count, 0);
}

/* Whatever the bytes and however they are cut into tokens, the finished text is valid UTF-8 and the same. */
static void test_any_bytes_end_valid(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 2000; round++) {
        char bytes[24];
        answer whole, cut;
        bool stopped;
        size_t count = test_random(&random) % sizeof bytes;
        for (size_t i = 0; i < count; i++) bytes[i] = (char)(test_random(&random) % 3 ? 0x80 + test_random(&random) % 128 : test_random(&random) % 128);
        assert_ok(answer_init(&whole, NULL, NULL, 0));
        assert_ok(answer_init(&cut, NULL, NULL, 0));
        assert_ok(answer_push(&whole, bytes, count, &stopped));
        for (size_t i = 0; i < count; i++) assert_ok(answer_push(&cut, bytes + i, 1, &stopped));
        assert_ok(answer_finish(&whole));
        assert_ok(answer_finish(&cut));
        assert_true(utf8_valid(whole.text, whole.bytes));
        if (whole.bytes != 0) assert_null(memchr(whole.text, '\0', whole.bytes));
        assert_int_equal(whole.bytes, cut.bytes);
        if (cut.bytes != 0) assert_memory_equal(whole.text, cut.text, cut.bytes);
        answer_free(&whole);
        answer_free(&cut);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_characters_come_whole), cmocka_unit_test(test_stop_strings_span_tokens), cmocka_unit_test(test_bad_stops_are_refused),
    cmocka_unit_test(test_utf8_edges),            cmocka_unit_test(test_any_bytes_end_valid),
};
TEST_MAIN(tests)

#include "support/support.h"

#include "base/sha256.h"

static void published_digests(void **state)
{
    (void)state;
    char hex[65];
    ofl_sha256_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ofl_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    ofl_sha256_hex(two_blocks, strlen(two_blocks), hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_million_letters_in_odd_pieces(void **state)
{
    (void)state;
    char piece[977], hex[65];
    ofl_sha256 hash;
    memset(piece, 'a', sizeof piece);
    ofl_sha256_init(&hash);
    for (size_t left = 1000000; left > 0;) {
        size_t take = left % sizeof piece + 1 < left ? left % sizeof piece + 1 : left;
        ofl_sha256_add(&hash, piece, take);
        left -= take;
    }
    ofl_sha256_finish_hex(&hash, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void fields_end_where_they_end(void **state)
{
    (void)state;
    char one[OFL_SHA256_HEX], two[OFL_SHA256_HEX];
    ofl_sha256 hash;
    ofl_sha256_init(&hash);
    ofl_sha256_add_text(&hash, "ab");
    ofl_sha256_add_text(&hash, "c");
    ofl_sha256_finish_hex(&hash, one);
    ofl_sha256_init(&hash);
    ofl_sha256_add_text(&hash, "a");
    ofl_sha256_add_text(&hash, "bc");
    ofl_sha256_finish_hex(&hash, two);
    assert_string_not_equal(one, two);
    ofl_sha256_hex("\2\0\0\0\0\0\0\0ab\1\0\0\0\0\0\0\0c", 19, two);
    assert_string_equal(one, two);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(published_digests),
    cmocka_unit_test(a_million_letters_in_odd_pieces),
    cmocka_unit_test(fields_end_where_they_end),
};

TEST_MAIN(tests)

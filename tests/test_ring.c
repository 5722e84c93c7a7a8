#include "support/support.h"

#include "plan/ring.h"

static void test_pieces_in_order(void **state)
{
    (void)state;
    ofl_ring ring;
    uint64_t offset, a, b, c;
    assert_ok(ofl_ring_init(&ring, 1024, 4));
    assert_true(ofl_ring_take(&ring, 512, &offset, &a));
    assert_int_equal(offset, 0);
    assert_true(ofl_ring_take(&ring, 256, &offset, &b));
    assert_int_equal(offset, 512);
    assert_false(ofl_ring_take(&ring, 512, &offset, &c)); /* 256 left at the end, nothing free at the start */
    ofl_ring_give(&ring, a);
    assert_true(ofl_ring_take(&ring, 512, &offset, &c)); /* starts again at 0, the end stays empty */
    assert_int_equal(offset, 0);
    assert_int_equal(ring.high_water, 1024);
    uint64_t d;
    assert_false(ofl_ring_take(&ring, 256, &offset, &d));
    ofl_ring_give(&ring, b);
    assert_true(ofl_ring_take(&ring, 256, &offset, &d)); /* b's room and the skipped end, but contiguous after c */
    assert_int_equal(offset, 512);
    ofl_ring_clear(&ring);
}

static void test_space_is_freed_in_the_order_it_was_taken(void **state)
{
    (void)state;
    ofl_ring ring;
    uint64_t offset, a, b, c;
    assert_ok(ofl_ring_init(&ring, 512, 4));
    assert_true(ofl_ring_take(&ring, 256, &offset, &a));
    assert_true(ofl_ring_take(&ring, 256, &offset, &b));
    ofl_ring_give(&ring, b);
    assert_false(ofl_ring_take(&ring, 256, &offset, &c));
    ofl_ring_give(&ring, a);
    ofl_ring_give(&ring, a); /* unknown by now: nothing happens */
    assert_true(ofl_ring_take(&ring, 512, &offset, &c));
    assert_int_equal(offset, 0);
    ofl_ring_clear(&ring);
}

static void test_limits(void **state)
{
    (void)state;
    ofl_ring ring;
    uint64_t offset = 7, piece = 7, first;
    assert_ok(ofl_ring_init(&ring, 1024, 1));
    assert_false(ofl_ring_take(&ring, 1280, &offset, &piece));
    assert_int_equal(offset, 7);
    assert_true(ofl_ring_take(&ring, 256, &offset, &first));
    assert_false(ofl_ring_take(&ring, 256, &offset, &piece)); /* only one piece at once */
    ofl_ring_clear(&ring);
    (void)ofl_fault_allocation(1);
    assert_status(ofl_ring_init(&ring, 1024, 1), OFL_ERROR_HOST_MEMORY);
}

typedef struct live { uint64_t offset, bytes, piece; } live;

static void check_apart(const live *all, uint32_t count, uint64_t ring_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(all[i].bytes <= ring_bytes && all[i].offset <= ring_bytes - all[i].bytes);
        for (uint32_t k = 0; k < i; k++)
            assert_true(all[i].offset + all[i].bytes <= all[k].offset || all[k].offset + all[k].bytes <= all[i].offset);
    }
}

/* Whatever is taken and given in whatever order: no two live pieces overlap, and one piece always fits an empty ring. */
static void test_random_use(void **state)
{
    (void)state;
    enum { MOST = 6 };
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = seed, ring_bytes = 256 * (1 + test_random(&random) % 40);
        ofl_ring ring;
        live all[MOST];
        uint32_t count = 0;
        assert_ok(ofl_ring_init(&ring, ring_bytes, MOST));
        for (int i = 0; i < 400; i++) {
            live one = {.bytes = 256 * (1 + test_random(&random) % (ring_bytes / 256))};
            if (test_random(&random) % 2 && ofl_ring_take(&ring, one.bytes, &one.offset, &one.piece)) {
                assert_true(count < MOST);
                all[count++] = one;
                check_apart(all, count, ring_bytes);
            } else if (count > 0) {
                uint32_t out = (uint32_t)(test_random(&random) % count);
                ofl_ring_give(&ring, all[out].piece);
                all[out] = all[--count];
            } else {
                assert_true(ofl_ring_take(&ring, one.bytes, &one.offset, &one.piece));
                all[count++] = one;
            }
        }
        ofl_ring_clear(&ring);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pieces_in_order),
    cmocka_unit_test(test_space_is_freed_in_the_order_it_was_taken),
    cmocka_unit_test(test_limits),
    cmocka_unit_test(test_random_use),
};
TEST_MAIN(tests)

#include "support/support.h"

#include <math.h>

#include "batch/sampler.h"

#define VOCABULARY 64
static char scratch[VOCABULARY * 8];

static int32_t pick(sampler *s, const float *logits, uint32_t usable)
{
    sampling how = sampler_next(s);
    sampler_advance(s);
    return sampling_pick(&how, logits, usable, scratch);
}

static void test_greedy_takes_the_lowest_id_among_equals(void **state)
{
    (void)state;
    sampler s;
    sampler_init(&s, 0, 1, 0, 1);
    const float logits[] = {1, 3, 3, 2, 9};
    assert_int_equal(pick(&s, logits, 4), 1);
    assert_int_equal(pick(&s, logits, 5), 4);
    assert_int_equal(pick(&s, logits, 1), 0);
}

static void test_broken_logits_do_no_harm(void **state)
{
    (void)state;
    const float sets[][5] = {{NAN, NAN, NAN, NAN, NAN},
                             {NAN, 1, NAN, 3, 2},
                             {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
                             {1, INFINITY, 2, INFINITY, NAN},
                             {-INFINITY, NAN, 3e38f, -3e38f, 0},
                             {0, -INFINITY, NAN, 1, INFINITY}};
    const double temperatures[] = {0, 1e-30, 1, 1e30, NAN, INFINITY}, shares[] = {0, 0.5, 1, NAN};
    const uint32_t limits[] = {0, 1, 3, 100};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        for (size_t t = 0; t < 6; t++) {
            for (size_t n = 0; n < 16; n++) {
                sampler s;
                sampler_init(&s, temperatures[t], shares[n % 4], limits[n / 4], i);
                for (int round = 0; round < 20; round++) {
                    int32_t id = pick(&s, sets[i], 5);
                    if (i == 1) assert_true(id == 1 || id == 3 || id == 4);
                    else if (i == 4) assert_true(id == 0 || id == 2 || id == 3 || id == 4);
                    else assert_int_equal(id, -1); /* the largest is none */
                }
            }
        }
    }
}

/* Shares of many draws; a fair draw strays from p by a few times sqrt(p / draws). */
static void count_draws(double temperature, double top_p, uint32_t top_k, const float *logits, uint32_t usable, double *shares)
{
    enum { DRAWS = 40000 };
    sampler s;
    sampler_init(&s, temperature, top_p, top_k, 42);
    for (uint32_t i = 0; i < usable; i++) shares[i] = 0;
    for (int i = 0; i < DRAWS; i++) shares[pick(&s, logits, usable)] += 1.0 / DRAWS;
}

static void assert_near(double got, double wanted) { assert_true(fabs(got - wanted) < 0.015); }

static void test_draws_follow_the_probabilities(void **state)
{
    (void)state;
    double shares[5];
    const float logits[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f), 50};
    count_draws(1, 1, 0, logits, 4, shares);
    assert_near(shares[0], 0.1);
    assert_near(shares[1], 0.4);
    assert_near(shares[2], 0.2);
    assert_near(shares[3], 0.3);
    count_draws(0.5, 1, 0, logits, 4, shares); /* squares: 1 16 4 9 of 30 */
    assert_near(shares[1], 16.0 / 30);
    assert_near(shares[0], 1.0 / 30);
    count_draws(1, 1, 2, logits, 4, shares);
    assert_near(shares[1], 4.0 / 7);
    assert_near(shares[3], 3.0 / 7);
    assert_true(shares[0] == 0 && shares[2] == 0);
    count_draws(1, 0.65, 0, logits, 4, shares); /* 0.4 + 0.3 reach it */
    assert_near(shares[1], 4.0 / 7);
    assert_near(shares[3], 3.0 / 7);
    count_draws(1, 0.55, 2, logits, 4, shares); /* of the two, 0.4 is 4/7 */
    assert_near(shares[1], 1);
    count_draws(1, 0, 0, logits, 4, shares);
    assert_near(shares[1], 1);
    count_draws(1e-9, 1, 0, logits, 4, shares);
    assert_near(shares[1], 1);
}

static void test_ties_at_the_edge_go_to_the_lower_id(void **state)
{
    (void)state;
    double shares[VOCABULARY];
    float logits[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) logits[i] = 1;
    count_draws(1, 1, 2, logits, VOCABULARY, shares);
    assert_near(shares[0] + shares[1], 1);
    count_draws(1, 0.04, 0, logits, VOCABULARY, shares); /* 3 of 64 reach 0.04 */
    assert_near(shares[0] + shares[1] + shares[2], 1);
    assert_near(shares[2], 1.0 / 3);
}

/* A request draws the same whatever is drawn for others in between; another seed draws differently. */
static void test_requests_do_not_disturb_each_other(void **state)
{
    (void)state;
    float logits[VOCABULARY];
    sampler alone, among, other;
    uint64_t random = 3;
    int differing = 0;
    sampler_init(&alone, 0.8, 0.9, 20, 11);
    sampler_init(&among, 0.8, 0.9, 20, 11);
    sampler_init(&other, 0.8, 0.9, 20, 12);
    int32_t wanted[200];
    for (int pass = 0; pass < 2; pass++) {
        random = 3;
        for (int i = 0; i < 200; i++) {
            for (int j = 0; j < VOCABULARY; j++) logits[j] = (float)(test_random(&random) % 1000) / 200;
            if (pass == 0) {
                wanted[i] = pick(&alone, logits, VOCABULARY);
                continue;
            }
            differing += pick(&other, logits, VOCABULARY) != wanted[i];
            assert_int_equal(pick(&among, logits, VOCABULARY), wanted[i]);
        }
    }
    assert_true(differing > 50);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_greedy_takes_the_lowest_id_among_equals), cmocka_unit_test(test_broken_logits_do_no_harm),
    cmocka_unit_test(test_draws_follow_the_probabilities),          cmocka_unit_test(test_ties_at_the_edge_go_to_the_lower_id),
    cmocka_unit_test(test_requests_do_not_disturb_each_other),
};
TEST_MAIN(tests)

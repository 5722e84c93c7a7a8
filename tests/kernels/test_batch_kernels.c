/* The kernels' bodies, compiled for the CPU, against the CPU's back end at random shapes; with threads and workgroups in both orders. */
#include "support/support.h"

#include <math.h>

#include "batch/cpu/expand.h"
#include "common/app_error.h"
#include "kernels/kernel_cases.h"

static kernel_case one;
static uint8_t *before; /* a copy of its memory */

/* Outside of what a kernel may write nothing has changed. */
static void check_untouched(const kernel_case *c)
{
    for (uint32_t i = 0; i < c->output_count; i++) {
        uint64_t at = (uint64_t)((uint8_t *)c->outputs[i].at - c->base);
        memcpy(before + at, c->base + at, c->outputs[i].bytes);
    }
    if (memcmp(before, c->base, c->used) != 0) fail_msg("%s: something else was written", c->name);
}

static void check_family(const char *name)
{
    const case_family *family = case_families;
    while (strcmp(family->name, name) != 0) family++;
    for (uint64_t seed = 1; seed <= family->count; seed++) {
        case_make(&one, family, seed, 0);
        memcpy(before, one.base, one.used);
        case_run(&one, false);
        check_untouched(&one);
        one.check(&one);
        memcpy(before, one.base, one.used);
        case_make(&one, family, seed, 0);
        case_run(&one, true);
        if (memcmp(before, one.base, one.used) != 0) fail_msg("%s: other bits with the threads in another order", one.name);
    }
}

#define FAMILY(name)                                    \
    static void test_##name(void **state)               \
    {                                                   \
        (void)state;                                    \
        check_family(#name);                            \
    }
FAMILY(expand)
FAMILY(embed)
FAMILY(norm)
FAMILY(gate)
FAMILY(add)
FAMILY(attention)
FAMILY(sample)

/* Which types: those of the CPU's back end, no others. */
static void test_known_types(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 128; dtype++) {
        uint32_t elements = ofl_dtype_block_elements((ofl_dtype)dtype);
        kernel_expand_args args = {.dtype = (ofl_dtype)dtype, .elements = elements == 0 ? 1 : elements};
        kernel_launch launch;
        ofl_status status = kernel_prepare_expand(&args, &launch);
        assert_int_equal(status, expand_knows((ofl_dtype)dtype) ? OFL_OK : OFL_ERROR_UNSUPPORTED);
    }
}

static void test_bad_launches(void **state)
{
    (void)state;
    kernel_launch launch;
    assert_int_equal(kernel_prepare_expand(&(kernel_expand_args){.dtype = OFL_DTYPE_Q8_0, .elements = 33}, &launch), OFL_ERROR_ARGUMENT);
    assert_int_equal(kernel_prepare_expand(&(kernel_expand_args){.dtype = OFL_DTYPE_F32, .elements = UINT64_MAX}, &launch),
                     OFL_ERROR_ARGUMENT);
    assert_int_equal(kernel_prepare_gate(&(kernel_gate_args){.rows = UINT32_MAX, .columns = 4096}, &launch), OFL_ERROR_ARGUMENT);
    assert_int_equal(kernel_prepare_sample(&(kernel_sample_args){.rows = 1}, &launch), OFL_ERROR_ARGUMENT);
    kv_cache cache = {.type = OFL_KV_F16, .dim = 65, .heads = 1};
    assert_int_equal(kernel_prepare_attention(&(kernel_attention_args){.heads = 1, .cache = cache}, &launch), OFL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(app_error(), "65"));
    cache.dim = 64;
    cache.heads = 2;
    assert_int_equal(kernel_prepare_attention(&(kernel_attention_args){.heads = 3, .cache = cache}, &launch), OFL_ERROR_ARGUMENT);
    cache.heads = 1;
    assert_int_equal(kernel_prepare_turn(&(kernel_turn_args){.heads = 1, .cache = cache, .rope_dim = 66}, &launch), OFL_ERROR_ARGUMENT);
    assert_int_equal(kernel_prepare_norm(&(kernel_norm_args){.rows = 0}, &launch), OFL_OK);
    assert_int_equal(launch.blocks, 0);
}

static ofl_status fill(kernel_step_limits limits, uint32_t count, const ofl_step_item *items)
{
    static _Alignas(16) uint8_t tables[4096];
    kernel_step_layout layout;
    ofl_step step = {.struct_size = sizeof step, .item_count = count, .items = items};
    ofl_status status = kernel_step_layout_make(&limits, &layout);
    assert_true(layout.bytes <= sizeof tables);
    return status == OFL_OK ? kernel_step_fill(&limits, &layout, &step, tables) : status;
}

static void test_steps_beyond_their_limits(void **state)
{
    (void)state;
    static const uint32_t blocks[] = {0, 1};
    const ofl_step_item two[] = {{.token_count = 5, .block_count = 2, .blocks = blocks, .wants_logits = 1},
                                 {.token_count = 1, .first_position = 17, .block_count = 2, .blocks = blocks, .wants_logits = 1}};
    const kernel_step_limits enough = {.tokens = 6, .sequences = 2, .rows = 2, .blocks = 3, .block_tokens = 16, .heads = 4, .kv_heads = 2};
    assert_int_equal(fill(enough, 2, two), OFL_OK);
    kernel_step_limits less[] = {enough, enough, enough, enough};
    less[0].tokens--;
    less[1].sequences--;
    less[2].rows--;
    less[3].blocks--;
    for (int i = 0; i < 4; i++) assert_int_equal(fill(less[i], 2, two), OFL_ERROR_ARGUMENT);
    ofl_step_item short_of_blocks = two[1];
    short_of_blocks.block_count = 1;
    assert_int_equal(fill(enough, 1, &short_of_blocks), OFL_ERROR_ARGUMENT);
}

/* Contexts of 100 in parts of 32, room for the parts of two: those are cut, the third stays whole. */
static void test_contexts_are_cut_while_there_is_room(void **state)
{
    (void)state;
    static _Alignas(16) uint8_t tables[4096];
    static const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    const kernel_step_limits limits = {.tokens = 3, .sequences = 3, .blocks = 21, .block_tokens = 16, .heads = 4, .kv_heads = 2,
                                       .split_positions = 32, .partial_rows = 2 * 4 * 4 + 15};
    const ofl_step_item item = {.token_count = 1, .first_position = 99, .block_count = 7, .blocks = blocks}, items[] = {item, item, item};
    const ofl_step step = {.struct_size = sizeof step, .item_count = 3, .items = items};
    kernel_step_layout layout;
    assert_int_equal(kernel_step_layout_make(&limits, &layout), OFL_OK);
    assert_true(layout.bytes <= sizeof tables);
    assert_int_equal(kernel_step_fill(&limits, &layout, &step, tables), OFL_OK);
    const kernel_counts *counts = (const void *)(tables + layout.counts);
    const kernel_part *parts = (const void *)(tables + layout.parts);
    assert_int_equal(counts->parts, 4 + 4 + 1);
    assert_int_equal(counts->merges, 2);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(parts[i].partial, 4 * i);
        assert_int_equal(parts[i].from, i % 4 * 32);
        assert_int_equal(parts[i].to, i % 4 == 3 ? 100 : i % 4 * 32 + 32);
    }
    assert_int_equal(parts[8].partial, KERNEL_WHOLE);
    assert_int_equal(parts[8].to, 100);
}

static int open_case(void **state)
{
    (void)state;
    case_open(&one);
    before = malloc(one.size);
    return before == NULL;
}

static int close_case(void **state)
{
    (void)state;
    case_close(&one);
    free(before);
    return 0;
}

/* A draw never falls on an id that is not among the candidates, should sums ever differ in their last place. */
static void test_ties(void **state)
{
    (void)state;
    static const float logits[] = {1, 3, 2, 3, NAN, 3, -1};
    static sample_shared shared;
    body_watch watch = {false, false};
    body_group g = {0, false, &watch};
    const sample_row row = {logits, 7, 3, 1};
    assert_int_equal(tie_at(g, &shared, &row, key_of(3), 1), 1);
    assert_int_equal(tie_at(g, &shared, &row, key_of(3), 3), 5);
    assert_int_equal(tie_at(g, &shared, &row, key_of(3), 4), 5);
    assert_int_equal(draw_ordered(g, &shared, &row, (uint64_t)SAMPLE_ONE * 3 - 1), 5);
    assert_int_equal(draw_ordered(g, &shared, &row, (uint64_t)SAMPLE_ONE * 100), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),    cmocka_unit_test(test_embed),     cmocka_unit_test(test_norm),
        cmocka_unit_test(test_gate),      cmocka_unit_test(test_add),       cmocka_unit_test(test_attention),
        cmocka_unit_test(test_sample),    cmocka_unit_test(test_known_types), cmocka_unit_test(test_bad_launches),
        cmocka_unit_test(test_steps_beyond_their_limits), cmocka_unit_test(test_contexts_are_cut_while_there_is_room),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, open_case, close_case) == 0 ? 0 : 1;
}

/* Which models the forward pass refuses, and whether it says by name what it does not know. */
#include "support/support.h"

#include <stdbool.h>

#include "batch/forward.h"
#include "common/app_error.h"

typedef struct wish { /* one deviation from a model that runs */
    const char *architecture;
    ofl_tensor_role changed, left_out, extra; /* OFL_ROLE_COUNT: none */
    ofl_dtype dtype;                          /* of the changed one */
    uint64_t rows;                            /* of the changed one; 0: as it should be */
    double softcap;
    uint32_t experts, head_dim_v;
    ofl_rope_scaling scaling;
    bool window;
} wish;

static const wish none = {
    .architecture = "llama", .changed = OFL_ROLE_COUNT, .left_out = OFL_ROLE_COUNT, .extra = OFL_ROLE_COUNT, .head_dim_v = 16};
static float numbers[64 * 128];

static void add(ofl_model_builder *builder, const wish *w, ofl_tensor_role role, int32_t block, uint64_t rows, uint64_t columns)
{
    char name[32];
    (void)snprintf(name, sizeof name, "tensor.%d", (int)role);
    if (role == w->left_out) return;
    bool changed = role == w->changed;
    ofl_tensor_source source = {.struct_size = sizeof source,
                                .name = name,
                                .dtype = changed ? w->dtype : OFL_DTYPE_F32,
                                .role = role,
                                .block = block,
                                .n_dims = rows == 0 ? 1 : 2,
                                .dims = {columns, changed && w->rows != 0 ? w->rows : rows},
                                .data = numbers,
                                .tensor_class = role == OFL_ROLE_EMBEDDING ? OFL_CLASS_LOOKUP : OFL_CLASS_DENSE};
    assert_ok(ofl_model_builder_add_tensor(builder, &source));
}

static ofl_model *build(const wish *w)
{
    ofl_model_shape shape = {.struct_size = sizeof shape,
                             .block_count = 1,
                             .hidden_size = 64,
                             .head_count = 4,
                             .head_count_kv = 2,
                             .head_dim_k = 16,
                             .head_dim_v = w->head_dim_v,
                             .ffn_size = 96,
                             .vocab_size = 80,
                             .trained_context_tokens = 64,
                             .norm_epsilon = 1e-5,
                             .rope_dim = 16,
                             .rope_freq_base = 10000,
                             .rope_scaling = w->scaling,
                             .rope_factor = 2,
                             .attention_softcap = w->softcap,
                             .expert_count = w->experts};
    ofl_kv_layer sliding = {
        .struct_size = sizeof sliding, .kind = OFL_KV_SLIDING, .head_count_kv = 2, .k_elements = 32, .v_elements = 32, .window_tokens = 8};
    ofl_model_builder *builder = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("m", w->architecture, &shape, &builder));
    add(builder, w, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, 80, 64);
    add(builder, w, OFL_ROLE_ATTN_NORM, 0, 0, 64);
    add(builder, w, OFL_ROLE_ATTN_Q, 0, 64, 64);
    add(builder, w, OFL_ROLE_ATTN_K, 0, 32, 64);
    add(builder, w, OFL_ROLE_ATTN_V, 0, 32, 64);
    add(builder, w, OFL_ROLE_ATTN_OUTPUT, 0, 64, 64);
    if (w->extra != OFL_ROLE_COUNT) add(builder, w, w->extra, 0, 0, 64);
    add(builder, w, OFL_ROLE_FFN_NORM, 0, 0, 64);
    add(builder, w, OFL_ROLE_FFN_GATE, 0, 96, 64);
    add(builder, w, OFL_ROLE_FFN_UP, 0, 96, 64);
    add(builder, w, OFL_ROLE_FFN_DOWN, 0, 64, 96);
    add(builder, w, OFL_ROLE_OUTPUT_NORM, 1, 0, 64);
    add(builder, w, OFL_ROLE_OUTPUT, 1, 80, 64);
    if (w->window) assert_ok(ofl_model_builder_set_kv_layer(builder, 0, &sliding));
    assert_ok(ofl_model_builder_finish(builder, &model));
    return model;
}

static void refused(wish w, const char *part)
{
    ofl_model *model = build(&w);
    assert_int_equal(forward_supports(model), OFL_ERROR_UNSUPPORTED);
    if (strstr(app_error(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", app_error(), part);
    ofl_model_destroy(model);
}

static void test_plain_models_run(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < 3; i++) {
        wish w = none;
        w.architecture = names[i];
        ofl_model *model = build(&w);
        if (forward_supports(model) != OFL_OK) fail_msg("%s: %s", names[i], app_error());
        ofl_model_destroy(model);
    }
}

static void test_what_is_refused_is_named(void **state)
{
    (void)state;
    wish w = none;
    w.architecture = "gemma2";
    refused(w, "architecture gemma2");
    w = none;
    w.changed = OFL_ROLE_ATTN_OUTPUT;
    w.dtype = OFL_DTYPE_F64;
    refused(w, "type F64");
    w = none;
    w.changed = OFL_ROLE_FFN_NORM;
    w.dtype = OFL_DTYPE_Q8_0;
    refused(w, "vectors of type Q8_0");
    w = none;
    w.changed = OFL_ROLE_FFN_UP;
    w.rows = 90;
    refused(w, "90 rows of 64 instead of 96");
    w = none;
    w.left_out = OFL_ROLE_ATTN_K;
    refused(w, "keys");
    w = none;
    w.left_out = OFL_ROLE_OUTPUT_NORM;
    refused(w, "final norm");
    w = none;
    w.extra = OFL_ROLE_ATTN_POST_NORM;
    refused(w, "does not know its use");
}

static void test_shapes_that_are_refused(void **state)
{
    (void)state;
    wish w = none;
    w.softcap = 50;
    refused(w, "attention soft-cap of 50");
    w = none;
    w.experts = 8;
    refused(w, "experts");
    w = none;
    w.head_dim_v = 32;
    refused(w, "query heads");
    w = none;
    w.scaling = OFL_ROPE_LONGROPE;
    refused(w, "longrope");
    w = none;
    w.window = true;
    refused(w, "not plain full attention");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_plain_models_run),
    cmocka_unit_test(test_what_is_refused_is_named),
    cmocka_unit_test(test_shapes_that_are_refused),
};
TEST_MAIN(tests)

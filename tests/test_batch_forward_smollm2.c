/* The real model, if it is there ($OFLOAD_MODEL_DIR or ~/.cache/ofload): a reference engine's greedy tokens, and the same bits resident and
 * streamed. */
#include "support/support.h"

#include <unistd.h>

#include "base/json.h"
#include "support/forward_rig.h"

#define FILE_NAME "SmolLM2-135M-Instruct.Q4_1.gguf"
/* The reference multiplies 8-bit rounded activations, this driver bf16 ones: logits differ by some tenths. Where the reference's best token
 * leads by more, both must agree. */
#define CLEAR_MARGIN 0.5
#define MOST_PROMPTS 32
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEW_TOKENS 4u /* such builds are slow */
#else
#define NEW_TOKENS 24u
#endif
#define CONTEXT 128u

static char model_path[1024];

static bool find_model(void)
{
    const char *folder = getenv("OFLOAD_MODEL_DIR"), *home = getenv("HOME");
    if (folder != NULL)
        (void)snprintf(model_path, sizeof model_path, "%s/" FILE_NAME, folder);
    else
        (void)snprintf(model_path, sizeof model_path, "%s/.cache/ofload/" FILE_NAME, home != NULL ? home : "");
    return access(model_path, R_OK) == 0;
}

typedef struct prompt {
    int32_t ids[256];
    double margins[64];
    uint32_t id_count, wanted_count; /* ids: the prompt, then the reference's tokens */
} prompt;

static prompt prompts[MOST_PROMPTS];
static uint32_t prompt_count;

static uint32_t add_ids(prompt *p, const cJSON *list, uint32_t at)
{
    const cJSON *id;
    cJSON_ArrayForEach(id, list) p->ids[at++] = (int32_t)id->valuedouble;
    assert_true(at <= 256);
    return at;
}

static void read_prompts(void)
{
    char *text = test_read(OFLOAD_SOURCE_DIR "/tests/golden/smollm2_greedy.json", NULL);
    cJSON *golden = cJSON_Parse(text), *entry;
    assert_non_null(golden);
    prompt_count = 0;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItem(golden, "prompts"))
    {
        prompt *p = &prompts[prompt_count++];
        const cJSON *tokens = cJSON_GetObjectItem(entry, "tokens"), *margins = cJSON_GetObjectItem(entry, "margins"), *margin;
        uint32_t n = 0;
        assert_true(prompt_count <= MOST_PROMPTS);
        p->id_count = add_ids(p, cJSON_GetObjectItem(entry, "ids"), 0);
        p->wanted_count = add_ids(p, tokens, p->id_count) - p->id_count;
        cJSON_ArrayForEach(margin, margins) p->margins[n++] = margin->valuedouble;
        assert_true(n == p->wanted_count && n >= NEW_TOKENS);
    }
    assert_true(prompt_count >= 10);
    cJSON_Delete(golden);
    free(text);
}

static int32_t best(const float *logits, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i < count; i++) found = logits[i] > logits[found] ? i : found;
    return (int32_t)found;
}

typedef struct score {
    uint32_t clear, same, all;
} score;

static void compare(score *s, uint32_t which, uint32_t at, const float *logits, uint32_t vocab)
{
    const prompt *p = &prompts[which];
    int32_t got = best(logits, vocab), wanted = p->ids[p->id_count + at];
    bool clear = p->margins[at] >= CLEAR_MARGIN;
    s->all++;
    s->clear += clear;
    s->same += got == wanted;
    if (clear && got != wanted)
        fail_msg("prompt %u, token %u: %d instead of %d, whose margin was %g", which, at, (int)got, (int)wanted, p->margins[at]);
}

/* All prompts at once, each fed the reference's own tokens, so that one unclear choice does not hide the rest. */
static score run_prompts(rig *r, uint32_t new_tokens)
{
    static rig_step s;
    score total = {0};
    for (uint32_t p = 0; p < prompt_count; p++)
        compare(&total, p, 0, rig_last_logits(r, p, prompts[p].ids, prompts[p].id_count, 40), r->shape.vocab_size);
    for (uint32_t t = 1; t < new_tokens; t++) {
        rig_begin(&s, r);
        for (uint32_t p = 0; p < prompt_count; p++)
            rig_add(&s, p, prompts[p].id_count + t - 1, &prompts[p].ids[prompts[p].id_count + t - 1], 1, true);
        const float *logits = rig_run(&s);
        for (uint32_t p = 0; p < prompt_count; p++) compare(&total, p, t, logits + (uint64_t)p * r->shape.vocab_size, r->shape.vocab_size);
    }
    return total;
}

static void test_greedy_tokens(void **state)
{
    (void)state;
    if (!find_model()) skip();
    read_prompts();
    const rig_options o = {
        .compute_type = OFL_COMPUTE_BF16, .kv_type = OFL_KV_F16, .sequences = prompt_count, .context = CONTEXT, .prefill_chunk = 48};
    rig r;
    rig_open(&r, model_path, &o);
    score s = run_prompts(&r, NEW_TOKENS);
    print_message("%u of %u tokens as the reference chose; all %u clear ones\n", s.same, s.all, s.clear);
    assert_true(s.clear > s.all / 2);
    rig_close(&r);
}

static void collect(const rig_options *o, float *out)
{
    static rig_step s;
    rig r;
    rig_open(&r, model_path, o);
    assert_true(rig_streamed_share(&r) >= o->streamed);
    for (uint32_t step = 0; step < 3; step++) {
        rig_begin(&s, &r);
        for (uint32_t p = 0; p < 4; p++)
            rig_add(&s, p, step == 0 ? 0 : prompts[p].id_count / 2 + step - 1, prompts[p].ids, step == 0 ? prompts[p].id_count / 2 : 1,
                    true);
        memcpy(out + (uint64_t)step * 4 * r.shape.vocab_size, rig_run(&s), 4 * (uint64_t)r.shape.vocab_size * sizeof *out);
    }
    rig_close(&r);
}

static void test_streamed_is_the_same(void **state)
{
    (void)state;
    if (!find_model()) skip();
    read_prompts();
    rig_options o = {.compute_type = OFL_COMPUTE_BF16, .kv_type = OFL_KV_F16, .sequences = 4, .context = CONTEXT, .prefill_chunk = 96};
    uint64_t bytes = UINT64_C(3) * 4 * 49152 * sizeof(float);
    float *resident = malloc(bytes), *streamed = malloc(bytes);
    assert_true(resident != NULL && streamed != NULL);
    collect(&o, resident);
    o.streamed = 0.7;
    collect(&o, streamed);
    assert_memory_equal(resident, streamed, bytes);
    o.cut = OFL_CUT_OFF;
    o.streamed = 0.3;
    memset(streamed, 0, bytes);
    collect(&o, streamed);
    assert_memory_equal(resident, streamed, bytes);
    free(resident);
    free(streamed);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_greedy_tokens),
    cmocka_unit_test(test_streamed_is_the_same),
};

int main(void)
{
    if (!find_model()) {
        print_message("skipped: %s is not there; tests/run.sh fetches it\n", model_path);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}

/* Log-probabilities: the figures, what is held, and the records of whole runs over the stub model. */
#include "support/job_rig.h"

#include <math.h>

#include "batch/logprobs.h"

/* ---- figures ---- */

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-6 * fmax(1, fabs(wanted)))) fail_msg("%.9g instead of %.9g", got, wanted);
}

/* The straight way: every term in a long double. */
static double by_hand(const float *logits, uint32_t count, uint32_t id)
{
    long double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += expl((long double)logits[i] - logits[id]);
    return (double)-logl(sum);
}

static void add(logprob_list *list, const float *logits, uint32_t usable, int32_t chosen)
{
    logprob entries[1 + LOGPROBS_MAX_TOP];
    logprobs_of(logits, usable, chosen, list->top, entries);
    assert_true(logprobs_add(list, entries));
}

static void test_values_are_those_of_a_softmax(void **state)
{
    (void)state;
    enum { IDS = 1000, USABLE = 990, TOP = 20 };
    uint64_t seed = 5;
    float logits[IDS];
    for (uint32_t i = 0; i < IDS; i++) logits[i] = i < USABLE ? (float)(int64_t)(test_random(&seed) % 4000) * 0.01f - 20 : 1000;
    logits[7] = logits[8] = logits[3] = 30; /* equals: the lower id first */
    logprob_list list = {.top = TOP};
    for (int32_t chosen = 0; chosen < 60; chosen++) add(&list, logits, USABLE, chosen);
    assert_int_equal(list.tokens, 60);
    assert_true(logprobs_bytes(&list) >= UINT64_C(60) * (1 + TOP) * 8 && logprobs_bytes(&list) <= UINT64_C(2) * 60 * (1 + TOP) * 8);
    for (int32_t chosen = 0; chosen < 60; chosen++) {
        const logprob *entry = list.entries + (size_t)chosen * (1 + TOP);
        assert_int_equal(entry[0].id, chosen);
        assert_near((double)entry[0].value, by_hand(logits, USABLE, (uint32_t)chosen));
        assert_int_equal(entry[1].id, 3);
        assert_int_equal(entry[2].id, 7);
        assert_int_equal(entry[3].id, 8);
        for (uint32_t i = 1; i <= TOP; i++) {
            assert_near((double)entry[i].value, by_hand(logits, USABLE, (uint32_t)entry[i].id));
            assert_true(i < 2 || logits[entry[i].id] <= logits[entry[i - 1].id]);
        }
        uint32_t better = 0;
        for (uint32_t i = 0; i < USABLE; i++) better += logits[i] > logits[entry[TOP].id];
        assert_true(better < TOP);
    }
    logprobs_free(&list);
}

static void test_odd_logits(void **state)
{
    (void)state;
    const float certain[] = {-INFINITY, 5, NAN, -INFINITY}, none[] = {NAN, NAN, NAN, NAN};
    logprob_list list = {.top = 5};
    add(&list, certain, 4, 1);
    add(&list, certain, 4, 0);
    add(&list, none, 4, 0);
    assert_true(list.entries[0].value == 0 && !signbit(list.entries[0].value));
    assert_int_equal(list.entries[1].id, 1);
    assert_int_equal(list.entries[4].id, -1); /* there are no more */
    assert_true(list.entries[6].value == LOGPROBS_NONE && list.entries[12].value == LOGPROBS_NONE);
    assert_int_equal(list.entries[13].id, -1);
    logprobs_free(&list);
}

/* ---- records ---- */

static const cJSON *part(const cJSON *line, int index, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(choice(line, index), "logprobs"), name);
}

static const char *text_at(const cJSON *array, int index)
{
    const cJSON *item = cJSON_GetArrayItem(array, index);
    return cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "token")->valuestring : item->valuestring;
}

static double number_at(const cJSON *array, int index) { return cJSON_GetArrayItem(array, index)->valuedouble; }

/* The stub's logits: 30 for the byte that it says, 0 for the other 256. */
static double said(void) { return -log1p(256 * exp(-30)); }

static void add_plain(FILE *file, const char *id, const char *prompt, const char *params)
{
    (void)fprintf(file, "{\"custom_id\":\"%s\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"%s\",%s}}\n", id, prompt, params);
}

static void test_chat(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    settings.report = test_path("logprobs.json");
    FILE *file = fopen(in_path, "w");
    add_line(file, "top", "#h\xC3\xA9", "\"logprobs\":true,\"top_logprobs\":2,\"temperature\":0");
    add_line(file, "none", "#hi", "");
    add_line(file, "chosen", "#hi", "\"logprobs\":true,\"n\":2,\"temperature\":0");
    add_line(file, "stop", "say#ab END more", "\"logprobs\":true,\"stop\":[\" END\"],\"temperature\":0");
    add_line(file, "many", "#x", "\"logprobs\":true,\"top_logprobs\":20,\"max_tokens\":13000");
    assert_int_equal(fclose(file), 0);
    model.context_limit = 20000;
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    answers a = read_answers(out_path);
    const cJSON *content = part(find(&a, "top"), 0, "content"), *first = cJSON_GetArrayItem(content, 0), *item;
    assert_int_equal(cJSON_GetArraySize(content), 3); /* its end token is no part of the text */
    assert_string_equal(text_at(content, 0), "h");
    assert_string_equal(text_at(content, 1), "bytes:\\xc3");
    assert_near(cJSON_GetObjectItemCaseSensitive(first, "logprob")->valuedouble, said());
    assert_int_equal(number_at(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(content, 2), "bytes"), 0), 0xA9);
    cJSON_ArrayForEach(item, content)
    {
        const cJSON *top = cJSON_GetObjectItemCaseSensitive(item, "top_logprobs");
        assert_int_equal(cJSON_GetArraySize(top), 2);
        assert_string_equal(text_at(top, 0), cJSON_GetObjectItemCaseSensitive(item, "token")->valuestring);
        assert_string_equal(text_at(top, 1), "bytes:\\x00");
        assert_near(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(top, 1), "logprob")->valuedouble, said() - 30);
    }
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "none"), 0), "logprobs")));
    for (int i = 0; i < 2; i++) {
        const cJSON *chosen = part(find(&a, "chosen"), i, "content");
        assert_int_equal(cJSON_GetArraySize(chosen), 2);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(chosen, 1), "top_logprobs")), 0);
    }
    assert_int_equal(cJSON_GetArraySize(part(find(&a, "stop"), 0, "content")), 2); /* the tokens of the text that is left */
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(find(&a, "many"), "error");
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(error, "param")->valuestring, "body.top_logprobs");
    free_answers(&a);
    char *text = test_read(settings.report, NULL);
    cJSON *report = cJSON_Parse(text);
    double peak = cJSON_GetObjectItem(report, "peak_logprob_bytes")->valuedouble;
    assert_true(peak >= 3 * 3 * 8 && peak <= 4096);
    cJSON_Delete(report);
    free(text);
}

static void test_plain_completions(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_plain(file, "two", "#a\xC3\xA9z", "\"logprobs\":2,\"temperature\":0");
    add_plain(file, "zero", "#az", "\"logprobs\":0,\"temperature\":0");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    answers a = read_answers(out_path);
    const cJSON *line = find(&a, "two"), *map = cJSON_GetArrayItem(part(line, 0, "top_logprobs"), 3);
    assert_string_equal(text_at(part(line, 0, "tokens"), 3), "z");
    assert_near(number_at(part(line, 0, "token_logprobs"), 3), said());
    assert_int_equal(cJSON_GetArraySize(map), 2);
    assert_near(cJSON_GetObjectItemCaseSensitive(map, "bytes:\\x00")->valuedouble, said() - 30);
    static const int offsets[] = {0, 1, 2, 2};
    for (int i = 0; i < 4; i++) assert_int_equal(number_at(part(line, 0, "text_offset"), i), offsets[i]);
    map = cJSON_GetArrayItem(part(find(&a, "zero"), 0, "top_logprobs"), 1);
    assert_int_equal(cJSON_GetArraySize(map), 1); /* the chosen one is always there */
    assert_non_null(cJSON_GetObjectItemCaseSensitive(map, "z"));
    free_answers(&a);
}

/* Drawn at a high temperature: the figures are still those of the logits as they are, alone and among others, and a second run reads its
 * output back. */
static void test_neither_temperature_nor_neighbours_matter(void **state)
{
    (void)state;
    char *alone = NULL;
    for (int others = 0; others < 8; others += 7) {
        fresh();
        backend model = stub_backend();
        run_settings settings = stub_settings(in_path, out_path);
        FILE *file = fopen(in_path, "w");
        static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
        for (int i = 0; i < others; i++) add_line(file, names[i], "others", "\"temperature\":9");
        add_line(file, "hot", "goes on", "\"temperature\":50,\"logprobs\":true,\"top_logprobs\":1,\"seed\":3");
        assert_int_equal(fclose(file), 0);
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        answers a = read_answers(out_path);
        const cJSON *content = part(find(&a, "hot"), 0, "content"), *item;
        char *text = cJSON_PrintUnformatted(content);
        cJSON_ArrayForEach(item, content)
        {
            double value = cJSON_GetObjectItemCaseSensitive(item, "logprob")->valuedouble;
            assert_true(fabs(value - said()) < 1e-6 || fabs(value - (said() - 30)) < 1e-4);
        }
        if (alone == NULL) alone = text;
        else {
            assert_string_equal(text, alone);
            cJSON_free(text);
        }
        free_answers(&a);
        model = stub_backend();
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        assert_int_equal(the_stub.steps, 0);
    }
    cJSON_free(alone);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values_are_those_of_a_softmax),
    cmocka_unit_test(test_odd_logits),
    cmocka_unit_test(test_chat),
    cmocka_unit_test(test_plain_completions),
    cmocka_unit_test(test_neither_temperature_nor_neighbours_matter),
};
TEST_MAIN(tests)

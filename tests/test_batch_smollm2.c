/* The real model file's tokenizer and chat template against the reference. Skipped where the file is not at hand. */
#include "support/token_golden.h"

#include <unistd.h>

#include "batch/chat_template.h"

static const char *model_path(void)
{
    static char path[600];
    const char *folder = getenv("OFLOAD_MODEL_DIR"), *home = getenv("HOME");
    if (folder != NULL) (void)snprintf(path, sizeof path, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder);
    else (void)snprintf(path, sizeof path, "%s/.cache/ofload/SmolLM2-135M-Instruct.Q4_1.gguf", home == NULL ? "" : home);
    return path;
}

static tokenizer *open_model_tokenizer(void)
{
    ofl_model *model;
    tokenizer *t = NULL;
    assert_ok(ofl_model_open(model_path(), &model));
    assert_app_ok(tokenizer_open(model, &t));
    ofl_model_destroy(model); /* the tokenizer keeps nothing of it */
    return t;
}

static void test_ids_equal_the_reference(void **state)
{
    (void)state;
    tokenizer *t = open_model_tokenizer();
    cJSON *golden = golden_json("smollm2.ids.json");
    assert_golden_ids(t, cJSON_GetObjectItem(golden, "ids"), "smollm2");
    assert_int_equal(tokenizer_size(t), 49152);
    assert_int_equal(tokenizer_begin(t), -1);
    assert_true(tokenizer_is_end(t, 2) && tokenizer_is_end(t, 0));
    assert_false(tokenizer_is_end(t, 1));
    cJSON_Delete(golden);
    tokenizer_close(t);
}

static void test_chats_equal_the_templates_own_rendering(void **state)
{
    (void)state;
    tokenizer *t = open_model_tokenizer();
    cJSON *golden = golden_json("smollm2.ids.json");
    chat_template kind;
    assert_app_ok(chat_template_choose(t, NULL, &kind));
    assert_int_equal(kind, CHAT_CHATML);
    const cJSON *chat;
    cJSON_ArrayForEach(chat, cJSON_GetObjectItem(golden, "chats"))
    {
        chat_message messages[8];
        size_t count = golden_messages(cJSON_GetObjectItem(chat, "messages"), messages, 8);
        token_list got = {0};
        assert_app_ok(chat_template_encode(kind, t, messages, count, &got));
        assert_ids(&got, cJSON_GetObjectItem(chat, "ids"), "chat");
        tokens_free(&got);
    }
    cJSON_Delete(golden);
    tokenizer_close(t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_equal_the_reference), cmocka_unit_test(test_chats_equal_the_templates_own_rendering)};
    if (access(model_path(), R_OK) != 0) {
        printf("skipped: %s is not there (set OFLOAD_MODEL_DIR, or run examples/quickstart.sh)\n", model_path());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}

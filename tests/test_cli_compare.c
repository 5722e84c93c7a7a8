/* ofload-plan --compare and --want on Qwen2.5-7B's shape: figures by hand formula, order, commands that reproduce a row, refusals. */
#include "support/json_path.h"
#include "support/support.h"

#include <math.h>
#include <stdbool.h>

#include <cjson/cJSON.h>

#define PLAN OFLOAD_BIN_DIR "/ofload-plan"
#define BENCH OFLOAD_BIN_DIR "/ofload-bench"
#define CARD "--vram 12.49GB --link 3.26GB/s --context 512 " /* the field experiment's */
#define RATES "--gpus 2 --peer-link 2.79GB/s --host-bandwidth 40GB/s --host-flops 500GFLOP/s "

/* Elements of the matrices of a layer, and of embedding or head. */
#define LAYER_ELEMENTS (2.0 * 3584 * 3584 + 2.0 * 512 * 3584 + 3.0 * 3584 * 18944)
#define VOCABULARY_ELEMENTS (152064.0 * 3584)
#define ELEMENTS (28 * LAYER_ELEMENTS + 2 * VOCABULARY_ELEMENTS)

static int run_line(const char *program, const char *arguments, char **output_out)
{
    char line[2048];
    (void)snprintf(line, sizeof line, "cd '%s' && %s %s", test_folder(), program, arguments);
    return test_run(line, output_out);
}

static cJSON *json_of(const char *arguments, int exit_status)
{
    char line[1536], *output = NULL;
    (void)snprintf(line, sizeof line, "--json %s", arguments);
    int status = run_line(PLAN, line, &output);
    if (status != exit_status) fail_msg("%s: %d: %s", line, status, output);
    cJSON *tree = cJSON_Parse(output);
    if (tree == NULL) fail_msg("%s: no JSON: %.200s", line, output);
    free(output);
    return tree;
}

static const cJSON *way_of(const cJSON *tree, const char *name)
{
    const cJSON *way;
    cJSON_ArrayForEach(way, at(tree, "ways"))
    {
        if (strcmp(text(way, "way"), name) == 0) return way;
    }
    fail_msg("there is no way named %s", name);
    return NULL;
}

static void near(const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected))) fail_msg("%s: %.17g instead of %.17g", what, got, expected);
}

/* The field experiment: two sums of a 7 KiB vector a layer, 392 KiB a token, 0.14 ms at 2.79 GB/s, 7.6 GB on each of two cards. */
static void split_by_rows_and_by_layers(void **state)
{
    (void)state;
    cJSON *tree = json_of("--compare " CARD RATES "big.gguf", 0);
    const cJSON *rows = way_of(tree, "split-rows"), *layers = way_of(tree, "split-layers");
    double compute = number(tree, "plan.forecast.compute_seconds"),
           dense = number(tree, "plan.model.weight_bytes") - 2 * VOCABULARY_ELEMENTS;
    near("bytes between", number(rows, "details.bytes_between_per_token"), 392 * 1024);
    near("seconds between", number(rows, "details.seconds_between_per_token"), 392 * 1024 / 2.79e9);
    assert_true(fabs(number(rows, "details.seconds_between_per_token") - 0.14e-3) < 0.005e-3);
    assert_true(fabs(number(rows, "details.weight_bytes_per_gpu_with_embedding") - 7.6e9) < 0.05e9);
    near("weights on each", number(rows, "details.weight_bytes_per_gpu"), dense / 2);
    near("step", number(rows, "step_seconds"), compute / 2 + 392 * 1024 / 2.79e9 + 2 * 28 * 5e-6);
    assert_int_equal(number(rows, "details.gpus_needed"), 2);
    near("bytes between layers", number(layers, "details.bytes_between_per_token"), 7168);
    near("step", number(layers, "step_seconds"), compute + 7168 / 2.79e9 + 5e-6);
    double layer = (dense - 2 * VOCABULARY_ELEMENTS) / 28; /* 13 layers and the head weigh more than 15 layers */
    assert_true(fabs(number(layers, "details.weight_bytes_per_gpu") - (13 * layer + 2 * VOCABULARY_ELEMENTS)) < 1e5);
    assert_string_equal(text(rows, "sources.peer_bytes_per_second"), "given");
    assert_string_equal(text(rows, "sources.device_flops_per_second"), "assumed");
    assert_true(cJSON_IsTrue(at(rows, "fits")));
    assert_true(number(rows, "queue_tokens_per_second") > number(rows, "tokens_per_second"));
    cJSON_Delete(tree);
}

/* Blocks of 32 elements in 34 bytes, of 256 in 144; vectors stay. */
static void fewer_bits_by_real_blocks(void **state)
{
    (void)state;
    cJSON *tree = json_of("--compare " CARD "big.gguf", 0);
    const cJSON *way = way_of(tree, "quantised");
    double vectors = number(tree, "plan.model.weight_bytes") - 2 * ELEMENTS;
    assert_string_equal(text(way, "details.dtype"), "Q8_0");
    near("Q8_0", number(way, "details.stored_bytes"), ELEMENTS * 34 / 32 + vectors);
    assert_null(cJSON_GetObjectItemCaseSensitive(at(way, "sources"), "link_bytes_per_second")); /* whole: nothing is streamed */
    assert_true(cJSON_IsFalse(at(way, "precision_kept")));
    cJSON_Delete(tree);
    tree = json_of("--compare --vram 5.6GB --link 3.26GB/s --context 512 big.gguf", 0);
    int found = 0;
    cJSON_ArrayForEach(way, at(tree, "ways"))
    {
        if (strcmp(text(way, "way"), "quantised") != 0) continue;
        bool whole = cJSON_GetObjectItemCaseSensitive(at(way, "sources"), "link_bytes_per_second") == NULL;
        if (strcmp(text(way, "details.dtype"), "Q4_K") == 0)
            near("Q4_K", number(way, "details.stored_bytes"), ELEMENTS * 144 / 256 + vectors);
        assert_int_equal(whole, strcmp(text(way, "details.dtype"), "Q4_K") == 0);
        found++;
    }
    assert_int_equal(found, 2);
    cJSON_Delete(tree);
}

/* The device takes the head and whole layers; the CPU reads the rest, and the KV of its layers half-way through the context. */
static void layers_on_the_cpu(void **state)
{
    (void)state;
    cJSON *tree = json_of("--compare " CARD RATES "big.gguf", 0);
    const cJSON *way = way_of(tree, "host");
    double head = 2 * VOCABULARY_ELEMENTS, dense = number(tree, "plan.model.weight_bytes") - head, layer = (dense - head) / 28;
    double n = number(way, "details.host_layers"), host = number(way, "details.host_weight_bytes");
    assert_true(fabs(host - n * layer) < 1e5);
    const cJSON *b = at(tree, "plan.budget");
    double room = number(b, "vram_bytes") - number(b, "headroom_bytes") - number(b, "runtime_bytes") - number(b, "activation_bytes") - head;
    assert_int_equal(n, 28 - floor(room / (layer + 512 * 2048)));
    double kv = n * 256 * 2048, share = 1 - host / dense;
    near("step", number(way, "step_seconds"),
         number(tree, "plan.forecast.compute_seconds") * share + (host + kv) / 40e9 + 2 * (7168 / 3.26e9 + 5e-6));
    assert_string_equal(text(way, "sources.host_memory_bytes_per_second"), "given");
    cJSON_Delete(tree);
    tree = json_of("--compare " CARD "--host-bandwidth 40GB/s --host-flops 1GFLOP/s big.gguf", 0); /* products bind */
    way = way_of(tree, "host");
    double products = 2 * number(way, "details.host_layers") * LAYER_ELEMENTS / 1e9;
    assert_true(number(way, "step_seconds") > products && number(way, "step_seconds") < products + 0.1);
    cJSON_Delete(tree);
}

static void no_rate_no_claim(void **state)
{
    (void)state;
    static const char *const names[] = {"split-rows", "split-layers", "host"}, *const options[] = {"--peer-link", "--peer-link",
                                                                                                   "--host-flops"};
    cJSON *tree = json_of("--compare " CARD "--host-bandwidth 40GB/s big.gguf", 0);
    for (int i = 0; i < 3; i++) {
        const cJSON *way = way_of(tree, names[i]);
        static const char *const figures[] = {"tokens_per_second", "step_seconds", "sequences", "queue_tokens_per_second",
                                              "error_band_percent"};
        for (size_t f = 0; f < sizeof figures / sizeof figures[0]; f++) assert_true(cJSON_IsNull(at(way, figures[f])));
        assert_null(at(way, "sources")->child);
        assert_non_null(strstr(text(way, "why_no_forecast"), options[i]));
    }
    cJSON_Delete(tree);
    tree = json_of("--compare --vram 5GB --link 3GB/s --context 512 --gpus 2 --peer-link 3GB/s big.gguf", 0);
    assert_non_null(strstr(text(way_of(tree, "split-layers"), "why_no_forecast"), "2 of these cards do not hold it"));
    assert_true(cJSON_IsNull(at(way_of(tree, "split-layers"), "tokens_per_second")));
    cJSON_Delete(tree);
    tree = json_of("--compare " CARD "--gpus 3 --peer-link 3GB/s big.gguf", 0);
    assert_non_null(strstr(text(way_of(tree, "split-rows"), "why_no_forecast"), "28 heads cannot be divided by 3"));
    cJSON_Delete(tree);
}

/* What is there before what is not, then what has no forecast; within each the shortest step (latency) or the most tokens/s first. */
static void check_order(const char *arguments, bool latency)
{
    cJSON *tree = json_of(arguments, 0);
    const cJSON *way;
    int last_rank = 0;
    double last = INFINITY;
    cJSON_ArrayForEach(way, at(tree, "ways"))
    {
        bool known = cJSON_IsNumber(at(way, "tokens_per_second"));
        int rank = !known ? 2 : cJSON_IsTrue(at(way, "fits")) ? 0 : 1;
        double merit = !known ? 0 : latency ? 1 / number(way, "step_seconds") : number(way, "tokens_per_second");
        assert_true(rank >= last_rank);
        if (rank == last_rank && merit > last * 1.01) fail_msg("%s: %s stands too low", arguments, text(way, "title"));
        last_rank = rank;
        last = merit;
    }
    cJSON_Delete(tree);
}

static void the_best_comes_first(void **state)
{
    (void)state;
    check_order("--compare " CARD RATES "big.gguf", true);
    check_order("--compare " CARD "--peer-link 2.79GB/s big.gguf", true);
    check_order("--compare " CARD RATES "--objective throughput big.gguf", false);
    check_order("--compare " CARD "--objective throughput --sequences 4 big.gguf", false);
    check_order("--compare --vram 24GB --link 3GB/s big.gguf", true);
}

/* Each command shown plans its row again. */
static void commands_reproduce(const char *arguments, int least)
{
    cJSON *tree = json_of(arguments, 0);
    const cJSON *way;
    int commands = 0;
    cJSON_ArrayForEach(way, at(tree, "ways"))
    {
        const char *command = text(way, "command");
        if (command == NULL) continue;
        assert_int_equal(strncmp(command, "ofload-plan ", 12), 0);
        cJSON *again = json_of(command + 12, 0);
        near(command, number(again, "forecast.tokens_per_second"), number(way, "tokens_per_second"));
        cJSON_Delete(again);
        commands++;
    }
    assert_true(commands >= least);
    cJSON_Delete(tree);
}

static void commands_reproduce_their_rows(void **state)
{
    (void)state;
    commands_reproduce(CARD "--compare big.gguf", 4);
    commands_reproduce("--compare --vram=12.49GB --link 3.26GB/s --resident-layers 13 --sequences 2 --context 512 -- big.gguf", 5);
    commands_reproduce("--compare --vram 16.2GB --link 3.26GB/s --context 16384 'a b.gguf'", 3);
}

/* KV of 16,384 tokens does not leave room for all weights; a shorter context does, and one step more does not. */
static void the_context_at_which_all_is_resident(void **state)
{
    (void)state;
    char line[256];
    cJSON *tree = json_of("--compare --vram 16.2GB --link 3.26GB/s --context 16384 big.gguf", 0);
    assert_true(number(tree, "plan.stream.bytes_per_step") > 0);
    long context = 0;
    assert_int_equal(sscanf(text(way_of(tree, "context"), "command"), "ofload-plan --context %ld", &context), 1);
    cJSON_Delete(tree);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(line, sizeof line, "--vram 16.2GB --link 3.26GB/s --context %ld big.gguf", context + 16 * i);
        tree = json_of(line, 0);
        assert_int_equal(number(tree, "stream.bytes_per_step") > 0, i);
        cJSON_Delete(tree);
    }
}

static double reaches(const char *format, double value)
{
    char line[256];
    (void)snprintf(line, sizeof line, format, value);
    cJSON *tree = json_of(line, 0);
    double rate = number(tree, "forecast.tokens_per_second");
    cJSON_Delete(tree);
    return rate;
}

static const cJSON *change_of(const cJSON *tree, const char *name)
{
    const cJSON *change;
    cJSON_ArrayForEach(change, at(tree, "want.would_reach"))
    {
        if (strcmp(text(change, "change"), name) == 0) return change;
    }
    fail_msg("there is no change named %s", name);
    return NULL;
}

static void a_wish_that_is_not_met_names_what_would(void **state)
{
    (void)state;
    cJSON *tree = json_of(CARD "--want 5tok/s big.gguf", 3);
    assert_string_equal(text(tree, "schema"), "ofload.want/1");
    assert_string_equal(text(tree, "plan.schema"), "ofload.plan/1");
    double bound = number(tree, "plan.stream.lower_bound_bytes_per_step") / 3.26e9;
    near("bound", number(tree, "want.bound_seconds"), bound);
    near("most", number(tree, "want.bound_tokens_per_second"), 1 / bound);
    assert_string_equal(text(tree, "want.set_by"), "link");
    double n = number(change_of(tree, "sequences"), "value");
    assert_true(reaches(CARD "--sequences %.0f big.gguf", n) >= 5 && reaches(CARD "--sequences %.0f big.gguf", n - 1) < 5);
    double link = number(change_of(tree, "link_bytes_per_second"), "value");
    assert_true(reaches("--vram 12.49GB --context 512 --link %.0fB/s big.gguf", link) >= 5);
    assert_true(reaches("--vram 12.49GB --context 512 --link %.0fB/s big.gguf", link * 0.99) < 5);
    double vram = number(change_of(tree, "vram_bytes"), "value");
    assert_true(reaches("--link 3.26GB/s --context 512 --vram %.0f big.gguf", vram) >= 5);
    assert_true(reaches("--link 3.26GB/s --context 512 --vram %.0f big.gguf", vram * 0.99) < 5);
    assert_string_equal(text(change_of(tree, "weights"), "dtype"), "Q8_0");
    cJSON_Delete(tree);
    tree = json_of("--vram 24GB --link 3.26GB/s --context 512 --want 30/s big.gguf", 3);
    assert_string_equal(text(tree, "want.set_by"), "memory");
    near("bound", number(tree, "want.bound_seconds"), number(tree, "plan.forecast.compute_seconds"));
    cJSON_Delete(tree);
    tree = json_of("--vram 24GB --link 3.26GB/s --context 512 --device-flops 100GFLOP/s --want 30/s big.gguf", 3);
    assert_string_equal(text(tree, "want.set_by"), "compute");
    cJSON_Delete(tree);
}

static void wishes_and_the_exit_status(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int exit_status;
        const char *says;
    } cases[] = {
        {CARD "--want '0.9 tokens/s' big.gguf", 0, "want 0.900 tokens/s: yes"},
        {CARD "--want 0.99/s big.gguf", 0, "within that error"},
        {CARD "--want 5tok/s big.gguf", 3, "The link sets it"},
        {CARD "--want 100000tok/s big.gguf", 3, "the most that this machine reaches"},
        {CARD "--quiet --want 5tok/s big.gguf", 3, ""},
        {CARD "--want 5 big.gguf", 2, "is no speed"},
        {CARD "--want 5GB/s big.gguf", 2, "is no speed"},
        {CARD "--want tok/s big.gguf", 2, "is no speed"},
        {CARD "--want -5tok/s big.gguf", 2, "is no speed"},
        {CARD "--want 1.2.3tok/s big.gguf", 2, "--want"},
        {CARD "--want '5 tok/s ' big.gguf", 2, "is no speed"},
        {CARD "--want 0tok/s big.gguf", 2, "above 0"},
        {CARD "--gpus 2 big.gguf", 2, "--gpus has no effect without --compare"},
        {CARD "--peer-link 2GB/s big.gguf", 2, "--peer-link has no effect without --compare"},
        {CARD "--host-bandwidth 2GB/s big.gguf", 2, "--host-bandwidth has no effect without --compare"},
        {CARD "--host-flops 2GFLOP/s --want 1/s big.gguf", 2, "--host-flops has no effect without --compare"},
        {CARD "--want 1/s --sweep sequences=1..4 big.gguf", 2, "leave one of them out"},
        {CARD "--compare --gpus 1 big.gguf", 2, "2 GPUs or more"},
        {CARD "--compare --quiet big.gguf", 2, "contradict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int status = run_line(PLAN, cases[i].arguments, &output);
        if (status != cases[i].exit_status || strstr(output, cases[i].says) == NULL)
            fail_msg("%s: %d: %s", cases[i].arguments, status, output);
        if (*cases[i].says == '\0') assert_string_equal(output, "");
        free(output);
    }
}

/* Where the stand-in for the CUDA Runtime was built, it has two devices: both are found, and the way between them is measured. */
static void the_gpus_found_and_the_rate_between_them(void **state)
{
    (void)state;
    if (test_run("test -e '" OFLOAD_BIN_DIR "/../tests/fakecuda/libcudart.so' && ldd " PLAN " | grep -q libcudart", NULL) != 0) skip();
    char *output = NULL;
    assert_int_equal(run_line("LD_LIBRARY_PATH=" OFLOAD_BIN_DIR "/../tests/fakecuda "
                              "OFLOAD_FAKECUDA_SPEC=sim:vram=12.49GB,h2d=3.26GB/s,clock=virtual " PLAN,
                              "--compare --json --device cuda:1 --context 512 big.gguf", &output),
                     0);
    cJSON *tree = cJSON_Parse(output);
    const cJSON *way = way_of(tree, "split-layers");
    assert_int_equal(number(way, "details.gpus"), 2);
    assert_true(cJSON_IsTrue(at(way, "fits")));
    assert_string_equal(text(way, "sources.peer_bytes_per_second"), "measured");
    assert_non_null(strstr(text(way, "needs"), "2 found"));
    assert_true(number(way, "details.seconds_between_per_token") > 0);
    cJSON_Delete(tree);
    free(output);
}

static size_t columns(const char *line, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)line[i] & 0xC0) != 0x80;
    return count;
}

/* The byte that is shown at this column. */
static char shown_at(const char *line, size_t column)
{
    for (; *line != '\0'; line++) {
        if (((unsigned char)*line & 0xC0) == 0x80) continue;
        if (column-- == 0) return *line;
    }
    return '\0';
}

/* The table and what is below it: no line is wider than a terminal, the steps end where the word does. */
static void the_page_is_aligned(void **state)
{
    (void)state;
    char *output = NULL;
    assert_int_equal(run_line(PLAN, "--compare " CARD RATES "big.gguf", &output), 0);
    const char *from = strstr(output, "the ways out"), *head = from != NULL ? strchr(from, '\n') + 1 : NULL, *line = NULL;
    assert_non_null(head);
    size_t step_end = (size_t)(strstr(head, " step ") - head) + 4;
    int rows = 0;
    for (line = strchr(head, '\n') + 1; *line != '\n'; line = strchr(line, '\n') + 1, rows++) {
        if (shown_at(line, step_end) != 's' || shown_at(line, step_end + 1) != ' ') fail_msg("not aligned: %.140s", line);
    }
    assert_true(rows >= 8);
    for (line = from; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        if (columns(line, length) > 140) fail_msg("%zu columns: %.*s", columns(line, length), (int)length, line);
    }
    assert_non_null(strstr(from, "392.0 KiB a token between cards, 143.9"));
    free(output);
}

static void compare_and_want_in_one_object(void **state)
{
    (void)state;
    cJSON *tree = json_of(CARD "--compare --want 5tok/s big.gguf", 3);
    assert_string_equal(text(tree, "schema"), "ofload.compare/1");
    assert_true(cJSON_IsArray(at(tree, "ways")));
    assert_true(cJSON_IsFalse(at(tree, "want.reached")));
    cJSON *plain = json_of(CARD "big.gguf", 0);
    assert_string_equal(text(tree, "plan.identity.plan"), text(plain, "identity.plan"));
    cJSON_Delete(plain);
    cJSON_Delete(tree);
}

static int make_models(void)
{
    char *output = NULL;
    int status = run_line(BENCH,
                          "mkmodel --output big.gguf --sparse --architecture qwen2 --layers 28 --hidden 3584 --heads 28 --kv-heads 4 "
                          "--ffn 18944 --vocab 152064 --context 32768 --name big && ln big.gguf 'a b.gguf'",
                          &output);
    if (status != 0) (void)fprintf(stderr, "%s", output);
    free(output);
    return status;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(split_by_rows_and_by_layers),
    cmocka_unit_test(fewer_bits_by_real_blocks),
    cmocka_unit_test(layers_on_the_cpu),
    cmocka_unit_test(no_rate_no_claim),
    cmocka_unit_test(the_best_comes_first),
    cmocka_unit_test(commands_reproduce_their_rows),
    cmocka_unit_test(the_context_at_which_all_is_resident),
    cmocka_unit_test(a_wish_that_is_not_met_names_what_would),
    cmocka_unit_test(wishes_and_the_exit_status),
    cmocka_unit_test(the_gpus_found_and_the_rate_between_them),
    cmocka_unit_test(the_page_is_aligned),
    cmocka_unit_test(compare_and_want_in_one_object),
};

int main(void)
{
    if (make_models() != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}

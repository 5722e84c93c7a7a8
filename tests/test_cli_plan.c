#include "support/json_path.h"
#include "support/support.h"

#include <math.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "support/safetensors_writer.h"

#define PLAN OFLOAD_BIN_DIR "/ofload-plan"
#define BENCH OFLOAD_BIN_DIR "/ofload-bench"
#define SMALL_MACHINE "--vram 12.49GB --link 3.26GB/s --context 512"

/* Runs ofload-plan in the test's folder; the exit status. */
static int plan(const char *arguments, char **output_out)
{
    char line[2048];
    (void)snprintf(line, sizeof line, "cd '%s' && " PLAN " %s", test_folder(), arguments);
    return test_run(line, output_out);
}

/* Qwen2.5-7B's shape as big.gguf, without its bytes; a small model as small.gguf; and small.gguf with an architecture that cannot be
 * run. */
static int make_models(void)
{
    char line[2048], *output = NULL;
    (void)snprintf(line, sizeof line,
                   "cd '%s' && " BENCH " mkmodel --output big.gguf --sparse --architecture qwen2 --layers 28 --hidden 3584 --heads 28 "
                   "--kv-heads 4 --ffn 18944 --vocab 152064 --context 32768 --name big && "
                   BENCH " mkmodel --output middle.gguf --sparse --layers 12 --hidden 1024 --heads 16 --ffn 2816 --vocab 4096 && "
                   BENCH " mkmodel --output small.gguf --architecture qwen2 --layers 4 && "
                   "sed 's/qwen2/gemma/g' small.gguf > other.gguf",
                   test_folder());
    int status = test_run(line, &output);
    if (status != 0) (void)fprintf(stderr, "%s", output);
    free(output);
    return status;
}

static void add_matrix(safetensors_writer *w, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[] = {rows, columns};
    safetensors_tensor(w, name, "BF16", 2, shape, NULL, rows * columns * 2);
}

static void add_vector(safetensors_writer *w, const char *name, uint64_t elements)
{
    safetensors_tensor(w, name, "BF16", 1, &elements, NULL, elements * 2);
}

static void add_layer(safetensors_writer *w, int layer)
{
    static const struct { const char *name; uint64_t rows, columns; } tensors[] = {
        {"self_attn.q_proj.weight", 3584, 3584}, {"self_attn.q_proj.bias", 3584, 0},     {"self_attn.k_proj.weight", 512, 3584},
        {"self_attn.k_proj.bias", 512, 0},       {"self_attn.v_proj.weight", 512, 3584}, {"self_attn.v_proj.bias", 512, 0},
        {"self_attn.o_proj.weight", 3584, 3584}, {"mlp.gate_proj.weight", 18944, 3584},  {"mlp.up_proj.weight", 18944, 3584},
        {"mlp.down_proj.weight", 3584, 18944},   {"input_layernorm.weight", 3584, 0},    {"post_attention_layernorm.weight", 3584, 0}};
    char name[96];
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        (void)snprintf(name, sizeof name, "model.layers.%d.%s", layer, tensors[i].name);
        if (tensors[i].columns != 0) add_matrix(w, name, tensors[i].rows, tensors[i].columns);
        else add_vector(w, name, tensors[i].rows);
    }
}

/* Qwen2.5-7B-Instruct as published, headers only: 15.23 GB of holes. */
static void make_folder(const char *name)
{
    const char *folder = test_make_folder(name);
    char path[512];
    safetensors_writer w;
    test_write_text(folder, "config.json",
                    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":3584,\"intermediate_size\":18944,"
                    "\"num_hidden_layers\":28,"
                    "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"max_position_embeddings\":32768,\"use_sliding_window\":false,"
                    "\"vocab_size\":152064,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"rms_norm_eps\":1e-6,"
                    "\"rope_theta\":1000000.0}");
    safetensors_start(&w);
    add_matrix(&w, "model.embed_tokens.weight", 152064, 3584);
    for (int layer = 0; layer < 28; layer++) add_layer(&w, layer);
    add_vector(&w, "model.norm.weight", 3584);
    add_matrix(&w, "lm_head.weight", 152064, 3584);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_save(&w, path);
    safetensors_end(&w);
}

static cJSON *plan_json(const char *arguments)
{
    char line[1024], *output = NULL;
    (void)snprintf(line, sizeof line, "--json %s", arguments);
    int status = plan(line, &output);
    if (status != 0) fail_msg("%s: %d: %s", line, status, output);
    cJSON *tree = cJSON_Parse(output);
    assert_non_null(tree);
    free(output);
    return tree;
}

static void the_json_has_every_key_of_the_contract(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "schema", "identity.model", "identity.machine", "identity.plan", "model.name", "model.architecture", "model.layers",
        "model.parameters", "model.weight_bytes", "model.kv_bytes_per_token", "model.state_bytes_per_sequence", "model.embedding_bytes",
        "model.tied_output", "model.expert_count", "model.expert_used_count", "model.unused", "machine.device", "machine.simulated",
        "machine.vram_bytes", "machine.host_bytes", "machine.pinnable_bytes", "machine.link_bytes_per_second",
        "machine.link_pageable_bytes_per_second", "machine.copy_start_seconds", "machine.file_bytes_per_second",
        "machine.device_bytes_per_second", "machine.device_flops_per_second", "machine.sources.link_bytes_per_second", "workload.context",
        "workload.sequences", "workload.queue_length", "workload.prefill_chunk", "workload.tokens_per_step_cap", "workload.kv_type",
        "workload.objective", "budget.vram_bytes", "budget.total_bytes", "budget.resident_bytes", "budget.ring_bytes", "budget.kv_bytes",
        "budget.activation_bytes", "budget.runtime_bytes", "budget.headroom_bytes", "tiers.device_bytes", "tiers.pinned_bytes",
        "tiers.pageable_bytes", "tiers.file_bytes", "units", "stream.bytes_per_step", "stream.copies_per_step",
        "stream.lower_bound_bytes_per_step", "kv.bytes_per_token", "kv.capacity_tokens", "kv.max_sequences_at_context",
        "forecast.sequences", "forecast.step_seconds", "forecast.link_seconds", "forecast.compute_seconds", "forecast.link_idle_seconds",
        "forecast.stall_seconds", "forecast.error_band_percent", "forecast.tokens_per_second", "forecast.bound", "forecast.knee_tokens",
        "forecast.first_token_seconds", "forecast.load_seconds", "forecast.by_sequences", "advice",
    };
    cJSON *tree = plan_json(SMALL_MACHINE " big.gguf");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) (void)at(tree, paths[i]);
    assert_string_equal(text(tree, "schema"), "ofload.plan/1");
    assert_string_equal(text(tree, "machine.sources.link_bytes_per_second"), "given");
    assert_string_equal(text(tree, "machine.sources.device_flops_per_second"), "assumed");
    const cJSON *unit = at(tree, "units")->child, *tensor = at(unit, "tensors")->child;
    static const char *const unit_keys[] = {"name", "streamed_bytes", "compute_seconds"};
    static const char *const tensor_keys[] = {"name", "class", "bytes", "tier"};
    for (size_t i = 0; i < sizeof unit_keys / sizeof unit_keys[0]; i++) (void)at(unit, unit_keys[i]);
    for (size_t i = 0; i < sizeof tensor_keys / sizeof tensor_keys[0]; i++) (void)at(tensor, tensor_keys[i]);
    cJSON_Delete(tree);
}

static void the_budget_adds_up_and_keeps_below_the_limit(void **state)
{
    (void)state;
    static const char *const lines[] = {SMALL_MACHINE " big.gguf",
                                        "--vram 5GB big.gguf",
                                        "--vram 24GiB big.gguf",
                                        "--vram 32MB --overhead 0 --context 256 small.gguf",
                                        SMALL_MACHINE " --objective throughput big.gguf",
                                        SMALL_MACHINE " --cut off big.gguf"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        cJSON *tree = plan_json(lines[i]);
        double sum = number(tree, "budget.resident_bytes") + number(tree, "budget.ring_bytes") + number(tree, "budget.kv_bytes") +
                     number(tree, "budget.activation_bytes") + number(tree, "budget.runtime_bytes") + number(tree, "budget.headroom_bytes");
        if (sum != number(tree, "budget.total_bytes") || sum > number(tree, "budget.vram_bytes")) fail_msg("%s: %.0f", lines[i], sum);
        cJSON_Delete(tree);
    }
}

/* The published experiment: 13 of 28 layers resident, 3.26 GB/s: 6.99 GB a step, 0.466 tokens/s. */
static void the_layout_of_the_field_experiment(void **state)
{
    (void)state;
    make_folder("qwen");
    cJSON *tree = plan_json("--vram 12.49GB --link 3.26GB/s --resident-layers 13 --context 512 qwen");
    assert_true(number(tree, "model.weight_bytes") == 15231233024.0);
    assert_int_equal(number(tree, "model.kv_bytes_per_token"), 57344);
    assert_true(fabs(number(tree, "stream.bytes_per_step") / 1e9 - 6.99) < 0.01);
    assert_true(fabs(number(tree, "forecast.tokens_per_second") - 0.466) < 0.001);
    cJSON *own = plan_json(SMALL_MACHINE " qwen");
    assert_true(number(own, "forecast.tokens_per_second") > 1.9 * 0.46);
    cJSON_Delete(own);
    cJSON_Delete(tree);
}

static void given_figures_reach_the_plan(void **state)
{
    (void)state;
    cJSON *tree = plan_json("--vram 6GB --host-ram 40GB --link 2GB/s --link-pageable 1.5GB/s --device-bandwidth 200GB/s "
                            "--device-flops 9TFLOP/s --overhead 500MB --headroom 10% --context 256 "
                            "--sequences 3 --prefill-chunk 64 --kv-type f32 --cut 8MB big.gguf");
    assert_true(number(tree, "machine.vram_bytes") == 6e9 && number(tree, "machine.host_bytes") == 40e9 &&
                number(tree, "machine.link_bytes_per_second") == 2e9);
    assert_true(number(tree, "machine.link_pageable_bytes_per_second") == 1.5e9 &&
                number(tree, "machine.device_bytes_per_second") == 200e9);
    assert_true(number(tree, "machine.device_flops_per_second") == 9e12);
    assert_true(number(tree, "budget.runtime_bytes") == 500e6);
    assert_true(number(tree, "budget.headroom_bytes") >= 600e6);
    assert_true(number(tree, "workload.context") == 256 && number(tree, "workload.sequences") == 3 &&
                number(tree, "workload.prefill_chunk") == 64);
    assert_string_equal(text(tree, "workload.kv_type"), "f32");
    assert_true(number(tree, "kv.bytes_per_token") == 2 * 57344);
    cJSON_Delete(tree);
    tree = plan_json("--vram 6GB --headroom 0 --objective throughput --queue 7 --context 256 big.gguf");
    assert_true(number(tree, "budget.headroom_bytes") == 0);
    assert_true(number(tree, "workload.sequences") <= 7);
    assert_string_equal(text(tree, "workload.objective"), "throughput");
    cJSON_Delete(tree);
}

static void the_same_inputs_give_the_same_bytes(void **state)
{
    (void)state;
    char *first = NULL, *second = NULL;
    assert_int_equal(plan("--json " SMALL_MACHINE " --output one.json big.gguf", &first), 0);
    assert_int_equal(plan("--quiet " SMALL_MACHINE " --output two.json big.gguf", &second), 0);
    assert_string_equal(second, "");
    char *one = test_read(test_path("one.json"), NULL), *two = test_read(test_path("two.json"), NULL);
    assert_string_equal(one, two);
    assert_string_equal(one, first);
    free(one);
    free(two);
    free(first);
    free(second);
}

static void devices_and_saved_machines(void **state)
{
    (void)state;
    cJSON *tree = plan_json("--device sim:vram=2GB,h2d=1GB/s,start=5us,clock=virtual,runtime=100MB --context 64 big.gguf");
    assert_true(cJSON_IsTrue(at(tree, "machine.simulated")));
    assert_string_equal(text(tree, "machine.sources.link_bytes_per_second"), "measured");
    assert_true(fabs(number(tree, "machine.link_bytes_per_second") - 1e9) < 1e6);
    assert_true(number(tree, "budget.runtime_bytes") == 100e6);
    cJSON_Delete(tree);
    char line[1024];
    (void)snprintf(line, sizeof line, "cd '%s' && " BENCH " link --device sim:vram=2GB,h2d=2GB/s,clock=virtual --save saved.json",
                   test_folder());
    assert_int_equal(test_run(line, NULL), 0);
    tree = plan_json("--machine saved.json --context 64 big.gguf");
    cJSON *again = plan_json("--machine saved.json --context 64 big.gguf");
    assert_string_equal(text(tree, "machine.sources.link_bytes_per_second"), "measured");
    assert_string_equal(text(tree, "identity.plan"), text(again, "identity.plan"));
    cJSON_Delete(again);
    cJSON_Delete(tree);
}

static void mistakes_have_their_exit_status_and_a_sentence(void **state)
{
    (void)state;
    static const struct { const char *arguments; int exit_status; const char *says; } cases[] = {
        {"", 2, "one model is needed, 0 given"},
        {"--vram 12GB a b", 2, "one model is needed, 2 given"},
        {"--device none big.gguf", 2, "--vram SIZE"},
        {"--vram 24G big.gguf", 2, "24GiB is 25,769,803,776"},
        {"--vrma 24GB big.gguf", 2, "did you mean --vram?"},
        {"--vram 24GB --vram 24GB big.gguf", 2, "twice"},
        {"--comparison --vram 24GB big.gguf", 2, "--comparison is no option"},
        {"--vram 12GB --json --quiet big.gguf", 2, "contradict"},
        {"--vram 12GB --sequences 0 big.gguf", 2, "--sequences"},
        {"--vram 12GB --context 0 big.gguf", 2, "--context"},
        {"--vram 12GB --headroom 100% big.gguf", 2, "--headroom"},
        {"--vram 12GB --headroom x big.gguf", 2, "--headroom"},
        {"--vram 12GB --cut 0 big.gguf", 2, "--cut"},
        {"--vram 12GB --queue 9 big.gguf", 2, "queue"},
        {"--machine x.json --device cuda:0 big.gguf", 2, "--machine and --device"},
        {"--machine missing.json big.gguf", 1, "missing.json"},
        {"--device sim:nonsense big.gguf", 2, "sim:nonsense"},
        {"--device sim:vram=1GB,h2d=1GB/s,clock=virtual --vram 2GB big.gguf", 2, "more than the 1.00 GB"},
        {"--vram 12GB missing.gguf", 1, "missing.gguf"},
        {"--vram 300MB big.gguf", 3, "fit"},
        {"--vram 12GB --sequences 100000 big.gguf", 3, "at most"},
        {"--vram 12GB --resident-layers 28 big.gguf", 3, "ofload-plan: "},
        {"--vram 12GB --output /nonexistent/plan.json big.gguf", 1, "/nonexistent/plan.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int status = plan(cases[i].arguments, &output);
        if (status != cases[i].exit_status || strstr(output, cases[i].says) == NULL || strncmp(output, "ofload-plan: ", 13) != 0)
            fail_msg("%s: %d: %s", cases[i].arguments, status, output);
        if (strchr(output, '\n') != output + strlen(output) - 1) fail_msg("%s: more than one line: %s", cases[i].arguments, output);
        free(output);
    }
}

static void a_cut_file_and_a_full_disk(void **state)
{
    (void)state;
    char *output = NULL;
    assert_int_equal(truncate(test_path("small.gguf"), 3000) == 0 && plan("--vram 1GB small.gguf", &output) == 1, 1);
    assert_non_null(strstr(output, "small.gguf"));
    free(output);
    assert_int_equal(plan(SMALL_MACHINE " --json big.gguf > /dev/full", &output), 1);
    assert_non_null(strstr(output, "standard output cannot be written"));
    free(output);
}

/* Occurrences of `what` on the page's line that starts with `start`. */
static int count_on_line(const char *page, const char *start, const char *what)
{
    const char *line = strstr(page, start);
    if (line == NULL) fail_msg("no line \"%s\" in:\n%s", start, page);
    const char *end = strchr(line, '\n');
    int count = 0;
    for (const char *found = strstr(line, what); found != NULL && found < end; found = strstr(found + 1, what)) count++;
    return count;
}

/* Joins the lines of sentences that the page has broken: those indented by four or more. */
static void unwrap(char *page)
{
    char *to = page;
    for (const char *from = page; *from != '\0'; from++) {
        if (strncmp(from, "\n    ", 5) != 0) {
            *to++ = *from;
            continue;
        }
        *to++ = ' ';
        while (from[1] == ' ') from++;
    }
    *to = '\0';
}

static void the_page_says_what_the_plan_says(void **state)
{
    (void)state;
    char *page = NULL, wanted[64];
    cJSON *tree = plan_json("--vram 12.49GB --link 3.26GB/s --resident-layers 13 --context 512 big.gguf");
    assert_int_equal(plan("--vram 12.49GB --link 3.26GB/s --resident-layers 13 --context 512 big.gguf", &page), 0);
    assert_non_null(strstr(page, "big  qwen2, 28 layers, 7.62 billion parameters, bf16, 15.23 GB"));
    assert_non_null(strstr(page, "no device: memory 12.49 GB (given), link 3.26 GB/s (given), computing 25 TFLOP/s (assumed)"));
    assert_non_null(strstr(page, "device memory, 12.49 GB"));
    assert_int_equal(count_on_line(page, "  layers", "█"), 13 + 1);
    assert_int_equal(count_on_line(page, "host memory", "8.08 GB needed (assumed to be there"), 1);
    assert_int_equal(count_on_line(page, "  streamed", "6.99 GB  pinned"), 1);
    assert_int_equal(count_on_line(page, "  looked up", "1.09 GB  embedding"), 1);
    (void)snprintf(wanted, sizeof wanted, "%.2f ring", number(tree, "budget.ring_bytes") / 1e9);
    assert_int_equal(count_on_line(page, "  weights", wanted), 1);
    assert_int_equal(count_on_line(page, "  KV", "512 tokens, one sequence of 512"), 1);
    assert_int_equal(count_on_line(page, "  headroom", "5 %"), 1);
    assert_int_equal(count_on_line(page, "1 sequence ", "0.466 tokens/s"), 1);
    assert_int_equal(count_on_line(page, "1 sequence ", "link-bound"), 1);
    assert_int_equal(count_on_line(page, "sequences  ", " 64 "), 1);
    assert_int_equal(count_on_line(page, "knee ", "tokens a step"), 1);
    assert_int_equal(count_on_line(page, "tokens/s  ", "0.466"), 1);
    free(page);
    cJSON_Delete(tree);
    assert_int_equal(plan("--vram 12.49GB --link 3.26GB/s big.gguf", &page), 0);
    unwrap(page);
    assert_non_null(strstr(page, "a context of 4,096 tokens is the default; --context takes more, the model was trained for up to 32,768"));
    assert_non_null(strstr(page, "for a long queue: "));
    assert_null(strstr(page, "cannot be run"));
    free(page);
}

/* Every sentence of the plan's own advice, as it is, and once. */
static void the_advice_is_the_plans(void **state)
{
    (void)state;
    char *page = NULL;
    cJSON *tree = plan_json("--vram 12.49GB --link 3.26GB/s big.gguf");
    const cJSON *sentence;
    assert_int_equal(plan("--vram 12.49GB --link 3.26GB/s big.gguf", &page), 0);
    unwrap(page);
    assert_true(cJSON_GetArraySize(at(tree, "advice")) > 1);
    cJSON_ArrayForEach(sentence, at(tree, "advice"))
    {
        const char *found = strstr(page, sentence->valuestring);
        if (found == NULL || strstr(found + 1, sentence->valuestring) != NULL) fail_msg("\"%s\" in:\n%s", sentence->valuestring, page);
    }
    const char *heading = strstr(page, "what would help most:\n  - ");
    assert_non_null(heading);
    assert_ptr_equal(strstr(page, at(tree, "advice")->child->valuestring), heading + strlen("what would help most:\n  - "));
    free(page);
    cJSON_Delete(tree);
}

/* Three significant digits, where the link alone decides, of 6.99 GB a step. */
static void rates_have_three_digits(void **state)
{
    (void)state;
    static const struct { const char *link, *says; } cases[] = {
        {"0.326GB/s", "0.0466 tokens/s"}, {"3.26GB/s", "0.466 tokens/s"}, {"7GB/s", "1.00 tokens/s"}, {"14GB/s", "2.00 tokens/s"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256], *page = NULL;
        (void)snprintf(line, sizeof line, "--vram 12.49GB --link %s --resident-layers 13 --context 512 big.gguf", cases[i].link);
        assert_int_equal(plan(line, &page), 0);
        if (count_on_line(page, "1 sequence ", cases[i].says) != 1) fail_msg("no %s in:\n%s", cases[i].says, page);
        free(page);
    }
}

static void what_cannot_be_run_is_planned_and_said(void **state)
{
    (void)state;
    char *page = NULL;
    int status = plan("--vram 1GB other.gguf", &page);
    if (status != 0 || strstr(page, "gemma can be planned, it cannot be run by ofload-batch (which runs llama, qwen2 and qwen3)") == NULL)
        fail_msg("%d: %s", status, page);
    free(page);
}

/* What is left over is said for what it is: nothing wants it, or it is too little. */
static void memory_that_is_not_used_is_explained(void **state)
{
    (void)state;
    static const struct { const char *arguments, *says; } cases[] = {
        {"--vram 60MB --link 3.26GB/s --overhead 0 --context 512 --objective throughput --queue 1 middle.gguf",
         "too little for another part"},
        {"--vram 12GB --link 3.26GB/s --context 512 middle.gguf", "need no more"},
        {"--vram 12GB --link 3.26GB/s --context 512 --resident-layers 2 middle.gguf", "left so by --resident-layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *page = NULL;
        assert_int_equal(plan(cases[i].arguments, &page), 0);
        assert_int_equal(count_on_line(page, "  not used", cases[i].says), 1);
        free(page);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_json_has_every_key_of_the_contract),
    cmocka_unit_test(the_budget_adds_up_and_keeps_below_the_limit),
    cmocka_unit_test(the_layout_of_the_field_experiment),
    cmocka_unit_test(given_figures_reach_the_plan),
    cmocka_unit_test(the_same_inputs_give_the_same_bytes),
    cmocka_unit_test(devices_and_saved_machines),
    cmocka_unit_test(mistakes_have_their_exit_status_and_a_sentence),
    cmocka_unit_test(the_page_says_what_the_plan_says),
    cmocka_unit_test(the_advice_is_the_plans),
    cmocka_unit_test(rates_have_three_digits),
    cmocka_unit_test(what_cannot_be_run_is_planned_and_said),
    cmocka_unit_test(a_cut_file_and_a_full_disk),
    cmocka_unit_test(memory_that_is_not_used_is_explained),
};

int main(void)
{
    if (make_models() != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}

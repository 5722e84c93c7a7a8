#include "bench_runs.h"

#include <math.h>
#include <sys/stat.h>

/* Runs mkmodel with these arguments and a fresh file, and opens it. */
static ofl_model *make(const char *arguments, const char **path_out)
{
    static int number;
    char name[32], line[1024], *output = NULL;
    ofl_model *model = NULL;
    (void)snprintf(name, sizeof name, "made-%d.gguf", number++);
    const char *path = test_path(name);
    (void)snprintf(line, sizeof line, "mkmodel --output '%s' %s", path, arguments);
    int status = bench(line, &output);
    if (status != 0) fail_msg("%s: %d: %s", line, status, output);
    free(output);
    assert_ok(ofl_model_open(path, &model));
    if (path_out != NULL) *path_out = path;
    return model;
}

static void models_of_every_architecture_open_with_the_shape_asked_for(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3"};
    static const uint32_t blocks_of[] = {9, 12, 11};
    for (size_t i = 0; i < 3; i++) {
        char arguments[256];
        (void)snprintf(arguments, sizeof arguments,
                       "--architecture %s --layers 3 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 300 --context 777 --name tiny",
                       names[i]);
        ofl_model *model = make(arguments, NULL);
        ofl_model_shape shape = {.struct_size = sizeof shape};
        assert_ok(ofl_model_shape_get(model, &shape));
        assert_string_equal(ofl_model_architecture(model), names[i]);
        assert_string_equal(ofl_model_name(model), "tiny");
        assert_int_equal(shape.block_count, 3);
        assert_int_equal(shape.hidden_size, 64);
        assert_int_equal(shape.head_count, 4);
        assert_int_equal(shape.head_count_kv, 2);
        assert_int_equal(shape.head_dim_k, 16);
        assert_int_equal(shape.ffn_size, 96);
        assert_int_equal(shape.vocab_size, 300);
        assert_int_equal(shape.trained_context_tokens, 777);
        assert_int_equal(shape.tied_output, 0);
        assert_int_equal(ofl_model_tensor_count(model), 3 + 3 * blocks_of[i]);
        ofl_model_destroy(model);
    }
    ofl_model *tied = make("--layers 1 --tied", NULL);
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(tied, &shape));
    assert_int_equal(shape.tied_output, 1);
    ofl_model_destroy(tied);
}

/* Mean square of a matrix's values, read back as floats. */
static double mean_square(const ofl_model *model, const char *name)
{
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        assert_ok(ofl_model_tensor_get(model, i, &t));
        if (strcmp(t.name, name) != 0) continue;
        uint8_t *raw = malloc(t.bytes);
        double sum = 0;
        assert_ok(ofl_model_tensor_read(model, i, 0, t.bytes, raw));
        for (uint64_t e = 0; e < t.elements; e++) {
            float value = 0;
            if (t.dtype == OFL_DTYPE_F32) memcpy(&value, raw + 4 * e, 4);
            if (t.dtype == OFL_DTYPE_BF16) memcpy((char *)&value + 2, raw + 2 * e, 2);
            if (t.dtype == OFL_DTYPE_F16 || t.dtype == OFL_DTYPE_Q8_0) {
                const uint8_t *at = t.dtype == OFL_DTYPE_F16 ? raw + 2 * e : raw + 34 * (e / 32);
                unsigned half = at[0] | (unsigned)at[1] << 8;
                value = ldexpf((float)((half & 1023) | 1024), (int)(half >> 10 & 31) - 25) * (half >> 15 ? -1.0f : 1.0f);
                if (t.dtype == OFL_DTYPE_Q8_0) value *= (float)(int8_t)at[2 + e % 32];
            }
            sum += (double)value * value;
        }
        free(raw);
        return sum / (double)t.elements;
    }
    fail_msg("no tensor %s", name);
    return 0;
}

static void weights_are_scaled_by_their_columns_in_every_type(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "f16", "f32", "q8_0"};
    for (size_t i = 0; i < 4; i++) {
        char arguments[128];
        (void)snprintf(arguments, sizeof arguments, "--layers 1 --hidden 256 --ffn 1024 --type %s", types[i]);
        ofl_model *model = make(arguments, NULL);
        double up = mean_square(model, "blk.0.ffn_up.weight") * 256, down = mean_square(model, "blk.0.ffn_down.weight") * 1024;
        if (!(fabs(up - 1) < 0.02 && fabs(down - 1) < 0.02)) fail_msg("%s: %g and %g instead of 1", types[i], up, down);
        ofl_model_destroy(model);
    }
}

static void the_same_seed_gives_the_same_file(void **state)
{
    (void)state;
    const char *paths[3];
    size_t bytes[3];
    char *files[3];
    const char *const arguments[] = {"--layers 1 --hidden 64", "--layers 1 --hidden 64", "--layers 1 --hidden 64 --seed 2"};
    for (size_t i = 0; i < 3; i++) {
        ofl_model_destroy(make(arguments[i], &paths[i]));
        files[i] = test_read(paths[i], &bytes[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(files[0], files[1], bytes[0]);
    assert_int_equal(bytes[0], bytes[2]);
    assert_int_not_equal(memcmp(files[0], files[2], bytes[0]), 0);
    for (size_t i = 0; i < 3; i++) free(files[i]);
}

static void a_sparse_model_is_a_full_one_without_its_bytes(void **state)
{
    (void)state;
    ofl_model *full = make("--layers 2 --type q8_0", NULL), *sparse = make("--layers 2 --type q8_0 --sparse", NULL);
    assert_string_equal(ofl_model_identity(full), ofl_model_identity(sparse));
    assert_true(mean_square(sparse, "blk.1.ffn_up.weight") == 0);
    ofl_model_destroy(full);
    ofl_model_destroy(sparse);
}

static void mistakes_exit_2_and_failures_1(void **state)
{
    (void)state;
    static const struct { const char *arguments; int exit_status; const char *says; } cases[] = {
        {"", 2, "--help"},
        {"lnik", 2, "lnik"},
        {"link --device sim:vram=1MB", 2, "h2d"},
        {"link --device cuda:999", 1, "cuda"},
        {"link --device sim:vram=1MB,h2d=2GB/s,clock=virtual --peer sim:vram=1MB,h2d=2GB/s", 1, "no path to another device"},
        {"accuracy --repeat 0", 2, "--repeat"},
        {"accuracy --seconds 0", 2, "--seconds"},
        {"accuracy --threads 2", 2, "no effect"},
        {"accuracy --clock virtual --compute products", 2, "only kernels"},
        {"accuracy --only nothing", 2, "no point"},
        {"accuracy --compute products --threads 0", 2, "--threads"},
        {"accuracy --threads 0", 2, "--threads"},
        {"accuracy --seconds nan", 2, "--seconds"},
        {"compare --steps 0", 2, "--steps"},
        {"compare --torch-threads 0", 2, "--torch-threads"},
        {"compare --link 0B/s", 2, "--link"},
        {"front --queue 0", 2, "--queue"},
        {"link --pin 0 --device sim:vram=1MB,h2d=2GB/s,clock=virtual", 2, "--pin"},
        {"plan --most 0", 2, "--most: give at least 93"},
        {"plan --most 92", 2, "--most"},
        {"plan --bound --most 100", 2, "--most"},
        {"units --most 0", 2, "--most: give at least 16"},
        {"units --most 15", 2, "--most"},
        {"load --most 0", 2, "--most"},
        {"load --most 31MiB", 2, "--most"},
        {"replay 3060 --steps 0", 2, "--steps"},
        {"replay published --steps 3", 2, "--steps: has no effect"},
        {"replay published --scale 0", 2, "--scale: has no effect"},
        {"stream --compute ,", 2, "bench stream: --compute: no number"},
        {"stream --compute 0", 2, "--compute 0: give"},
        {"stream --compute nan", 2, "--compute nan: give"},
        {"designs --compute ,", 2, "bench designs: --compute: no number"},
        {"designs --tokens ,", 2, "bench designs: --tokens: no number"},
        {"designs --tokens 0", 2, "--tokens 0: give"},
        {"stream --steps 0", 2, "--steps"},
        {"stream --weights 0", 2, "--weights"},
        {"stream --resident 0", 2, "--resident"},
        {"stream --part 0", 2, "--part"},
        {"stream --ring 0", 2, "--ring"},
        {"stream --link 0", 2, "--link"},
        {"stream --device sim:vram=1GB,h2d=1GB/s --clock wall", 2, "bench stream: --clock: has no effect"},
        {"compare --python \"it's\"", 2, "--python"},
        {"compare --clock virtual --seconds 0.01 --python false", 1, "no result"},
        {"load --folder /nonexistent --most 32MiB", 1, "/nonexistent"},
        {"mkmodel", 2, "--output"},
        {"mkmodel --output /nonexistent/x.gguf", 1, "/nonexistent/x.gguf"},
        {"mkmodel --output x --heads 3 --kv-heads 2", 2, "multiple"},
        {"mkmodel --output x --hidden 30 --heads 2", 2, "even"},
        {"mkmodel --output x --hidden 48 --heads 2 --type q8_0", 2, "32"},
        {"mkmodel --output x --vocab 100", 2, "--vocab"},
        {"mkmodel --output x --kv-heads 0", 2, "--kv-heads"},
        {"mkmodel --output x --head-dim 0", 2, "--head-dim"},
        {"mkmodel --output x --layers 0", 2, "--layers"},
        {"mkmodel --output x extra", 2, "extra"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int status = bench(cases[i].arguments, &output);
        if (status != cases[i].exit_status || strstr(output, cases[i].says) == NULL)
            fail_msg("%s: %d: %s", cases[i].arguments, status, output);
        free(output);
    }
}

/* A failure half-way leaves standard output empty: half a table would be taken for all of it. */
static void a_failure_prints_no_table(void **state)
{
    (void)state;
    static const char *const commands[] = {"stream --clock virtual --weights 8MB --ring 4kB 2>/dev/null",
                                           "stream --clock virtual --weights 8MB --ring 4kB --json 2>/dev/null"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char *output = NULL;
        assert_int_not_equal(bench(commands[i], &output), 0);
        assert_string_equal(output, "");
        free(output);
    }
}

/* Every subcommand takes --quiet: the rows alone. JSON stays what it is. */
static void quiet_leaves_the_rows_alone(void **state)
{
    (void)state;
    char mkmodel[512];
    (void)snprintf(mkmodel, sizeof mkmodel, "mkmodel --layers 1 --output '%s'", test_path("quiet.gguf"));
    const char *const commands[] = {
        mkmodel,
        "link --device sim:vram=1MB,h2d=2GB/s,clock=virtual",
        "plan --most 1000",
        "front",
        "front --queue 3",
        "units --most 16",
        "load --most 32MiB",
        "accuracy --clock virtual --repeat 1 --seconds 0.01 --only 'deep, all'",
        "stream --clock virtual --weights 8MB --steps 1 --compute 0.5",
        "stream --clock virtual --weights 8MB --steps 1 --compute 0.5 --from pageable",
        "stream --clock virtual --weights 8MB --steps 1 --compute 0.5 --from file",
        "designs --clock virtual --weights 8MB --steps 1 --compute 0.5",
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[1024], *output = NULL;
        (void)snprintf(line, sizeof line, "%s --quiet", commands[i]);
        if (bench(line, &output) != 0 || strncmp(output, "label ", 6) != 0) fail_msg("%s: %s", line, output);
        free(output);
        (void)snprintf(line, sizeof line, "%s --quiet --json", commands[i]);
        if (bench(line, &output) != 0 || output[0] != '{') fail_msg("%s: %s", line, output);
        free(output);
    }
}

static void a_full_disk_is_said(void **state)
{
    (void)state;
    char *output = NULL;
    int status = bench("plan --most 100 >/dev/full", &output);
    if (status != 1 || strstr(output, "standard output") == NULL) fail_msg("%d: %s", status, output);
    free(output);
}

static void the_link_report_follows_its_schema(void **state)
{
    (void)state;
    char *output = NULL, line[512];
    const char *machine_path = test_path("machine.json");
    (void)snprintf(line, sizeof line, "link --json --device sim:vram=64MiB,h2d=2GB/s,start=5us,clock=virtual --save '%s'", machine_path);
    assert_int_equal(bench(line, &output), 0);
    cJSON *tree = cJSON_Parse(output);
    assert_non_null(tree);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "schema")), "ofload.bench/1");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "name")), "link");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "clock")), "virtual");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(tree, "simulated")));
    const cJSON *row;
    int rows = 0, computing = 0, both_ways = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(tree, "rows"))
    {
        double rate = cJSON_GetNumberValue(cJSON_GetObjectItem(row, "bytes_per_second"));
        const cJSON *bytes = cJSON_GetObjectItem(row, "bytes");
        const char *label = cJSON_GetStringValue(cJSON_GetObjectItem(row, "label"));
        computing += strncmp(label, "pinned to device, computing, ", 29) == 0;
        both_ways += strstr(label, ", both ways, ") != NULL;
        if (bytes == NULL && strncmp(label, "fit, ", 5) != 0) continue; /* link, host and what can be page-locked */
        double wanted = bytes != NULL ? bytes->valuedouble / (5e-6 + bytes->valuedouble / 2e9) : 2e9;
        if (!(fabs(rate - wanted) < 1e-3 * wanted))
            fail_msg("%s: %g instead of %g", cJSON_GetStringValue(cJSON_GetObjectItem(row, "label")), rate, wanted);
        rows++;
    }
    assert_true(rows > 20);
    assert_int_equal(computing, 1);
    assert_int_equal(both_ways, 2);
    cJSON_Delete(tree);
    free(output);
    ofl_machine *machine = NULL;
    assert_ok(ofl_machine_load(machine_path, &machine));
    assert_true(fabs(ofl_machine_get(machine, OFL_FIGURE_LINK, NULL) - 2e9) < 2e6);
    assert_true(fabs(ofl_machine_get(machine, OFL_FIGURE_LINK_COMPUTING, NULL) - 2e9) < 2e6);
    ofl_machine_destroy(machine);
}

static void planning_a_thousand_layers_stays_small(void **state)
{
    (void)state;
    cJSON *tree = run_report("plan --json --most 10000", 4);
    assert_true(in_row(tree, 2, "tensors") == 9003);
    assert_true(in_row(tree, 2, "units") >= 1000);
    assert_true(in_row(tree, 2, "plan_seconds") > 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(in_row(tree, 2, "peak_bytes") < 64.0 * 1048576);
#endif
    cJSON_Delete(tree);
}

static void units_and_loading_are_timed_by_size(void **state)
{
    (void)state;
    cJSON *tree = run_report("units --json --most 64", 2);
    assert_true(in_row(tree, 0, "units") == 16 && in_row(tree, 1, "units") == 64);
    for (int i = 0; i < 2; i++) assert_true(in_row(tree, i, "seconds_per_unit") > 0 && in_row(tree, i, "streamed_units") >= 1);
    cJSON_Delete(tree);
    tree = run_report("load --json --most 32MiB", 2);
    for (int i = 0; i < 2; i++) assert_true(in_row(tree, i, "bytes") == 32.0 * 1048576 && in_row(tree, i, "bytes_per_second") > 0);
    cJSON_Delete(tree);
}

/* On the virtual clock compute is measured without noise, so nothing is left to differ but the timeline and the engine. */
static void the_accuracy_table_is_exact_where_nothing_is_measured(void **state)
{
    (void)state;
    enum { POINTS = 33 };
    cJSON *tree = run_report("accuracy --json --clock virtual --repeat 1 --seconds 0.01", POINTS + 1);
    int link = 0, over_bound = 0;
    for (int i = 0; i < POINTS; i++) {
        if (!(fabs(in_row(tree, i, "error_percent")) < 0.1)) fail_msg("row %d: %g %%", i, in_row(tree, i, "error_percent"));
        assert_true(in_row(tree, i, "spread_percent") == 0);
        assert_true(fabs(in_row(tree, i, "compute_error_percent")) < 0.1);
        assert_true(in_row(tree, i, "over_bound") > 0.999 && in_row(tree, i, "steps") >= 8);
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "rows"), i);
        link += strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(row, "bound")), "link") == 0;
        over_bound += in_row(tree, i, "over_bound") > 1.001;
    }
    assert_true(link > 8 && link < POINTS - 8);
    assert_true(over_bound > 0); /* some steps near the knee wait; the forecast knew */
    assert_true(in_row(tree, POINTS, "median_error_percent") < 0.01 && in_row(tree, POINTS, "worst_error_percent") < 0.1);
    cJSON_Delete(tree);
}

/* A stand-in for Python: writes down what it was asked for, and answers. */
static const char *fake_python(const char *name, const char *answer, int exit_status)
{
    char text[512];
    const char *path = test_path(name), *asked = test_path("asked.txt");
    (void)snprintf(text, sizeof text, "#!/bin/sh\necho \"$@\" >>'%s'\necho '%s'\nexit %d\n", asked, answer, exit_status);
    test_write(path, text, strlen(text));
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static void the_comparison_gives_both_the_same_work(void **state)
{
    (void)state;
    char line[512], *output = NULL;
    size_t bytes = 0;
    (void)snprintf(line, sizeof line, "compare --json --clock virtual --seconds 0.01 --link 2GB/s --python '%s'",
                   fake_python("python.sh", "{\"step_seconds\": 0.5, \"threads\": 2, \"versions\": \"torch 9\"}", 0));
    cJSON *tree = run_report(line, 16);
    for (int i = 0; i < 16; i += 2) {
        double own = in_row(tree, i + 1, "step_seconds");
        assert_true(in_row(tree, i, "step_seconds") == 0.5);
        assert_true(fabs(in_row(tree, i + 1, "times_as_fast") - 0.5 / own) < 1e-9);
        assert_true(fabs(in_row(tree, i + 1, "error_percent")) < 0.1);
    }
    assert_true(in_row(tree, 15, "tokens_per_second") > 0);
    cJSON_Delete(tree);
    char *asked = test_read(test_path("asked.txt"), &bytes);
    assert_non_null(strstr(asked, "compare_torch.py --layers 16 --hidden 512 "));
    assert_non_null(strstr(asked, "--link 2000000000 "));
    free(asked);
    (void)snprintf(line, sizeof line, "compare --json --clock virtual --seconds 0.01 --python '%s'", fake_python("none.sh", "", 77));
    assert_int_equal(bench(line, &output), 77);
    assert_non_null(strstr(output, "setup.sh"));
    free(output);
}

static void the_front_is_timed_to_the_end_of_its_queue(void **state)
{
    (void)state;
    cJSON *tree = run_report("front --json", 7);
    for (int i = 0; i < 7; i++) {
        assert_true(in_row(tree, i, "steps") > 100);
        assert_true(in_row(tree, i, "seconds_per_step") > 0);
        assert_true(i == 0 || in_row(tree, i, "items_per_step") > in_row(tree, i - 1, "items_per_step"));
    }
    cJSON_Delete(tree);
}

/* Engine, front and plan together, on the virtual clock: the slots stay full, each step takes what it was to take, and the queue ends well before
 * groups would that wait for their longest. */
static void a_queue_ends_as_foretold_and_before_static_batches(void **state)
{
    (void)state;
    cJSON *tree = run_report("front --queue 500 --json", 3);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(tree, "simulated")));
    for (int i = 0; i < 3; i++) assert_true(in_row(tree, i, "over_forecast") > 0.95 && in_row(tree, i, "over_forecast") < 1.05);
    for (int i = 1; i < 3; i++) {
        assert_true(fabs(in_row(tree, i, "error_percent")) < 2);
        assert_true(in_row(tree, i, "gain") > 1.5);
        assert_true(in_row(tree, i, "steps") < in_row(tree, 0, "steps"));
    }
    assert_true(in_row(tree, 1, "slots_busy") > 0.95);
    assert_true(in_row(tree, 2, "seconds") < in_row(tree, 1, "seconds")); /* longest first: no long one is left for the end */
    cJSON_Delete(tree);
}

/* On the virtual clock, so that a busy machine does not matter. */
static void the_engine_is_near_its_bound_and_before_simpler_designs(void **state)
{
    (void)state;
    cJSON *tree = run_report("designs --json --clock virtual --weights 128MB --steps 3 --compute 0.5,0.9", 8);
    for (int share = 0; share < 2; share++) {
        double own = in_row(tree, 4 * share + 3, "over_bound");
        if (!(own >= 0.999 && own < 1.05)) fail_msg("%d: %g of the bound", share, own);
        assert_true(fabs(in_row(tree, 4 * share + 3, "error_percent")) < 2);
        for (int design = 0; design < 3; design++) assert_true(in_row(tree, 4 * share + design, "over_bound") > own);
    }
    cJSON_Delete(tree);
    char *output = NULL;
    assert_int_equal(bench("designs --clock virtual --weights 8MB --resident 70 --steps 1 --compute 0.5", &output), 0);
    assert_non_null(strstr(output, "forecast_seconds")); /* a column that only the last row has */
    free(output);
    tree = run_report("stream --json --clock virtual --weights 128MB --steps 3 --compute 0.5,0.9", 2);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(tree, "simulated")));
    for (int share = 0; share < 2; share++) assert_true(in_row(tree, share, "link_share") > 0.9);
    cJSON_Delete(tree);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(models_of_every_architecture_open_with_the_shape_asked_for),
    cmocka_unit_test(weights_are_scaled_by_their_columns_in_every_type),
    cmocka_unit_test(the_same_seed_gives_the_same_file),
    cmocka_unit_test(a_sparse_model_is_a_full_one_without_its_bytes),
    cmocka_unit_test(mistakes_exit_2_and_failures_1),
    cmocka_unit_test(a_failure_prints_no_table),
    cmocka_unit_test(quiet_leaves_the_rows_alone),
    cmocka_unit_test(a_full_disk_is_said),
    cmocka_unit_test(the_link_report_follows_its_schema),
    cmocka_unit_test(planning_a_thousand_layers_stays_small),
    cmocka_unit_test(units_and_loading_are_timed_by_size),
    cmocka_unit_test(the_accuracy_table_is_exact_where_nothing_is_measured),
    cmocka_unit_test(the_comparison_gives_both_the_same_work),
    cmocka_unit_test(the_front_is_timed_to_the_end_of_its_queue),
    cmocka_unit_test(a_queue_ends_as_foretold_and_before_static_batches),
    cmocka_unit_test(the_engine_is_near_its_bound_and_before_simpler_designs),
};

TEST_MAIN(tests)

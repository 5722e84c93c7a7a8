/* Out of device memory with the real driver on a simulated device: the linker puts calls of this file before those of the device, and so
 * another process takes memory at the moment that a test likes. The answers are those of an undisturbed run, byte for byte. */
#include "support/support.h"

#include <cjson/cJSON.h>
#include <unistd.h>

#include "base/base.h"
#include "batch/forward.h"
#include "batch/setup.h"
#include "common/app_error.h"

/* ---- the other process ---- */

enum { FAULTS = 4 };
static struct {
    uint64_t most;                 /* bytes that this program may hold; UINT64_MAX: what the device has */
    bool runs;                     /* the forward pass is open: what is acquired before is measured alone */
    uint64_t acquires, fail_at[FAULTS]; /* which acquire of a unit fails; 0: none */
    double leaves[FAULTS];         /* share of what is held then that may be held from then on */
    double leaves_at_open;         /* the same when KV and temporaries are allocated for the first time; 0: all */
    uint64_t held_at_fault;
} other;

ofl_status __real_ofl_device_alloc(ofl_device *device, uint64_t bytes, void **out);
ofl_status __wrap_ofl_device_alloc(ofl_device *device, uint64_t bytes, void **out);
ofl_status __real_ofl_device_memory_get(ofl_device *device, ofl_memory_info *out);
ofl_status __wrap_ofl_device_memory_get(ofl_device *device, ofl_memory_info *out);
ofl_status __real_ofl_engine_acquire(ofl_engine *engine, uint32_t unit, ofl_stream *stream, ofl_view *out);
ofl_status __wrap_ofl_engine_acquire(ofl_engine *engine, uint32_t unit, ofl_stream *stream, ofl_view *out);
ofl_status __real_forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                               forward **out);
ofl_status __wrap_forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                               forward **out);

static ofl_device *the_device;

static uint64_t held(ofl_device *device)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(__real_ofl_device_memory_get(device, &memory));
    return memory.used_bytes;
}

ofl_status __wrap_ofl_device_alloc(ofl_device *device, uint64_t bytes, void **out)
{
    the_device = device;
    if (other.most != UINT64_MAX && held(device) + bytes > other.most)
        return ofl_fail(OFL_ERROR_DEVICE_MEMORY, "device: %llu bytes are wanted, another process has taken them",
                        (unsigned long long)bytes);
    return __real_ofl_device_alloc(device, bytes, out);
}

ofl_status __wrap_ofl_device_memory_get(ofl_device *device, ofl_memory_info *out)
{
    ofl_status status = __real_ofl_device_memory_get(device, out);
    if (status != OFL_OK || other.most == UINT64_MAX) return status;
    uint64_t left = other.most > out->used_bytes ? other.most - out->used_bytes : 0;
    if (out->free_bytes > left) out->free_bytes = left;
    return status;
}

ofl_status __wrap_ofl_engine_acquire(ofl_engine *engine, uint32_t unit, ofl_stream *stream, ofl_view *out)
{
    if (other.runs) other.acquires++;
    for (int i = 0; i < FAULTS; i++) {
        if (!other.runs || other.fail_at[i] == 0 || other.acquires != other.fail_at[i]) continue;
        if (other.held_at_fault == 0) other.held_at_fault = held(the_device);
        other.most = (uint64_t)(other.leaves[i] * (double)other.held_at_fault);
        return ofl_fail(OFL_ERROR_DEVICE_MEMORY, "device: no memory for what a unit needs");
    }
    return __real_ofl_engine_acquire(engine, unit, stream, out);
}

ofl_status __wrap_forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                               forward **out)
{
    other.runs = true;
    if (other.leaves_at_open > 0 && other.most == UINT64_MAX) other.most = (uint64_t)(other.leaves_at_open * (double)held(device));
    return __real_forward_open(model, plan, engine, device, threads, out);
}

/* ---- runs ---- */

static char model_path[512], in_path[512], out_path[512], report_path[512];

static void make_files(void)
{
    char command[1200];
    (void)snprintf(model_path, sizeof model_path, "%s", test_path("tiny.gguf"));
    (void)snprintf(in_path, sizeof in_path, "%s", test_path("in.jsonl"));
    (void)snprintf(out_path, sizeof out_path, "%s", test_path("out.jsonl"));
    (void)snprintf(report_path, sizeof report_path, "%s", test_path("report.json"));
    (void)snprintf(command, sizeof command,
                   "'%s/ofload-bench' mkmodel --architecture llama --layers 6 --hidden 128 --heads 4 --kv-heads 2 --ffn 384 --type bf16 "
                   "--output '%s' >/dev/null", OFLOAD_BIN_DIR, model_path);
    if (system(command) != 0) fail_msg("%s", command);
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 24; i++)
        (void)fprintf(file,
                      "{\"custom_id\":\"q%d\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"%*sQuestion %d?\","
                      "\"max_tokens\":%d,\"temperature\":%d}}\n", i, i * 7 % 40, "", i, 5 + i % 7, i % 2);
    assert_int_equal(fclose(file), 0);
}

static int never(void) { return 0; }

static ofl_status run_driver(int *exit_out)
{
    char program_name[] = "ofload-batch", model_name[] = "--model", in_name[] = "--input", out_name[] = "--output";
    char device[] = "--device=sim:vram=64MiB,h2d=4GB/s", vram[] = "--vram=2600kB", threads[] = "--threads=1";
    char quiet[] = "--quiet", overwrite[] = "--overwrite";
    char *argv[] = {program_name, model_name, model_path, in_name, in_path, out_name, out_path,
                    device,       vram,       threads,    quiet,   overwrite, NULL};
    batch_options options;
    const cli_program *program;
    setup *real = NULL;
    backend model;
    assert_ok(batch_options_read(sizeof argv / sizeof argv[0] - 1, argv, &options, &program, exit_out));
    run_settings settings = {.input = in_path, .output = out_path, .report = report_path, .model = model_path, .max_tokens_default = 20,
                             .shard = {0, 1}, .overwrite = true, .ordered = true, .quiet = true, .stop = never};
    ofl_status status = setup_open(&options, never, &real, &model);
    if (status == OFL_OK) status = batch_run(&settings, &model, exit_out);
    setup_close(real);
    return status;
}

static cJSON *run_with(const char *wanted, char **text_out)
{
    int exit_status = -1;
    if (run_driver(&exit_status) != OFL_OK) fail_msg("%s", app_error());
    assert_int_equal(exit_status, EXIT_DONE);
    char *text = test_read(out_path, NULL), *json = test_read(report_path, NULL);
    cJSON *report = cJSON_Parse(json);
    assert_non_null(report);
    free(json);
    if (wanted != NULL) assert_string_equal(text, wanted);
    if (text_out != NULL) *text_out = text;
    else free(text);
    return report;
}

static double figure(const cJSON *at, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(at, name);
    if (item == NULL) fail_msg("no %s", name);
    return item->valuedouble;
}

static const char *given_up(const cJSON *report, int index)
{
    const cJSON *entry = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "steps_down"), index);
    return entry != NULL ? cJSON_GetObjectItem(entry, "fewer")->valuestring : "(nothing)";
}

static void nobody_else(void)
{
    memset(&other, 0, sizeof other);
    other.most = UINT64_MAX;
}

static char *wanted;
static uint64_t acquires_in_all;

static int undisturbed(void **state)
{
    (void)state;
    assert_int_equal(setenv("SOURCE_DATE_EPOCH", "1700000000", 1), 0);
    make_files();
    nobody_else();
    cJSON *report = run_with(NULL, &wanted);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(report, "steps_down")), 0);
    assert_true(figure(cJSON_GetObjectItem(report, "measured"), "link_bytes_per_second") > 0); /* not all of it is resident */
    acquires_in_all = other.acquires;
    assert_true(acquires_in_all > 100);
    cJSON_Delete(report);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    free(wanted);
    return 0;
}

/* No byte more than what is held: smaller steps, and what runs goes on. */
static void test_a_step_fails_once(void **state)
{
    (void)state;
    nobody_else();
    other.fail_at[0] = acquires_in_all / 3;
    other.leaves[0] = 1;
    cJSON *report = run_with(wanted, NULL);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(report, "steps_down")), 1);
    assert_string_equal(given_up(report, 0), "tokens per step");
    cJSON_Delete(report);
}

/* Again and again, and at last a third of what was held is gone. */
static void test_steps_fail_until_there_is_another_plan(void **state)
{
    (void)state;
    nobody_else();
    for (uint32_t i = 0; i < 3; i++) other.fail_at[i] = acquires_in_all / 4 * (i + 1) / 2;
    other.leaves[0] = other.leaves[1] = 1;
    other.leaves[2] = 0.66;
    cJSON *report = run_with(wanted, NULL);
    const cJSON *list = cJSON_GetObjectItem(report, "steps_down"), *last = cJSON_GetArrayItem(list, 2);
    assert_int_equal(cJSON_GetArraySize(list), 3);
    assert_string_equal(given_up(report, 0), "tokens per step");
    assert_string_equal(given_up(report, 1), "sequences");
    assert_string_equal(given_up(report, 2), "residents");
    assert_true(figure(last, "plan_bytes") <= 0.66 * (double)other.held_at_fault);
    assert_true(figure(report, "peak_device_bytes") <= figure(report, "plan_bytes"));
    cJSON_Delete(report);
}

/* Weights are loaded, and then there is no room for KV and temporaries. */
static void test_memory_goes_while_loading(void **state)
{
    (void)state;
    nobody_else();
    other.leaves_at_open = 1.05;
    cJSON *report = run_with(wanted, NULL);
    assert_string_equal(given_up(report, 0), "residents");
    assert_true(figure(cJSON_GetArrayItem(cJSON_GetObjectItem(report, "steps_down"), 0), "after_steps") == 0);
    assert_true(figure(report, "peak_device_bytes") <= figure(report, "plan_bytes"));
    cJSON_Delete(report);
}

/* So little is left that no plan can be made: an error that says so; with memory again, the rest. */
static void test_nothing_fits(void **state)
{
    (void)state;
    nobody_else();
    for (uint32_t i = 0; i < 3; i++) other.fail_at[i] = acquires_in_all / 2 + i;
    other.leaves[0] = other.leaves[1] = 1;
    other.leaves[2] = 0.01;
    int exit_status = -1;
    assert_int_equal(run_driver(&exit_status), OFL_ERROR_NO_FIT);
    assert_non_null(strstr(app_error(), "free device memory and run again to go on"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_step_fails_once),
    cmocka_unit_test(test_steps_fail_until_there_is_another_plan),
    cmocka_unit_test(test_memory_goes_while_loading),
    cmocka_unit_test(test_nothing_fits),
};

int main(void) { return cmocka_run_group_tests(tests, undisturbed, clean) == 0 ? 0 : 1; }

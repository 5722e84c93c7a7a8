/* load: how fast weights get from a file to where a plan puts them, by size. The file has just been written, so it comes from the page
 * cache: what is measured is the engine and the memory, not the disk. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "stream_file.h"

#define DEVICE "sim:vram=2GB,h2d=100GB/s"
enum { RUNS = 5, COLUMNS = 2048, ROWS = 2048 };
#define MATRIX_BYTES ((uint64_t)COLUMNS * ROWS * 2)
#define SMALL_DEVICE_BYTES (3 * MATRIX_BYTES)
static const uint64_t sizes[] = {UINT64_C(32) << 20, UINT64_C(128) << 20, UINT64_C(512) << 20}; /* ascending */

typedef struct loading { ofl_model *model; ofl_machine *machine; ofl_device *device; ofl_plan *plan; } loading;

static ofl_status add_matrix(ofl_model_builder *builder, const char *path, uint32_t index)
{
    char name[32];
    (void)snprintf(name, sizeof name, "blk.%u.weight", index);
    const ofl_tensor_source source = {
        .struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_BF16, .tensor_class = OFL_CLASS_DENSE, .role = OFL_ROLE_FFN_UP,
        .block = (int32_t)index, .n_dims = 2, .dims = {COLUMNS, ROWS}, .file = path, .file_offset = index * MATRIX_BYTES,
    };
    return ofl_model_builder_add_tensor(builder, &source);
}

static ofl_status make_model(const char *path, uint32_t matrices, ofl_model **out)
{
    const ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = matrices, .hidden_size = COLUMNS, .head_count = 16,
                                   .head_count_kv = 1, .head_dim_k = 64, .head_dim_v = 64, .ffn_size = ROWS, .vocab_size = 256,
                                   .trained_context_tokens = 64};
    ofl_model_builder *builder = NULL;
    ofl_status status = ofl_model_builder_create("bench", "llama", &shape, &builder);
    for (uint32_t i = 0; i < matrices && status == OFL_OK; i++) status = add_matrix(builder, path, i);
    if (status == OFL_OK) return ofl_model_builder_finish(builder, out);
    ofl_model_builder_destroy(builder);
    return status;
}

/* All on the device, or nearly all in page-locked host memory. */
static ofl_status make_plan(loading *l, uint64_t bytes, int resident)
{
    const ofl_workload work = {.struct_size = sizeof work, .context_tokens = 16, .sequences = 1, .prefill_chunk_tokens = 1,
                               .force_headroom = 1, .cut = OFL_CUT_OFF};
    double vram = (double)(resident ? 2 * bytes + SMALL_DEVICE_BYTES : SMALL_DEVICE_BYTES);
    ofl_status status = ofl_machine_set(l->machine, OFL_FIGURE_VRAM, vram, OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_plan_make(l->model, l->machine, &work, &l->plan) : status;
}

static ofl_status open_all(loading *l, const char *path, uint64_t bytes, int resident)
{
    ofl_status status = make_model(path, (uint32_t)(bytes / MATRIX_BYTES), &l->model);
    if (status == OFL_OK) status = ofl_device_open(DEVICE, &l->device);
    if (status == OFL_OK) status = ofl_machine_probe(l->device, &l->machine);
    if (status == OFL_OK) status = ofl_machine_assume(l->machine);
    return status == OFL_OK ? make_plan(l, bytes, resident) : status;
}

static ofl_status time_load(const loading *l, double *seconds_out)
{
    ofl_engine *engine = NULL;
    double start = bench_seconds();
    ofl_status status = ofl_engine_open(l->plan, l->model, l->device, NULL, &engine);
    *seconds_out = bench_seconds() - start;
    ofl_engine_close(engine);
    return status;
}

static void close_all(loading *l)
{
    ofl_plan_destroy(l->plan);
    ofl_machine_destroy(l->machine);
    ofl_device_close(l->device);
    ofl_model_destroy(l->model);
}

static ofl_status add_row(bench_report *report, const char *path, uint64_t bytes, int resident)
{
    loading l = {0};
    char label[48], size[32];
    double seconds[RUNS] = {0};
    ofl_status status = open_all(&l, path, bytes, resident);
    if (status == OFL_OK) status = time_load(&l, &seconds[0]); /* not counted: the file is on its way to the disk, memory is new */
    for (int i = 0; i < RUNS && status == OFL_OK; i++) status = time_load(&l, &seconds[i]);
    close_all(&l);
    if (status != OFL_OK) return app_forward(status);
    double median = bench_median(seconds, RUNS);
    (void)snprintf(label, sizeof label, "%s to %s", cli_show_bytes(size, bytes, 1), resident ? "the device" : "pinned memory");
    bench_report_row(report, label);
    bench_report_number(report, "bytes", (double)bytes);
    bench_report_number(report, "seconds", median);
    bench_report_number(report, "bytes_per_second", (double)bytes / median);
    bench_report_number(report, "spread_percent", 100 * (seconds[RUNS - 1] - seconds[0]) / median);
    return OFL_OK;
}

static ofl_status run_size(bench_report *report, const char *folder, uint64_t bytes)
{
    char *path = NULL;
    ofl_status status = stream_file_make(folder, bytes, &path);
    for (int resident = 1; resident >= 0 && status == OFL_OK; resident--) status = add_row(report, path, bytes, resident);
    stream_file_drop(path);
    return status;
}

int bench_load(int argc, char **argv)
{
    uint64_t most = UINT64_MAX;
    const char *folder = ".";
    bench_output out = {0};
    int most_given = 0, exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--most", CLI_SIZE, &most, &most_given, "SIZE", NULL, "leave out larger weights"},
        {"--folder", CLI_TEXT, &folder, NULL, "FOLDER", NULL, "for the file, deleted afterwards (default .)"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench load", "[options]",
                                 "Times loading by size, from a file in the page cache to a simulated device whose link is no limit: "
                                 "medians of five, after one load that is not counted.",
                                 NULL, options, sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = bench_check_least("--most", most_given, most, sizes[0]);
    if (status == OFL_OK) status = bench_report_open("load", NULL, out, &report);
    if (status == OFL_OK) bench_report_simulated(report, DEVICE, 0);
    for (size_t i = 0; status == OFL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] <= most) status = run_size(report, folder, sizes[i]);
    }
    return bench_report_close(report, &program, status);
}

/* The smallest loop that streams layers, unit by unit: a chain of square matrices, too big for a (simulated) device, times a vector,
 * step after step.
 *
 *   cc -O2 minimal.c $(pkg-config --cflags --libs libofload) -lm -o minimal && ./minimal
 * or, not installed, from the source folder (the build makes it as build/bin/ofload-example-minimal, too):
 *   cc -O2 -Iinclude examples/minimal/minimal.c -Lbuild/lib -lofload -lm -Wl,-rpath,build/lib -o minimal && ./minimal
 * On a GPU put "cuda:0" for the device, the products on a stream of your own, and that stream where NULL stands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ofload/ofload.h>

enum { LAYERS = 24, SIZE = 512, STEPS = 20 };

static float weights[LAYERS][SIZE][SIZE]; /* 24 matrices of 1 MiB */

static double now(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(ofl_status status)
{
    if (status == OFL_OK) return;
    (void)fprintf(stderr, "minimal: %s\n", ofl_error_message());
    exit(1);
}

/* Rows row … row + count − 1 of y = W x. */
static void multiply(const float *w, size_t row, size_t count, const float *x, float *y)
{
    for (size_t r = 0; r < count; r++) {
        float sum[8] = {0};
        for (size_t c = 0; c < SIZE; c++) sum[c % 8] += w[r * SIZE + c] * x[c];
        y[row + r] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    }
}

static ofl_model *describe(void)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = LAYERS, .hidden_size = SIZE, .head_count = 1, .head_count_kv = 1,
                             .head_dim_k = 64, .head_dim_v = 64, .ffn_size = SIZE, .vocab_size = SIZE, .trained_context_tokens = 16};
    ofl_model_builder *builder;
    ofl_model *model;
    check(ofl_model_builder_create("chain", "llama", &shape, &builder));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "layer %d", i);
        ofl_tensor_source source = {.struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_F32, .tensor_class = OFL_CLASS_DENSE,
                                    .role = OFL_ROLE_FFN_DOWN, .block = i, .n_dims = 2, .dims = {SIZE, SIZE}, .data = weights[i]};
        check(ofl_model_builder_add_tensor(builder, &source));
    }
    check(ofl_model_builder_finish(builder, &model));
    return model;
}

/* One step: acquire a unit, use its rows, release it. */
static void step(ofl_engine *engine, uint32_t units, float *x)
{
    float y[SIZE];
    for (uint32_t unit = 0; unit < units; unit++) {
        ofl_view view = {.struct_size = sizeof view};
        check(ofl_engine_acquire(engine, unit, NULL, &view));
        for (uint32_t i = 0; i < view.slice_count; i++) {
            const ofl_view_slice *slice = &view.slices[i];
            multiply(slice->data, slice->row_first, slice->row_count, x, y);
            if (slice->row_first + slice->row_count == SIZE) memcpy(x, y, sizeof y);
        }
        check(ofl_engine_release(engine, unit, NULL));
    }
}

int main(void)
{
    ofl_device *device;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_engine *engine;
    float wanted[SIZE], got[SIZE], y[SIZE];
    for (size_t i = 0; i < (size_t)LAYERS * SIZE * SIZE; i++) (&weights[0][0][0])[i] = (float)(rand() % 2001 - 1000) * 1e-3f / 13;
    for (int i = 0; i < SIZE; i++) wanted[i] = got[i] = (float)(i % 7) - 3;

    double start = now(); /* the plain computation: the right answer, and how fast this processor is */
    for (int i = 0; i < STEPS * LAYERS; i++) {
        multiply(weights[i % LAYERS][0], 0, SIZE, wanted, y);
        memcpy(wanted, y, sizeof y);
    }
    ofl_compute_point speed = {1, (now() - start) / ((double)STEPS * LAYERS * SIZE * SIZE)};

    ofl_model *model = describe();
    ofl_workload work = {.struct_size = sizeof work, .objective = OFL_LATENCY, .context_tokens = 16, .sequences = 1,
                         .prefill_chunk_tokens = 1, .compute_type = OFL_COMPUTE_F32, .compute_point_count = 1, .compute_points = &speed};
    check(ofl_device_open("sim:vram=10MiB,h2d=1GB/s,start=5us", &device));
    check(ofl_machine_probe(device, &machine));
    check(ofl_plan_make(model, machine, &work, &plan));
    check(ofl_engine_open(plan, model, device, NULL, &engine));

    step(engine, ofl_plan_unit_count(plan), got); /* the first one starts with an empty ring */
    start = now();
    for (int i = 1; i < STEPS; i++) step(engine, ofl_plan_unit_count(plan), got);
    double measured = (now() - start) / (STEPS - 1);

    ofl_forecast forecast = {.struct_size = sizeof forecast};
    check(ofl_plan_forecast_get(plan, &forecast));
    int same = memcmp(wanted, got, sizeof got) == 0;
    printf("%s; step %.2f ms, forecast %.2f ms +-%.0f %% (link %.2f ms, compute %.2f ms; the link is simulated)\n",
           same ? "same result" : "DIFFERENT RESULT", measured * 1e3, forecast.step.step_seconds * 1e3, forecast.error_band_percent,
           forecast.step.link_seconds * 1e3, forecast.step.compute_seconds * 1e3);
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
    ofl_device_close(device);
    return same ? 0 : 1;
}

/* A transformer's loop, one token at a time, its weights in memory of its own. Given a device it streams them: only multiply() and
 * open_engine() know of it. Run twice, plain and streamed, it must come to the same logits.
 *   cc -O2 llama.c $(pkg-config --cflags --libs libofload) -lm -o llama && ./llama */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ofload/ofload.h>

enum { DIM = 256, HIDDEN = 768, LAYERS = 8, HEADS = 8, HEAD = DIM / HEADS, VOCAB = 512, CONTEXT = 24 };

static struct weights {
    float embedding[VOCAB][DIM], attn_norm[LAYERS][DIM], q[LAYERS][DIM][DIM], k[LAYERS][DIM][DIM], v[LAYERS][DIM][DIM], o[LAYERS][DIM][DIM];
    float ffn_norm[LAYERS][DIM], gate[LAYERS][HIDDEN][DIM], up[LAYERS][HIDDEN][DIM], down[LAYERS][DIM][HIDDEN], norm[DIM], head[VOCAB][DIM];
} w;
#define WEIGHTS (sizeof w / sizeof(float))
static float keys[LAYERS][CONTEXT][DIM], values[LAYERS][CONTEXT][DIM];
static ofl_model *model;
static ofl_engine *engine; /* NULL: the weights are used where they lie */

static ofl_status check(ofl_status status)
{
    if (status < 0) (void)fprintf(stderr, "llama: %s\n", ofl_error_message());
    if (status < 0) exit(1);
    return status;
}

static ofl_plan *open_engine(ofl_device *device, double seconds_per_weight)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = LAYERS, .hidden_size = DIM, .head_count = HEADS,
                             .head_count_kv = HEADS, .head_dim_k = HEAD, .head_dim_v = HEAD, .ffn_size = HIDDEN, .vocab_size = VOCAB,
                             .trained_context_tokens = CONTEXT};
    const ofl_stack stacks[] = { /* one matrix a layer each, in the order of use; norms and embedding are used where they lie */
        {OFL_ROLE_ATTN_Q, OFL_DTYPE_F32, w.q, DIM, DIM, 0},         {OFL_ROLE_ATTN_K, OFL_DTYPE_F32, w.k, DIM, DIM, 0},
        {OFL_ROLE_ATTN_V, OFL_DTYPE_F32, w.v, DIM, DIM, 0},         {OFL_ROLE_ATTN_OUTPUT, OFL_DTYPE_F32, w.o, DIM, DIM, 0},
        {OFL_ROLE_FFN_GATE, OFL_DTYPE_F32, w.gate, HIDDEN, DIM, 0}, {OFL_ROLE_FFN_UP, OFL_DTYPE_F32, w.up, HIDDEN, DIM, 0},
        {OFL_ROLE_FFN_DOWN, OFL_DTYPE_F32, w.down, DIM, HIDDEN, 0}, {OFL_ROLE_OUTPUT, OFL_DTYPE_F32, w.head, VOCAB, DIM, 0}};
    ofl_workload work = {.struct_size = sizeof work, .context_tokens = CONTEXT, .sequences = 1, .prefill_chunk_tokens = 1,
                         .compute_type = OFL_COMPUTE_F32, .compute_point_count = 1,
                         .compute_points = &(ofl_compute_point){1, seconds_per_weight}}; /* what the plain run took */
    ofl_machine *machine;
    ofl_plan *plan;
    check(ofl_model_from_stacks("llama.c", &shape, stacks, sizeof stacks / sizeof stacks[0], &model));
    check(ofl_machine_probe(device, &machine));
    check(ofl_plan_make(model, machine, &work, &plan));
    check(ofl_engine_open(plan, model, device, NULL, &engine));
    ofl_machine_destroy(machine); /* model, device and plan stay as long as the engine */
    return plan;
}

static void dot_rows(float *y, const float *matrix, const float *x, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        float sum[8] = {0};
        for (size_t c = 0; c < columns; c++) sum[c % 8] += matrix[r * columns + c] * x[c];
        y[r] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    }
}

/* y = W x; the matrix is known by its address in `w`, wherever its rows are now. */
static void multiply(float *y, const void *matrix, const float *x, size_t rows, size_t columns)
{
    uint32_t tensor;
    ofl_view_slice part = {0};
    if (engine == NULL) dot_rows(y, matrix, x, rows, columns);
    else check(ofl_model_tensor_at(model, matrix, &tensor));
    while (engine != NULL && check(ofl_engine_tensor_next(engine, tensor, NULL, &part)) == OFL_OK)
        dot_rows(y + part.row_first, part.data, x, part.row_count, columns);
}

static void normalise(float *y, const float *x, const float *weight)
{
    float sum = 0;
    for (int i = 0; i < DIM; i++) sum += x[i] * x[i];
    for (int i = 0; i < DIM; i++) y[i] = weight[i] * x[i] / sqrtf(sum / DIM + 1e-5f);
}

static void attend(float *y, const float *q, int layer, int position)
{
    for (int h = 0; h < DIM; h += HEAD) {
        float share[CONTEXT] = {0}, sum = 0;
        for (int t = 0; t <= position; t++) {
            for (int i = h; i < h + HEAD; i++) share[t] += q[i] * keys[layer][t][i];
            sum += share[t] = expf(share[t] / sqrtf(HEAD));
        }
        memset(y + h, 0, HEAD * sizeof *y);
        for (int t = 0; t <= position; t++)
            for (int i = h; i < h + HEAD; i++) y[i] += share[t] / sum * values[layer][t][i];
    }
}

static void forward(int token, int position, float *logits)
{
    float x[DIM], a[DIM], b[DIM], gate[HIDDEN], up[HIDDEN];
    for (int i = 0; i < DIM; i++) x[i] = w.embedding[token][i] + sinf((float)position / (float)(i + 1));
    for (int l = 0; l < LAYERS; l++) {
        normalise(a, x, w.attn_norm[l]);
        multiply(b, w.q[l], a, DIM, DIM);
        multiply(keys[l][position], w.k[l], a, DIM, DIM);
        multiply(values[l][position], w.v[l], a, DIM, DIM);
        attend(a, b, l, position);
        multiply(b, w.o[l], a, DIM, DIM);
        for (int i = 0; i < DIM; i++) x[i] += b[i];
        normalise(a, x, w.ffn_norm[l]);
        multiply(gate, w.gate[l], a, HIDDEN, DIM);
        multiply(up, w.up[l], a, HIDDEN, DIM);
        for (int i = 0; i < HIDDEN; i++) gate[i] *= up[i] / (1 + expf(-gate[i]));
        multiply(b, w.down[l], gate, DIM, HIDDEN);
        for (int i = 0; i < DIM; i++) x[i] += b[i];
    }
    normalise(a, x, w.norm);
    multiply(logits, w.head, a, VOCAB, DIM);
}

/* Greedy, from token 1. Returns seconds a token on the device's clock. */
static double generate(ofl_device *device, float logits[CONTEXT][VOCAB])
{
    uint64_t start = ofl_device_now_ns(device);
    for (int position = 0, token = 1, best; position < CONTEXT; position++, token = best) {
        forward(token, position, logits[position]);
        best = 0;
        for (int i = 1; i < VOCAB; i++) best = logits[position][i] > logits[position][best] ? i : best;
    }
    return (double)(ofl_device_now_ns(device) - start) * 1e-9 / CONTEXT;
}

int main(int argc, char **argv)
{
    static float wanted[CONTEXT][VOCAB], got[CONTEXT][VOCAB];
    ofl_device *device;
    for (size_t i = 0; i < WEIGHTS; i++) ((float *)&w)[i] = (float)(rand() % 2001 - 1000) * 1e-4f;
    check(ofl_device_open(argc > 1 ? argv[1] : "sim:vram=12MiB,h2d=1GB/s", &device));
    double plain = generate(device, wanted);
    ofl_plan *plan = open_engine(device, plain / WEIGHTS);
    double streamed = generate(device, got);
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    check(ofl_plan_forecast_get(plan, &forecast));
    check(ofl_engine_stats_get(engine, &stats));
    int same = memcmp(wanted, got, sizeof got) == 0; /* to the bit */
    printf("%s logits; %.1f of %.1f MB streamed a token, %.2f ms a token, forecast %.2f ms +-%.0f %% (simulated link)\n",
           same ? "same" : "DIFFERENT", (double)stats.bytes_streamed / CONTEXT * 1e-6, sizeof w * 1e-6, streamed * 1e3,
           forecast.step.step_seconds * 1e3, forecast.error_band_percent);
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    ofl_device_close(device);
    ofl_model_destroy(model);
    return same ? 0 : 1;
}

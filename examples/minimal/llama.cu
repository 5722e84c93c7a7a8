/* The loop of llama.c with kernels and a stream of its own: the cudaStream_t goes in as it is, and the host waits for no copy of weights.
 * Run twice, all resident and with 12 MiB of device memory for all of it, it must come to the same logits, to the bit.
 *   nvcc -std=c++20 -O2 llama.cu $(pkg-config --cflags --libs libofload) -o llama && ./llama */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ofload/ofload.h>

enum { DIM = 256, HIDDEN = 768, LAYERS = 8, HEADS = 8, HEAD = DIM / HEADS, VOCAB = 512, CONTEXT = 24, CACHE = LAYERS * CONTEXT * DIM };

static struct weights {
    float embedding[VOCAB][DIM], q[LAYERS][DIM][DIM], k[LAYERS][DIM][DIM], v[LAYERS][DIM][DIM], o[LAYERS][DIM][DIM];
    float norm[LAYERS][DIM], gate[LAYERS][HIDDEN][DIM], up[LAYERS][HIDDEN][DIM], down[LAYERS][DIM][HIDDEN], head[VOCAB][DIM];
} w;
static ofl_model *model;
static ofl_engine *engine;
static cudaStream_t stream;
static float *memory; /* on the device: keys, values, activations */

static ofl_status check(ofl_status status)
{
    if (status < 0) fprintf(stderr, "llama: %s\n", ofl_error_message());
    if (status < 0) exit(status == OFL_ERROR_NO_DRIVER || status == OFL_ERROR_NO_DEVICE ? 77 : 1); /* 77: nothing to run on */
    return status;
}

static void check(cudaError_t error)
{
    if (error != cudaSuccess) exit(fprintf(stderr, "llama: %s\n", cudaGetErrorString(error)) > 0);
}

/* One warp a row: y = W x, or y += W x. */
__global__ void product(float *y, const float *matrix, const float *x, int columns, bool add)
{
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += 32) sum += matrix[(size_t)blockIdx.x * columns + c] * x[c];
    for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x == 0) y[blockIdx.x] = sum + (add ? y[blockIdx.x] : 0);
}

__global__ void normalise(float *y, const float *x, const float *weight)
{
    float sum = 0;
    for (int i = 0; i < DIM; i++) sum += x[i] * x[i];
    y[threadIdx.x] = weight[threadIdx.x] * x[threadIdx.x] * rsqrtf(sum / DIM + 1e-5f);
}

__global__ void attend(float *y, const float *q, const float *keys, const float *values, int position)
{
    int first = blockIdx.x * HEAD;
    float out = 0, all = 0;
    for (int t = 0; t <= position; t++) {
        float share = 0;
        for (int i = first; i < first + HEAD; i++) share += q[i] * keys[t * DIM + i];
        share = expf(share * rsqrtf((float)HEAD));
        out += share * values[t * DIM + first + threadIdx.x];
        all += share;
    }
    y[first + threadIdx.x] = out / all;
}

__global__ void activate(float *gate, const float *up) { gate[threadIdx.x] *= up[threadIdx.x] / (1 + expf(-gate[threadIdx.x])); }

/* The matrix is known by its address in `w`; its rows are on the device when the kernel runs. */
static void multiply(float *y, const void *matrix, const float *x, int columns, bool add = false)
{
    uint32_t tensor;
    ofl_view_slice part = {};
    check(ofl_model_tensor_at(model, matrix, &tensor));
    while (check(ofl_engine_tensor_next(engine, tensor, (ofl_stream *)stream, &part)) == OFL_OK)
        product<<<part.row_count, 32, 0, stream>>>(y + part.row_first, (const float *)part.data, x, columns, add);
}

static const float *resident(const void *vector) /* as small tensors always are */
{
    uint32_t tensor;
    const void *address;
    check(ofl_model_tensor_at(model, vector, &tensor));
    check(ofl_engine_resident(engine, tensor, &address));
    return (const float *)address;
}

static void forward(uint32_t token, int position, float *logits)
{
    float *x = memory + 2 * CACHE, *a = x + DIM, *b = a + DIM, *gate = b + DIM, *up = gate + HIDDEN, *out = up + HIDDEN;
    const void *row;
    check(ofl_engine_rows(engine, 0, &token, 1, &row)); /* tensor 0: the embedding, read where it lies */
    check(cudaMemcpyAsync(x, row, DIM * sizeof *x, cudaMemcpyDefault, stream));
    for (int l = 0; l < LAYERS; l++) {
        float *k = memory + l * CONTEXT * DIM, *v = k + CACHE;
        normalise<<<1, DIM, 0, stream>>>(a, x, resident(w.norm[l]));
        multiply(b, w.q[l], a, DIM);
        multiply(k + position * DIM, w.k[l], a, DIM);
        multiply(v + position * DIM, w.v[l], a, DIM);
        attend<<<HEADS, HEAD, 0, stream>>>(a, b, k, v, position);
        multiply(x, w.o[l], a, DIM, true);
        multiply(gate, w.gate[l], x, DIM);
        multiply(up, w.up[l], x, DIM);
        activate<<<1, HIDDEN, 0, stream>>>(gate, up);
        multiply(x, w.down[l], gate, HIDDEN, true);
    }
    multiply(out, w.head, x, DIM);
    check(cudaGetLastError()), check(cudaMemcpyAsync(logits, out, VOCAB * sizeof *logits, cudaMemcpyDeviceToHost, stream)); /* launches first */
    check(cudaStreamSynchronize(stream));
}

static void generate(ofl_device *device, double vram, float (*logits)[VOCAB])
{
    ofl_workload job = {.struct_size = sizeof job, .sequences = 1, .prefill_chunk_tokens = 1, .kv_type = OFL_KV_F32};
    ofl_machine *machine;
    ofl_plan *plan;
    check(ofl_machine_probe(device, &machine));
    check(ofl_machine_set(machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN)); /* `vram` is for this loop alone */
    check(ofl_machine_set(machine, OFL_FIGURE_VRAM, vram, OFL_SOURCE_GIVEN));
    check(ofl_plan_make(model, machine, &job, &plan));
    check(ofl_engine_open(plan, model, device, NULL, &engine));
    for (int position = 0; position < CONTEXT; position++) forward((uint32_t)position * 7 % VOCAB, position, logits[position]);
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
}

int main(void)
{
    static float wanted[CONTEXT][VOCAB], got[CONTEXT][VOCAB];
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = LAYERS, .hidden_size = DIM, .head_count = HEADS,
                             .head_count_kv = HEADS, .head_dim_k = HEAD, .head_dim_v = HEAD, .ffn_size = HIDDEN, .vocab_size = VOCAB,
                             .trained_context_tokens = CONTEXT};
    const ofl_stack stacks[] = {
        {OFL_ROLE_EMBEDDING, OFL_DTYPE_F32, w.embedding, VOCAB, DIM}, {OFL_ROLE_ATTN_NORM, OFL_DTYPE_F32, w.norm, 1, DIM},
        {OFL_ROLE_ATTN_Q, OFL_DTYPE_F32, w.q, DIM, DIM},         {OFL_ROLE_ATTN_K, OFL_DTYPE_F32, w.k, DIM, DIM},
        {OFL_ROLE_ATTN_V, OFL_DTYPE_F32, w.v, DIM, DIM},         {OFL_ROLE_ATTN_OUTPUT, OFL_DTYPE_F32, w.o, DIM, DIM},
        {OFL_ROLE_FFN_GATE, OFL_DTYPE_F32, w.gate, HIDDEN, DIM}, {OFL_ROLE_FFN_UP, OFL_DTYPE_F32, w.up, HIDDEN, DIM},
        {OFL_ROLE_FFN_DOWN, OFL_DTYPE_F32, w.down, DIM, HIDDEN}, {OFL_ROLE_OUTPUT, OFL_DTYPE_F32, w.head, VOCAB, DIM}};
    ofl_device *device;
    for (size_t i = 0; i < sizeof w / sizeof(float); i++) ((float *)&w)[i] = (float)(rand() % 2001 - 1000) * 1e-4f;
    check(ofl_model_from_stacks("llama.cu", &shape, stacks, sizeof stacks / sizeof stacks[0], &model));
    check(ofl_device_open("cuda:0", &device));
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&memory, (2 * CACHE + 3 * DIM + 2 * HIDDEN + VOCAB) * sizeof *memory));
    generate(device, 256 << 20, wanted);
    generate(device, 12 << 20, got);
    printf("%s logits, all resident and with 12 MiB\n", memcmp(wanted, got, sizeof got) == 0 ? "same" : "DIFFERENT");
    check(cudaFree(memory));
    check(cudaStreamDestroy(stream));
    ofl_device_close(device);
    ofl_model_destroy(model);
    return memcmp(wanted, got, sizeof got) != 0;
}

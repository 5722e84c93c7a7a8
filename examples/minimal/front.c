/* A loop that asks the front which tokens to run: requests of many lengths share each step, one copy of the weights serves all its tokens.
 * The model is a toy: what a token attends to is the mean of the embeddings before it, which the KV blocks hold; then layers that stream.
 * Every answer must be that of the request alone, computed plainly, to the bit.
 *
 *   cc -O2 front.c $(pkg-config --cflags --libs libofload) -lm -o front && ./front */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ofload/ofload.h>

enum { DIM = 256, LAYERS = 16, VOCAB = 256, CONTEXT = 64, REQUESTS = 12, STEP_TOKENS = 64 };

static struct weights { float embedding[VOCAB][DIM], layers[LAYERS][DIM][DIM], head[VOCAB][DIM]; } w;
static uint32_t tokens[REQUESTS][CONTEXT]; /* prompt, then answer */
#define PROMPT(r) (3 + 3 * (r))
#define ANSWER(r) (20 - (r))
static float *cache;                       /* (KV block, token in it, DIM) */
static ofl_plan_settings settings = {.struct_size = sizeof settings};

static ofl_status check(ofl_status status)
{
    if (status < 0) (void)fprintf(stderr, "front: %s\n", ofl_error_message());
    if (status < 0) exit(1);
    return status;
}

/* y += max(0, W x), for so many rows of W. */
static void multiply(float *y, const float *matrix, const float *x, uint64_t rows)
{
    for (uint64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (uint64_t c = 0; c < DIM; c++) sum += matrix[r * DIM + c] * x[c];
        y[r] += sum > 0 ? sum : 0;
    }
}

static uint32_t best_token(const float *x)
{
    float logits[VOCAB] = {0};
    uint32_t best = 0;
    multiply(logits, w.head[0], x, VOCAB);
    for (uint32_t i = 1; i < VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The answer of request r by itself: what the steps must come to. */
static uint32_t plain_token(uint32_t r, uint32_t position)
{
    float x[DIM] = {0}, y[DIM];
    for (uint32_t t = 0; t <= position; t++)
        for (int i = 0; i < DIM; i++) x[i] += w.embedding[tokens[r][t]][i];
    for (int i = 0; i < DIM; i++) x[i] /= (float)(position + 1);
    for (int l = 0; l < LAYERS; l++) {
        memcpy(y, x, sizeof y);
        multiply(y, w.layers[l][0], x, DIM);
        memcpy(x, y, sizeof x);
    }
    return best_token(x);
}

static float *cached(const ofl_step_item *item, uint32_t position)
{
    uint32_t size = settings.kv_block_tokens;
    return cache + ((uint64_t)item->blocks[position / size] * size + position % size) * DIM;
}

/* Puts a token's embedding into its sequence's KV blocks and gathers what it attends to. */
static void attend(const ofl_step_item *item, uint32_t position, float *x)
{
    memcpy(cached(item, position), w.embedding[tokens[item->tag][position]], DIM * sizeof *x);
    memset(x, 0, DIM * sizeof *x);
    for (uint32_t t = 0; t <= position; t++)
        for (int i = 0; i < DIM; i++) x[i] += cached(item, t)[i];
    for (int i = 0; i < DIM; i++) x[i] /= (float)(position + 1);
}

/* All tokens of a step through all layers: each layer comes over the link once, whatever their number. */
static void run_step(ofl_engine *engine, const ofl_step *step)
{
    static float x[STEP_TOKENS][DIM], y[STEP_TOKENS][DIM];
    uint32_t count = 0, at = 0;
    for (const ofl_step_item *item = step->items; item < step->items + step->item_count; item++)
        for (uint32_t t = 0; t < item->token_count; t++) attend(item, item->first_position + t, x[count++]);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        ofl_view_slice rows = {0};
        memcpy(y, x, sizeof y);
        while (check(ofl_engine_tensor_next(engine, layer, NULL, &rows)) == OFL_OK)
            for (uint32_t t = 0; t < count; t++) multiply(y[t] + rows.row_first, rows.data, x[t], rows.row_count);
        memcpy(x, y, sizeof x);
    }
    check(ofl_engine_step_end(engine));
    for (const ofl_step_item *item = step->items; item < step->items + step->item_count; item++) {
        at += item->token_count;
        if (item->wants_logits) tokens[item->tag][item->first_position + item->token_count] = best_token(x[at - 1]);
    }
}

int main(void)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = LAYERS, .hidden_size = DIM, .head_count = 1, .head_count_kv = 1,
                             .head_dim_k = DIM / LAYERS, /* of each layer: a vector of DIM a token in all */
                             .ffn_size = DIM, .vocab_size = VOCAB, .trained_context_tokens = CONTEXT};
    const ofl_stack stack = {OFL_ROLE_FFN_OTHER, OFL_DTYPE_F32, w.layers, DIM, DIM, 0}; /* tensor l of the model is layer l */
    ofl_workload work = {.struct_size = sizeof work, .objective = OFL_THROUGHPUT, .context_tokens = CONTEXT, .prefill_chunk_tokens = 16,
                         .sequences = 8, .tokens_per_step_cap = 24, .kv_type = OFL_KV_F32, .compute_type = OFL_COMPUTE_F32};
    ofl_step step = {.struct_size = sizeof step};
    ofl_model *model;
    ofl_device *device;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_front *front;
    uint32_t blocks, idle, steps = 0, made = 0, wrong = 0;
    for (size_t i = 0; i < sizeof w / sizeof(float); i++) ((float *)&w)[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    check(ofl_model_from_stacks("toy", &shape, &stack, 1, &model));
    check(ofl_device_open("sim:vram=3MiB,h2d=1GB/s", &device));
    check(ofl_machine_probe(device, &machine));
    check(ofl_plan_make(model, machine, &work, &plan));
    check(ofl_engine_open(plan, model, device, NULL, &engine));
    check(ofl_front_create(plan, NULL, &front));
    check(ofl_plan_settings_get(plan, &settings));
    check(ofl_front_blocks_get(front, &blocks, &idle));
    if ((cache = calloc((size_t)blocks * settings.kv_block_tokens * DIM, sizeof *cache)) == NULL) return 1;
    for (uint32_t r = 0; r < REQUESTS; r++) {
        ofl_request request = {.struct_size = sizeof request, .prompt_tokens = PROMPT(r), .max_new_tokens = ANSWER(r), .tag = r};
        for (uint32_t t = 0; t < PROMPT(r); t++) tokens[r][t] = (uint32_t)rand() % VOCAB;
        check(ofl_front_submit(front, &request, NULL)); /* its number is not needed: `tag` tells */
    }
    for (; check(ofl_front_next_step(front, &step)) == OFL_OK; steps++) {
        static const uint8_t goes_on[STEP_TOKENS]; /* no end token here: each runs to its most new tokens */
        uint64_t start = ofl_device_now_ns(device);
        run_step(engine, &step);
        check(ofl_front_commit(front, goes_on, (double)(ofl_device_now_ns(device) - start) * 1e-9));
    }
    for (uint32_t r = 0; r < REQUESTS; r++)
        for (uint32_t t = PROMPT(r); t < PROMPT(r) + ANSWER(r); t++, made++) wrong += tokens[r][t] != plain_token(r, t - 1);
    printf("%s: %u requests, %u new tokens in %u steps, up to %u sequences at once\n", wrong == 0 ? "same answers" : "DIFFERENT ANSWERS",
           REQUESTS, made, steps, settings.sequences);
    ofl_front_destroy(front);
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_device_close(device);
    ofl_model_destroy(model);
    free(cache);
    return wrong == 0 ? 0 : 1;
}

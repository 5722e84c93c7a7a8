/* Faults that people met in memory budgets and forecasts, by the number of the case, each as the whole kind; and the numbers of the
 * published experiment and of the sizing rules in common use. tests/README.md says what each number is. */
#include "plan_models.h"

#include <math.h>

#include "support/engine_fixture.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"

static bool within(double got, double wanted, double share) { return fabs(got - wanted) <= share * fabs(wanted); }

static void assert_near(double got, double wanted, double share)
{
    if (!within(got, wanted, share)) fail_msg("%.9g, not %.9g", got, wanted);
}

static double all_bytes(const ofl_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        sum += (double)info.bytes;
    }
    return sum;
}

static test_shape llama8b(ofl_dtype dtype) { return (test_shape){32, 4096, 32, 8, 128, 14336, 128256, 0, 0, dtype}; }

static ofl_machine *card(double vram) { return test_machine(vram, 12e9, 5e-6, 360e9, 51e12, 0.75e9); }

static ofl_status tried(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w, planned *out)
{
    ofl_plan *plan = NULL;
    ofl_status status = ofl_plan_make(model, machine, w, &plan);
    if (status == OFL_OK) *out = read_plan(plan);
    else assert_int_equal(status, OFL_ERROR_NO_FIT);
    ofl_plan_destroy(plan);
    return status;
}

/* ---- memory budget ---- */

/* 57: free memory is read anew before anything is allocated, for all that the plan will need and not for the weights alone: whatever others
 * took meanwhile, it opens while all of it fits, and is refused from the first byte on that is missing. */
static void test_57_memory_that_shrank(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = {.link = 1e9, .cut = OFL_CUT_AUTO, .vram = 3000000};
    ofl_plan *plan;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    ofl_budget b = read_plan(plan).budget;
    uint64_t weights = b.resident_bytes + b.ring_bytes, needed = weights + b.kv_bytes + b.activation_bytes;
    static const int64_t left[] = {100000, 0, -1, -5000, -100000};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        char spec[128];
        ofl_device *device;
        ofl_engine *engine;
        uint64_t others = (uint64_t)((int64_t)(9000000 - needed) - left[i]);
        (void)snprintf(spec, sizeof spec, "sim:vram=9000000,h2d=1GB/s,clock=virtual,runtime=%llu", (unsigned long long)others);
        assert_ok(ofl_device_open(spec, &device));
        ofl_status status = ofl_engine_open(plan, model.model, device, NULL, &engine);
        assert_int_equal(status, left[i] >= 0 ? OFL_OK : OFL_ERROR_DEVICE_MEMORY);
        if (status != OFL_OK) assert_int_equal(ofl_diagnostic_get()->bytes_needed, needed);
        ofl_engine_close(engine);
        fixture_device_close(device);
    }
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
}

/* What the caller allocated through the device counts as its KV and activations; two engines share a device while both fit. */
static void test_57_what_is_held_already(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = {.link = 1e9, .cut = OFL_CUT_AUTO, .vram = 3000000};
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *first, *second;
    void *held;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    ofl_budget b = read_plan(plan).budget;
    uint64_t weights = b.resident_bytes + b.ring_bytes, callers = b.kv_bytes + b.activation_bytes;
    fixture_case exact = c;
    exact.vram = weights + callers;
    fixture_device_open(&exact, &device);
    assert_ok(ofl_device_alloc(device, callers / 256 * 256, &held));
    assert_ok(ofl_engine_open(plan, model.model, device, NULL, &first));
    assert_status(ofl_engine_open(plan, model.model, device, NULL, &second), OFL_ERROR_DEVICE_MEMORY);
    assert_null(second);
    ofl_engine_close(first);
    ofl_device_free(device, held);
    fixture_device_close(device);
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
}

/* 58: what fits at a context fits at every shorter one, and less of the model never stays there; whatever says how prompts are cut. */
static void test_58_fit_is_monotone_in_the_context(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    static const struct {
        double vram;
        uint32_t sequences, chunk;
        ofl_objective objective;
    } jobs[] = {{12e9, 1, 0, OFL_LATENCY},
                {10e9, 2, 0, OFL_LATENCY},
                {6e9, 0, 512, OFL_LATENCY},
                {5e9, 0, 2048, OFL_THROUGHPUT},
                {19e9, 4, 0, OFL_THROUGHPUT}};
    uint32_t fitted = 0, refused = 0;
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        ofl_machine *machine = card(jobs[j].vram);
        uint64_t last = UINT64_MAX;
        for (uint64_t context = 16000; context <= 40000; context += 1000) {
            ofl_workload w = {.struct_size = sizeof w, .context_tokens = context, .objective = jobs[j].objective};
            w.sequences = jobs[j].sequences;
            w.prefill_chunk_tokens = jobs[j].chunk;
            planned p;
            bool fits = tried(model, machine, &w, &p) == OFL_OK;
            if (fits && last == 0) fail_msg("job %zu: fits at %u, not before", j, (unsigned)context);
            if (fits && jobs[j].sequences != 0 && p.budget.resident_bytes > last)
                fail_msg("job %zu: more stays at %u", j, (unsigned)context);
            last = fits ? p.budget.resident_bytes : 0;
            fitted += fits;
            refused += !fits;
        }
        ofl_machine_destroy(machine);
    }
    assert_true(fitted > 60 && refused > 10);
    ofl_model_destroy(model);
}

/* The most whole layers that can be forced, too: never more at a longer context. */
static void test_58_layers_never_rise(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    ofl_machine *machine = card(16e9);
    uint32_t most = 32, first = 0;
    for (uint64_t context = 16000; context <= 40000; context += 4000) {
        planned p;
        uint32_t layers = 33;
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = context, .sequences = 1, .force_layers = 1};
        do w.force_resident_layers = --layers;
        while (layers > 0 && tried(model, machine, &w, &p) != OFL_OK);
        assert_true(layers <= most && layers > 0);
        if (first == 0) first = layers;
        most = layers;
    }
    assert_true(most < first);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static uint64_t logits_of(uint32_t vocabulary, uint32_t hidden, uint64_t rows)
{
    ofl_model_shape s = {
        .struct_size = sizeof s, .hidden_size = hidden, .head_count = 1, .head_count_kv = 1, .head_dim_k = 64, .vocab_size = vocabulary};
    uint64_t hidden_bytes, logits, workspace;
    assert_ok(ofl_activation_bytes(&s, OFL_COMPUTE_BF16, rows, rows, 0, &hidden_bytes, &logits, &workspace));
    return logits;
}

/* 59: 4 bytes by vocabulary and row, once; and a row is kept for each sequence, not for each token of a prompt. */
static void test_59_logits_are_counted_once(void **state)
{
    (void)state;
    assert_int_equal(logits_of(262144, 0, 512), 536870912);
    assert_int_equal(logits_of(262144, 0, 2048), UINT64_C(2147483648));
    assert_int_equal(logits_of(128256, 0, 512), 262668288);
    assert_int_equal(logits_of(151936, 0, 512), 311164928);
    assert_int_equal(logits_of(201088, 0, 512), 411828224);
    ofl_model *model = test_model((test_shape){4, 512, 8, 4, 64, 1024, 262144, 0, 0, OFL_DTYPE_BF16});
    ofl_machine *machine = card(20e9);
    uint64_t row = 4 * 262144 + 6 * 512; /* with its inputs */
    for (uint32_t sequences = 1; sequences < 300; sequences = sequences * 3 + 1) {
        for (uint32_t chunk = 16; chunk <= 40000; chunk *= 5) {
            ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .sequences = sequences, .prefill_chunk_tokens = chunk};
            planned p = plan_once(model, machine, &w);
            assert_int_equal(p.budget.logits_bytes, (sequences * row + 255) / 256 * 256);
            uint64_t hidden, logits, workspace;
            ofl_model_shape shape = {.struct_size = sizeof shape};
            assert_ok(ofl_model_shape_get(model, &shape));
            assert_ok(ofl_activation_bytes(&shape, OFL_COMPUTE_BF16, sequences + chunk, sequences, 0, &hidden, &logits, &workspace));
            assert_int_equal(p.budget.activation_bytes, hidden + logits + workspace);
        }
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* A model of one matrix a layer, of so many rows of 4 KiB. */
static ofl_model *layers_of(const uint32_t *rows, uint32_t count)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = count, .hidden_size = 2048, .head_count = 1, .head_count_kv = 1};
    shape.head_dim_k = shape.head_dim_v = 2;
    shape.vocab_size = 64;
    shape.trained_context_tokens = 64;
    test_shape s = {.layers = count, .dtype = OFL_DTYPE_BF16};
    ofl_model_builder *b = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("layers", "uneven", &shape, &b));
    for (uint32_t i = 0; i < count; i++) add_tensor(b, "ffn_up", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_FFN_UP, (int32_t)i, 2048, rows[i]);
    assert_ok(ofl_model_builder_finish(b, &model));
    return model;
}

static ofl_machine *bare(double vram) { return test_machine(vram, 1e9, 0, 1e15, 1e18, 0); }

/* All but weights and ring. */
static uint64_t beside(const ofl_model *model, const ofl_workload *w)
{
    ofl_machine *machine = bare(1e9);
    ofl_budget b = plan_once(model, machine, w).budget;
    ofl_machine_destroy(machine);
    return b.total_bytes - b.resident_bytes - b.ring_bytes;
}

/* 61: layers need not be alike, and a large one stops nothing behind it: free choice, where the contiguous rule would end at the large one.
 */
static void test_61_uneven_layers(void **state)
{
    (void)state;
    const uint32_t rows[] = {100, 100, 100, 900, 100, 100, 100, 100, 900};
    ofl_model *model = layers_of(rows, 9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 16, .force_headroom = 1, .prefill_chunk_tokens = 16, .cut = OFL_CUT_BYTES};
    w.part_bytes = 900 * 4096;
    w.ring_bytes = 900 * 4096; /* beside the 750 */
    uint64_t others =
        beside(model, &(ofl_workload){.struct_size = sizeof w, .context_tokens = 16, .force_headroom = 1, .prefill_chunk_tokens = 16});
    ofl_machine *machine = bare((double)(others + (750 + 900) * 4096));
    planned p = plan_once(model, machine, &w);
    assert_int_equal(p.budget.resident_bytes, 700 * 4096); /* the seven small ones: 700 of 750 */
    ofl_machine_destroy(machine);
    machine = bare((double)(others + 750 * 4096)); /* cut by rows the large one is no obstacle at all */
    w.cut = OFL_CUT_AUTO;
    w.part_bytes = w.ring_bytes = 0;
    p = plan_once(model, machine, &w);
    uint64_t weights = p.budget.resident_bytes + p.budget.ring_bytes;
    assert_true(weights <= 750 * 4096 && weights >= 700 * 4096 && p.budget.resident_bytes > 300 * 4096);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Layers of any sizes: never above the budget, never less than packing from the front up to the first that does not fit. */
static void test_61_never_above_and_never_below_contiguous(void **state)
{
    (void)state;
    uint64_t seed = 61;
    for (int m = 0; m < 60; m++) {
        uint32_t rows[12], count = 3 + (uint32_t)(test_random(&seed) % 10), largest = 0;
        uint64_t sum = 0, prefix = 0;
        for (uint32_t i = 0; i < count; i++) {
            rows[i] = 20 + (uint32_t)(test_random(&seed) % (test_random(&seed) % 5 == 0 ? 900 : 100));
            sum += rows[i];
            largest = rows[i] > largest ? rows[i] : largest;
        }
        ofl_model *model = layers_of(rows, count);
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 16, .force_headroom = 1, .prefill_chunk_tokens = 16};
        uint64_t room = (sum - largest) * (20 + test_random(&seed) % 79) / 100 * 4096, others = beside(model, &w);
        ofl_machine *machine = bare((double)(others + room + largest * UINT64_C(4096)));
        for (uint32_t i = 0; i < count && (prefix + rows[i]) * 4096 <= room; i++) prefix += rows[i];
        w.cut = OFL_CUT_BYTES;
        w.part_bytes = w.ring_bytes = largest * UINT64_C(4096);
        planned p = plan_once(model, machine, &w);
        assert_true(p.budget.total_bytes <= p.budget.vram_bytes && p.budget.resident_bytes <= room);
        if (p.budget.resident_bytes < prefix * 4096)
            fail_msg("model %d: %.0f rows stay, %.0f by the contiguous rule", m, (double)p.budget.resident_bytes / 4096, (double)prefix);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

/* Below what must be paid anyway the remainder is nothing, not a huge number: refused with what is needed and what is there. */
static void test_61_negative_remainder(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    static const struct {
        double vram, runtime;
        uint64_t headroom;
        uint64_t context;
    } cases[] = {
        {1, 0, 0, 64},        {1e6, 1e9, 0, 64}, {1e9, 2e9, 0, 64},        {1e9, 0, 2000000000, 64},       {1e9, 5e8, 500000001, 64},
        {1e8, 0, 0, 1000000}, {4e6, 0, 0, 4096}, {1e9, 0, UINT64_MAX, 64}, {1e9, 9e15, UINT64_MAX / 2, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ofl_machine *machine = test_machine(cases[i].vram, 1e9, 0, 10e9, 1e12, cases[i].runtime);
        for (int forced = 0; forced < 2; forced++) {
            ofl_workload w = {
                .struct_size = sizeof w, .context_tokens = cases[i].context, .force_headroom = 1, .force_layers = (uint32_t)forced};
            ofl_plan *plan = NULL;
            w.headroom_bytes = cases[i].headroom;
            ofl_status status = ofl_plan_make(model, machine, &w, &plan);
            if (status != OFL_ERROR_NO_FIT && status != OFL_ERROR_OVERFLOW) fail_msg("case %zu: %s", i, ofl_status_name(status));
            if (status == OFL_ERROR_NO_FIT) assert_true(ofl_diagnostic_get()->bytes_needed > ofl_diagnostic_get()->bytes_available);
            assert_null(plan);
        }
        ofl_machine_destroy(machine);
    }
    ofl_model_destroy(model);
}

/* 63: 24 GB and 24 GiB are 1,769,803,776 bytes apart, four layers of an 8B model: all of it reaches the weights but for the headroom's
 * share. */
static void test_63_gb_and_gib(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama70b());
    ofl_machine *decimal = card(24e9), *binary = card(24.0 * 1073741824);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .sequences = 1};
    planned a = plan_once(model, decimal, &w), b = plan_once(model, binary, &w);
    assert_int_equal(b.budget.vram_bytes - a.budget.vram_bytes, 1769803776);
    double more = (double)(b.budget.resident_bytes - a.budget.resident_bytes);
    assert_true(more > 0.95 * 1769803776 - 4e6 && more < 0.95 * 1769803776 + 4e6 && more / 436224000 > 3.8);
    ofl_machine_destroy(decimal);
    ofl_machine_destroy(binary);
    ofl_model_destroy(model);
}

static void put(safetensors_writer *w, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[] = {rows, columns};
    safetensors_tensor(w, name, "BF16", columns != 0 ? 2 : 1, shape, NULL, rows * (columns != 0 ? columns : 1) * 2);
}

/* A folder of one block; more: what its config says besides. */
static ofl_model *folder_model(const char *name, const char *more)
{
    char config[512], path[512];
    const char *folder = test_make_folder(name);
    safetensors_writer w;
    (void)snprintf(
        config, sizeof config,
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":128,"
        "\"vocab_size\":100,%s}",
        more);
    test_write_text(folder, "config.json", config);
    safetensors_start(&w);
    put(&w, "model.embed_tokens.weight", 100, 64);
    put(&w, "lm_head.weight", 100, 64);
    put(&w, "model.norm.weight", 64, 0);
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } parts[] = {
        {"input_layernorm", 64, 0},   {"post_attention_layernorm", 64, 0}, {"self_attn.q_proj", 64, 64}, {"self_attn.k_proj", 64, 64},
        {"self_attn.v_proj", 64, 64}, {"self_attn.o_proj", 64, 64},        {"mlp.gate_proj", 128, 64},   {"mlp.up_proj", 128, 64},
        {"mlp.down_proj", 64, 128}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        (void)snprintf(path, sizeof path, "model.layers.0.%s.weight", parts[i].name);
        put(&w, path, parts[i].rows, parts[i].columns);
    }
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_save(&w, path);
    safetensors_end(&w);
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(folder, &model));
    return model;
}

/* 64: the default context is a small one, whatever the model was trained for; that is told as it is stated, the rope factor not multiplied
 * in once more. */
static void test_64_default_context(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t trained, planned;
    } cases[] = {
        {"\"max_position_embeddings\":1048576", 1048576, 4096},
        {"\"max_position_embeddings\":131072,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":"
         "32768}",
         131072, 4096},
        {"\"max_position_embeddings\":32768,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}",
         32768, 4096},
        {"\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}", 131072, 4096},
        {"\"max_position_embeddings\":512", 512, 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "trained%zu", i);
        ofl_model *model = folder_model(name, cases[i].config);
        ofl_model_shape shape = {.struct_size = sizeof shape};
        ofl_machine *machine = card(2e9);
        ofl_workload w = {.struct_size = sizeof w};
        assert_ok(ofl_model_shape_get(model, &shape));
        assert_int_equal(shape.trained_context_tokens, cases[i].trained);
        assert_int_equal(plan_once(model, machine, &w).settings.context_tokens, cases[i].planned);
        w.context_tokens = cases[i].trained + 1; /* beyond it: planned as asked, and said */
        ofl_plan *plan = plan_of(model, machine, &w);
        bool said = false;
        for (uint32_t j = 0; j < ofl_plan_advice_count(plan); j++)
            said |= strstr(ofl_plan_advice(plan, j), "that the model was trained for") != NULL;
        assert_true(said);
        ofl_plan_destroy(plan);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

static ofl_status submitted(const ofl_plan *plan, uint32_t prompt, uint32_t answer)
{
    ofl_front *front;
    ofl_request request = {.struct_size = sizeof request, .prompt_tokens = prompt, .max_new_tokens = answer};
    assert_ok(ofl_front_create(plan, NULL, &front));
    ofl_status status = ofl_front_submit(front, &request, NULL);
    if (status == OFL_OK) { /* accepted means that it runs */
        ofl_step step = {.struct_size = sizeof step};
        assert_ok(ofl_front_next_step(front, &step));
        assert_int_equal(step.item_count, 1);
    }
    ofl_front_destroy(front);
    return status;
}

/* 65: whole blocks of 16, in the bytes as in the tokens; a request that is longer than all of them is refused at once. */
static void test_65_whole_blocks(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = card(4e9);
    static const uint64_t contexts[] = {23648, 23633, 1000, 1, 16, 17, 4095};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = contexts[i], .sequences = 1};
        uint64_t whole = (contexts[i] + 15) / 16 * 16, bytes;
        ofl_plan *plan = plan_of(model, machine, &w);
        planned p = read_plan(plan);
        assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, whole, &bytes));
        assert_true(p.settings.kv_capacity_tokens == whole && p.budget.kv_bytes == bytes);
        assert_ok(submitted(plan, (uint32_t)whole - 1, 1)); /* 23,648 are 1,478 blocks */
        assert_status(submitted(plan, (uint32_t)whole, 1), OFL_ERROR_NO_FIT);
        assert_status(submitted(plan, 1, (uint32_t)whole), OFL_ERROR_NO_FIT);
        ofl_plan_destroy(plan);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* 68: driver and libraries have a line of their own, at least 350 MiB where nothing was measured; a budget of just the weights does not
 * hold them all. */
static void test_68_runtime_is_reserved(void **state)
{
    (void)state;
    const test_shape shapes[] = {smol135m(), llama8b(OFL_DTYPE_BF16), qwen7b()};
    for (size_t i = 0; i < 3; i++) {
        ofl_model *model = test_model(shapes[i]);
        ofl_machine *machine = NULL;
        double bytes = all_bytes(model);
        assert_ok(ofl_machine_create("no device", &machine));
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, bytes > 2e9 ? bytes : 2e9, OFL_SOURCE_GIVEN));
        assert_ok(ofl_machine_assume(machine));
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256};
        planned p = plan_once(model, machine, &w);
        assert_true(p.budget.runtime_bytes >= UINT64_C(350) << 20);
        assert_true(p.budget.headroom_bytes > 0);
        assert_true(p.budget.vram_bytes - p.budget.runtime_bytes >=
                    p.budget.resident_bytes + p.budget.ring_bytes + p.budget.kv_bytes + p.budget.activation_bytes);
        if (bytes > 2e9) assert_true(p.budget.stream_bytes_per_step > UINT64_C(350) << 20 || p.budget.pinned_bytes > UINT64_C(350) << 20);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

/* 70: what can be page-locked is a limit of its own, below what is wished for: never exceeded, the rest is pageable at its own rate, and
 * said. */
static void test_70_pinned_memory_is_limited(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    double mib = 1048576;
    for (double pinnable = 1200 * mib; pinnable < 14000 * mib; pinnable += 880 * mib) {
        ofl_machine *machine = card(3876 * mib);
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, pinnable, OFL_SOURCE_MEASURED)); /* 3,840 MiB were the most there */
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_PAGEABLE, 6e9, OFL_SOURCE_GIVEN));
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
        ofl_plan *plan = plan_of(model, machine, &w);
        planned p = read_plan(plan);
        bool said = false, short_of = p.budget.pageable_bytes != 0;
        assert_true((double)p.budget.pinned_bytes <= pinnable);
        for (uint32_t i = 0; i < ofl_plan_advice_count(plan); i++)
            said |= strstr(ofl_plan_advice(plan, i), "no more host memory can be pinned") != NULL;
        assert_int_equal(said, short_of);
        if (short_of) assert_true((double)p.budget.pinned_bytes > 0.985 * pinnable - 64e6);
        double link = fmax((double)p.budget.stream_bytes_per_step / 12e9, (double)p.budget.pageable_bytes / 6e9);
        assert_near(p.forecast.step.link_seconds, link, 0.01);
        ofl_plan_destroy(plan);
        ofl_machine_destroy(machine);
    }
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_57_memory_that_shrank),
    cmocka_unit_test(test_57_what_is_held_already),
    cmocka_unit_test(test_58_fit_is_monotone_in_the_context),
    cmocka_unit_test(test_58_layers_never_rise),
    cmocka_unit_test(test_59_logits_are_counted_once),
    cmocka_unit_test(test_61_uneven_layers),
    cmocka_unit_test(test_61_never_above_and_never_below_contiguous),
    cmocka_unit_test(test_61_negative_remainder),
    cmocka_unit_test(test_63_gb_and_gib),
    cmocka_unit_test(test_64_default_context),
    cmocka_unit_test(test_65_whole_blocks),
    cmocka_unit_test(test_68_runtime_is_reserved),
    cmocka_unit_test(test_70_pinned_memory_is_limited),
};
TEST_MAIN(tests)

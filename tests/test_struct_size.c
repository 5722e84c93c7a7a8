/* Structs that grow, through every function that takes one: of a caller whose struct is smaller no byte beyond is read or written (it ends
 * at a page that nobody may touch), of one whose struct is larger the rest is zeroed, or refused where it is set. */
#include "support/engine_fixture.h"
#include "support/gguf_writer.h"

#include <sys/mman.h>
#include <unistd.h>

enum { MORE = 32, FULL_MOST = 1024 };

static struct world {
    fixture_model weights;
    ofl_model *file;
    ofl_device *device;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_engine *engine;
    ofl_front *front;
} w;

/* ---- memory that ends where the struct does ---- */

static char *edge_memory;
static size_t edge_bytes;

static void *at_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (edge_memory == NULL) {
        edge_bytes = 2 * page;
        edge_memory = mmap(NULL, edge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(edge_memory != MAP_FAILED && mprotect(edge_memory + page, page, PROT_NONE) == 0);
    }
    assert_true(bytes <= page);
    return edge_memory + page - bytes;
}

/* ---- what the library fills ---- */

typedef struct out_case {
    const char *name;
    size_t full;
    ofl_status (*call)(void *out);
} out_case;

static ofl_status shape_get(void *out) { return ofl_model_shape_get(w.weights.model, out); }
static ofl_status tensor_get(void *out) { return ofl_model_tensor_get(w.weights.model, 1, out); }
static ofl_status kv_layer_get(void *out) { return ofl_model_kv_layer_get(w.weights.model, 0, out); }
static ofl_status metadata_get(void *out) { return ofl_model_metadata_get(w.file, "general.name", out); }
static ofl_status device_info(void *out) { return ofl_device_info_get(w.device, out); }
static ofl_status memory_info(void *out) { return ofl_device_memory_get(w.device, out); }
static ofl_status line(void *out) { return ofl_machine_line(w.machine, OFL_PATH_PINNED_TO_DEVICE, out); }
static ofl_status link_state(void *out) { return ofl_machine_link_state(w.machine, out); }
static ofl_status budget(void *out) { return ofl_plan_budget_get(w.plan, out); }
static ofl_status plan_settings(void *out) { return ofl_plan_settings_get(w.plan, out); }
static ofl_status forecast(void *out) { return ofl_plan_forecast_get(w.plan, out); }
static ofl_status forecast_row(void *out) { return ofl_plan_forecast_row_get(w.plan, 0, out); }
static ofl_status unit(void *out) { return ofl_plan_unit_get(w.plan, 0, out); }
static ofl_status slice(void *out) { return ofl_plan_slice_get(w.plan, 1, out); }
static ofl_status engine_stats(void *out) { return ofl_engine_stats_get(w.engine, out); }
static ofl_status unit_stats(void *out) { return ofl_engine_unit_stats_get(w.engine, 0, out); }
static ofl_status front_forecast(void *out) { return ofl_front_forecast_get(w.front, out); }

static ofl_status estimate(void *out)
{
    const ofl_step_shape step = {.struct_size = sizeof step, .tokens = 2, .logits_rows = 2, .kv_tokens = 20};
    return ofl_plan_estimate_step(w.plan, &step, out);
}

static ofl_status acquire(void *out)
{
    ofl_status status = ofl_engine_acquire(w.engine, 0, NULL, out);
    if (status == OFL_OK) assert_ok(ofl_engine_release(w.engine, 0, NULL));
    return status;
}

static ofl_status next_step(void *out)
{
    ofl_status status = ofl_front_next_step(w.front, out);
    if (status == OFL_OK) assert_ok(ofl_front_abandon(w.front));
    return status;
}

static ofl_status pass_time(void *context, const ofl_compute_run *run)
{
    (void)context;
    return ofl_sim_elapse(w.device, 1e-3 * run->tokens);
}

static const ofl_compute_probe probe = {
    .struct_size = sizeof probe, .block_count = 2, .run = pass_time, .block_elements = 1e6, .max_tokens = 4, .context_tokens = 64};

static ofl_status measure(void *out) { return ofl_compute_measure(w.device, &probe, out); }

static const out_case outs[] = {
    {"ofl_model_shape_get", sizeof(ofl_model_shape), shape_get},
    {"ofl_model_tensor_get", sizeof(ofl_tensor_info), tensor_get},
    {"ofl_model_kv_layer_get", sizeof(ofl_kv_layer), kv_layer_get},
    {"ofl_model_metadata_get", sizeof(ofl_metadata), metadata_get},
    {"ofl_device_info_get", sizeof(ofl_device_info), device_info},
    {"ofl_device_memory_get", sizeof(ofl_memory_info), memory_info},
    {"ofl_machine_line", sizeof(ofl_link_line), line},
    {"ofl_machine_link_state", sizeof(ofl_link_state), link_state},
    {"ofl_plan_budget_get", sizeof(ofl_budget), budget},
    {"ofl_plan_settings_get", sizeof(ofl_plan_settings), plan_settings},
    {"ofl_plan_forecast_get", sizeof(ofl_forecast), forecast},
    {"ofl_plan_forecast_row_get", sizeof(ofl_forecast_row), forecast_row},
    {"ofl_plan_unit_get", sizeof(ofl_unit), unit},
    {"ofl_plan_slice_get", sizeof(ofl_slice), slice},
    {"ofl_plan_estimate_step", sizeof(ofl_step_estimate), estimate},
    {"ofl_compute_measure", sizeof(ofl_compute_figures), measure},
    {"ofl_engine_acquire", sizeof(ofl_view), acquire},
    {"ofl_engine_stats_get", sizeof(ofl_engine_stats), engine_stats},
    {"ofl_engine_unit_stats_get", sizeof(ofl_engine_unit_stats), unit_stats},
    {"ofl_front_next_step", sizeof(ofl_step), next_step},
    {"ofl_front_forecast_get", sizeof(ofl_front_forecast), front_forecast},
};

/* The first bytes of a struct are those of a full one, its size apart; what is beyond a full one is zero. */
static void compare_out(const out_case *c, const char *got, const char *full, size_t size)
{
    static const char zeros[MORE];
    size_t known = size < c->full ? size : c->full;
    if (memcmp(got + 4, full + 4, known - 4) != 0) fail_msg("%s: of %zu bytes some are other than in the full struct", c->name, size);
    if (memcmp(got + known, zeros, size - known) != 0) fail_msg("%s: what this release does not know is not zero", c->name);
}

static void test_what_is_filled(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++) {
        const out_case *c = &outs[i];
        char full[FULL_MOST] = {0};
        const uint32_t full_size = (uint32_t)c->full;
        memcpy(full, &full_size, 4);
        assert_ok(c->call(full));
        for (uint32_t size = full_size + MORE; size >= 8; size -= 8) {
            char *out = at_edge(size);
            memset(out, 0xA5, size);
            memcpy(out, &size, 4);
            if (c->call(out) != OFL_OK) fail_msg("%s: %u bytes: %s", c->name, (unsigned)size, ofl_error_message());
            if (c->call != measure) compare_out(c, out, full, size); /* it measures anew each time */
            assert_memory_equal(out, &size, 4);
        }
        full[0] = full[1] = full[2] = full[3] = 0;
        assert_status(c->call(full), OFL_ERROR_ARGUMENT);
    }
}

/* ---- what the caller fills ---- */

typedef struct in_case {
    const char *name;
    const void *full;
    size_t bytes;
    ofl_status (*call)(const void *in);
} in_case;

static const ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = 1, .hidden_size = 64, .head_count = 1,
                                      .head_count_kv = 1, .head_dim_k = 64, .head_dim_v = 64, .ffn_size = 64,
                                      .vocab_size = 64, .trained_context_tokens = 64};
static const float numbers[64 * 64];
static const ofl_tensor_source source = {.struct_size = sizeof source, .name = "one", .dtype = OFL_DTYPE_F32,
                                         .tensor_class = OFL_CLASS_DENSE, .role = OFL_ROLE_ATTN_Q, .n_dims = 2, .dims = {64, 64},
                                         .data = numbers};
static const ofl_kv_layer kv = {.struct_size = sizeof kv, .kind = OFL_KV_FULL, .head_count_kv = 1, .k_elements = 64, .v_elements = 64};
static const ofl_probe_options probing = {.struct_size = sizeof probing};
static const ofl_workload job = {.struct_size = sizeof job, .context_tokens = 32, .sequences = 1, .prefill_chunk_tokens = 4};
static const ofl_step_shape step = {.struct_size = sizeof step, .tokens = 1, .logits_rows = 1, .kv_tokens = 8};
static const ofl_engine_options loading = {.struct_size = sizeof loading};
static const ofl_front_options admission = {.struct_size = sizeof admission, .admission = OFL_LONGEST_FIRST};
static const ofl_request request = {.struct_size = sizeof request, .prompt_tokens = 2, .max_new_tokens = 2};
static const ofl_compute_figures figures = {.struct_size = sizeof figures, .point_count = 1, .points = {{1, 1e-9}}};

static ofl_status create(const void *in)
{
    ofl_model_builder *builder;
    ofl_status status = ofl_model_builder_create("m", "llama", in, &builder);
    if (status == OFL_OK) ofl_model_builder_destroy(builder);
    return status;
}

static ofl_status from_stacks(const void *in)
{
    const ofl_stack stack = {.role = OFL_ROLE_ATTN_Q, .dtype = OFL_DTYPE_F32, .data = numbers, .rows = 64, .columns = 64};
    ofl_model *model;
    ofl_status status = ofl_model_from_stacks("m", in, &stack, 1, &model);
    if (status == OFL_OK) ofl_model_destroy(model);
    return status;
}

static ofl_status into_builder(const ofl_tensor_source *tensor, const ofl_kv_layer *layer)
{
    ofl_model_builder *builder;
    assert_ok(ofl_model_builder_create("m", "llama", &shape, &builder));
    ofl_status status = tensor != NULL ? ofl_model_builder_add_tensor(builder, tensor) : ofl_model_builder_set_kv_layer(builder, 0, layer);
    ofl_model_builder_destroy(builder);
    return status;
}

static ofl_status add_tensor(const void *in) { return into_builder(in, NULL); }
static ofl_status set_kv_layer(const void *in) { return into_builder(NULL, in); }

static ofl_status probe_with(const void *in)
{
    ofl_machine *machine;
    ofl_status status = ofl_machine_probe_with(w.device, in, &machine);
    if (status == OFL_OK) ofl_machine_destroy(machine);
    return status;
}

static ofl_status make(const void *in)
{
    ofl_plan *plan;
    ofl_status status = ofl_plan_make(w.weights.model, w.machine, in, &plan);
    if (status == OFL_OK) ofl_plan_destroy(plan);
    return status;
}

static ofl_status estimate_of(const void *in)
{
    ofl_step_estimate out = {.struct_size = sizeof out};
    return ofl_plan_estimate_step(w.plan, in, &out);
}

static ofl_status activation(const void *in)
{
    uint64_t hidden, logits, workspace;
    return ofl_activation_bytes(in, OFL_COMPUTE_F32, 4, 1, 0, &hidden, &logits, &workspace);
}

static ofl_status measure_with(const void *in)
{
    ofl_compute_figures out = {.struct_size = sizeof out};
    return ofl_compute_measure(w.device, in, &out);
}

static ofl_status open_engine(const void *in)
{
    ofl_engine *engine;
    ofl_status status = ofl_engine_open(w.plan, w.weights.model, w.device, in, &engine);
    if (status == OFL_OK) ofl_engine_close(engine);
    return status;
}

static ofl_status create_front(const void *in)
{
    ofl_front *front;
    ofl_status status = ofl_front_create(w.plan, in, &front);
    if (status == OFL_OK) ofl_front_destroy(front);
    return status;
}

static ofl_status submit(const void *in)
{
    uint64_t id;
    ofl_status status = ofl_front_submit(w.front, in, &id);
    if (status == OFL_OK) assert_ok(ofl_front_cancel(w.front, id));
    return status;
}

static const in_case ins[] = {
    {"ofl_model_builder_create", &shape, sizeof shape, create},
    {"ofl_model_from_stacks", &shape, sizeof shape, from_stacks},
    {"ofl_model_builder_add_tensor", &source, sizeof source, add_tensor},
    {"ofl_model_builder_set_kv_layer", &kv, sizeof kv, set_kv_layer},
    {"ofl_machine_probe_with", &probing, sizeof probing, probe_with},
    {"ofl_plan_make", &job, sizeof job, make},
    {"ofl_plan_estimate_step", &step, sizeof step, estimate_of},
    {"ofl_activation_bytes", &shape, sizeof shape, activation},
    {"ofl_compute_measure", &probe, sizeof probe, measure_with},
    {"ofl_engine_open", &loading, sizeof loading, open_engine},
    {"ofl_front_create", &admission, sizeof admission, create_front},
    {"ofl_front_submit", &request, sizeof request, submit},
};

/* Smaller by what is zero: as the full one. Smaller still: whatever it says, it reads no further. */
static void test_what_callers_fill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++) {
        const in_case *c = &ins[i];
        size_t used = c->bytes; /* the last byte that is set */
        while (((const char *)c->full)[used - 1] == 0) used--;
        for (uint32_t size = (uint32_t)c->bytes + MORE; size >= 8; size -= 8) {
            char *in = at_edge(size);
            memset(in, 0, size);
            memcpy(in, c->full, size < c->bytes ? size : c->bytes);
            memcpy(in, &size, 4);
            ofl_status status = c->call(in);
            if (size >= used && status != OFL_OK)
                fail_msg("%s: %u of %zu bytes: %s", c->name, (unsigned)size, c->bytes, ofl_error_message());
            if (size <= c->bytes) continue;
            in[size - 1] = 1;
            assert_status(c->call(in), OFL_ERROR_ARGUMENT);
        }
    }
}

/* Both of its structs are the caller's. */
static void test_figures_go_into_a_workload(void **state)
{
    (void)state;
    for (uint32_t of_figures = sizeof figures + MORE; of_figures >= 8; of_figures -= 8) {
        char *in = at_edge(of_figures);
        ofl_workload to = {.struct_size = sizeof to, .context_tokens = 32};
        memset(in, 0, of_figures);
        memcpy(in, &figures, of_figures < sizeof figures ? of_figures : sizeof figures);
        memcpy(in, &of_figures, 4);
        assert_ok(ofl_compute_use((const ofl_compute_figures *)(const void *)in, &to));
        assert_int_equal(to.context_tokens, 32);
        if (of_figures >= offsetof(ofl_compute_figures, points) + sizeof(ofl_compute_point)) {
            assert_int_equal(to.compute_point_count, 1);
            assert_true(to.compute_points[0].seconds_per_element == 1e-9);
        }
    }
    ofl_workload kept = {.struct_size = 3, .context_tokens = 32};
    ofl_compute_figures wrong = {.struct_size = 3};
    assert_status(ofl_compute_use(&figures, &kept), OFL_ERROR_ARGUMENT);
    assert_status(ofl_compute_use(&figures, NULL), OFL_ERROR_ARGUMENT);
    kept.struct_size = sizeof kept;
    assert_status(ofl_compute_use(&wrong, &kept), OFL_ERROR_ARGUMENT);
    assert_true(kept.compute_point_count == 0 && kept.context_tokens == 32);
    for (uint32_t size = sizeof job + MORE; size >= 8; size -= 8) {
        char *to = at_edge(size);
        memset(to, 0, size);
        memcpy(to, &size, 4);
        assert_ok(ofl_compute_use(&figures, (ofl_workload *)(void *)to));
        const ofl_compute_point *points = figures.points;
        const size_t place = offsetof(ofl_workload, compute_points);
        if (size >= place + sizeof points) assert_memory_equal(to + place, &points, sizeof points);
    }
}

static void open_file(void)
{
    gguf_writer g;
    const uint64_t dims[2] = {64, 100};
    gguf_start(&g);
    gguf_key_string(&g, "general.architecture", "llama");
    gguf_key_string(&g, "general.name", "Tiny");
    gguf_key_u32(&g, "llama.block_count", 1);
    gguf_key_u32(&g, "llama.context_length", 64);
    gguf_key_u32(&g, "llama.embedding_length", 64);
    gguf_key_u32(&g, "llama.feed_forward_length", 128);
    gguf_key_u32(&g, "llama.attention.head_count", 4);
    gguf_key_f32(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_tensor(&g, "token_embd.weight", 0, 2, dims, NULL, 64 * 100 * 4);
    gguf_tensor(&g, "blk.0.attn_q.weight", 0, 2, dims, NULL, 64 * 100 * 4);
    gguf_save(&g, test_path("tiny.gguf"));
    gguf_end(&g);
    assert_ok(ofl_model_open(test_path("tiny.gguf"), &w.file));
}

static int setup(void **state)
{
    (void)state;
    const ofl_workload work = {.struct_size = sizeof work, .context_tokens = 64, .sequences = 1, .prefill_chunk_tokens = 8};
    uint64_t id;
    open_file();
    fixture_model_open(&w.weights, 0);
    assert_ok(ofl_device_open("sim:vram=64MB,h2d=1GB/s,clock=virtual", &w.device));
    assert_ok(ofl_machine_probe(w.device, &w.machine));
    assert_ok(ofl_machine_assume(w.machine));
    assert_ok(ofl_plan_make(w.weights.model, w.machine, &work, &w.plan));
    assert_ok(ofl_engine_open(w.plan, w.weights.model, w.device, NULL, &w.engine));
    assert_ok(ofl_front_create(w.plan, NULL, &w.front));
    assert_ok(ofl_front_submit(w.front, &request, &id));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ofl_front_destroy(w.front);
    ofl_engine_close(w.engine);
    ofl_plan_destroy(w.plan);
    ofl_machine_destroy(w.machine);
    ofl_device_close(w.device);
    ofl_model_destroy(w.file);
    fixture_model_close(&w.weights);
    return edge_memory != NULL ? munmap(edge_memory, edge_bytes) : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_filled),
        cmocka_unit_test(test_what_callers_fill),
        cmocka_unit_test(test_figures_go_into_a_workload),
    };
    return cmocka_run_group_tests(tests, setup, teardown) == 0 ? 0 : 1;
}

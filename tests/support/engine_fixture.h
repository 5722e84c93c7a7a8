/* A small model in the test's own memory, a plan for a small simulated device, and checks of what an engine hands out. */
#ifndef OFLOAD_TEST_ENGINE_FIXTURE_H
#define OFLOAD_TEST_ENGINE_FIXTURE_H

#include "device/sim.h"
#include "support/support.h"

/* Fewer seeds where each step costs twenty times as much. */
#if defined(__SANITIZE_THREAD__)
#define FIXTURE_SEEDS(n) ((n) / 6)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIXTURE_SEEDS(n) ((n) / 6)
#endif
#endif
#ifndef FIXTURE_SEEDS
#define FIXTURE_SEEDS(n) (n)
#endif

#define FIXTURE_NO_TIME 1e15 /* bytes per second: the host's own work takes no time on the virtual clock */
enum { FIXTURE_BLOCKS = 6, FIXTURE_HIDDEN = 192, FIXTURE_FFN = 384, FIXTURE_VOCAB = 500, FIXTURE_TENSORS = FIXTURE_BLOCKS * 9 + 3 };

typedef struct fixture_model {
    ofl_model *model;
    char *data[FIXTURE_TENSORS];
    char names[FIXTURE_TENSORS][64];
    ofl_tensor_source sources[FIXTURE_TENSORS];
    uint32_t count;
    uint64_t bytes;
} fixture_model;

/* Every word of every row of every tensor differs from what the others have there. */
static inline void fixture_tensor(fixture_model *m, const char *name, ofl_tensor_class kind, ofl_tensor_role role, int32_t block, int tied, uint64_t columns,
                                  uint64_t rows)
{
    uint64_t bytes = columns * rows * sizeof(float), random = 0x5EED0000u + m->count;
    char *data = malloc(bytes);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = test_random(&random);
        memcpy(data + i, &word, 8);
    }
    assert_true(m->count < FIXTURE_TENSORS);
    (void)snprintf(m->names[m->count], sizeof m->names[0], "%s", name);
    m->sources[m->count] = (ofl_tensor_source){
        .struct_size = sizeof(ofl_tensor_source), .name = m->names[m->count], .dtype = OFL_DTYPE_F32, .tensor_class = kind, .role = role, .block = block,
        .also_lookup = (uint32_t)tied, .n_dims = rows > 1 ? 2 : 1, .dims = {columns, rows > 1 ? rows : 0}, .data = data,
    };
    m->data[m->count++] = data;
    m->bytes += bytes;
}

static inline void fixture_block(fixture_model *m, int32_t b)
{
    static const struct { const char *name; ofl_tensor_role role; uint64_t columns, rows; } parts[] = {
        {"attn_norm", OFL_ROLE_ATTN_NORM, FIXTURE_HIDDEN, 1},            {"q", OFL_ROLE_ATTN_Q, FIXTURE_HIDDEN, FIXTURE_HIDDEN},
        {"k", OFL_ROLE_ATTN_K, FIXTURE_HIDDEN, FIXTURE_HIDDEN},          {"v", OFL_ROLE_ATTN_V, FIXTURE_HIDDEN, FIXTURE_HIDDEN},
        {"o", OFL_ROLE_ATTN_OUTPUT, FIXTURE_HIDDEN, FIXTURE_HIDDEN},     {"ffn_norm", OFL_ROLE_FFN_NORM, FIXTURE_HIDDEN, 1},
        {"gate", OFL_ROLE_FFN_GATE, FIXTURE_HIDDEN, FIXTURE_FFN},        {"up", OFL_ROLE_FFN_UP, FIXTURE_HIDDEN, FIXTURE_FFN},
        {"down", OFL_ROLE_FFN_DOWN, FIXTURE_FFN, FIXTURE_HIDDEN},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.%s", (int)b, parts[i].name);
        fixture_tensor(m, name, OFL_CLASS_DENSE, parts[i].role, b, 0, parts[i].columns, parts[i].rows);
    }
}

static inline void fixture_to_file(fixture_model *m, const char *path)
{
    FILE *file = fopen(path, "wb");
    uint64_t at = 0;
    assert_non_null(file);
    for (uint32_t i = 0; i < m->count; i++) {
        uint64_t bytes = m->sources[i].dims[0] * (m->sources[i].n_dims > 1 ? m->sources[i].dims[1] : 1) * sizeof(float);
        assert_int_equal(fwrite(m->data[i], 1, bytes, file), bytes);
        m->sources[i].data = NULL;
        m->sources[i].file = path;
        m->sources[i].file_offset = at;
        at += bytes;
    }
    assert_int_equal(fclose(file), 0);
}

/* path: NULL, or a file that the model's bytes are to be in. */
static inline void fixture_model_make(fixture_model *m, int tied, const char *path)
{
    ofl_model_shape shape = {
        .struct_size = sizeof shape, .block_count = FIXTURE_BLOCKS, .hidden_size = FIXTURE_HIDDEN, .head_count = 4, .head_count_kv = 4,
        .head_dim_k = FIXTURE_HIDDEN / 4, .head_dim_v = FIXTURE_HIDDEN / 4, .ffn_size = FIXTURE_FFN, .vocab_size = FIXTURE_VOCAB,
        .tied_output = (uint32_t)tied, .trained_context_tokens = 256, .norm_epsilon = 1e-5, .rope_dim = FIXTURE_HIDDEN / 4, .rope_freq_base = 10000,
    };
    ofl_model_builder *builder;
    memset(m, 0, sizeof *m);
    if (!tied) fixture_tensor(m, "embedding", OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, 0, FIXTURE_HIDDEN, FIXTURE_VOCAB);
    for (int32_t b = 0; b < FIXTURE_BLOCKS; b++) fixture_block(m, b);
    fixture_tensor(m, "output_norm", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT_NORM, FIXTURE_BLOCKS, 0, FIXTURE_HIDDEN, 1);
    fixture_tensor(m, "output", OFL_CLASS_DENSE, tied ? OFL_ROLE_EMBEDDING : OFL_ROLE_OUTPUT, FIXTURE_BLOCKS, tied, FIXTURE_HIDDEN, FIXTURE_VOCAB);
    if (path != NULL) fixture_to_file(m, path);
    assert_ok(ofl_model_builder_create("fixture", "llama", &shape, &builder));
    for (uint32_t i = 0; i < m->count; i++) assert_ok(ofl_model_builder_add_tensor(builder, &m->sources[i]));
    assert_ok(ofl_model_builder_finish(builder, &m->model));
}

static inline void fixture_model_open(fixture_model *m, int tied) { fixture_model_make(m, tied, NULL); }

static inline void fixture_model_close(fixture_model *m)
{
    ofl_model_destroy(m->model);
    for (uint32_t i = 0; i < m->count; i++) free(m->data[i]);
}

/* What the device of a case is like; the spec and the machine's figures say the same. */
typedef struct fixture_case {
    uint64_t vram;            /* what the plan may use */
    double link;              /* bytes per second */
    double start;             /* seconds per copy */
    double compute;           /* seconds per weight element */
    double host;              /* seconds between steps */
    ofl_cut cut;
    uint64_t part_bytes, ring_bytes;
    uint64_t pinnable, host_bytes; /* 0: no limit */
    uint64_t pinnable_there;  /* what the device really has, when it is less than planned with */
    const char *clock;
    uint64_t order;
    double pageable;          /* bytes per second that the host copies from pageable memory; 0: as fast as it can */
    double file;              /* and of the file */
    uint32_t whole_blocks;    /* 1: layers_kept blocks resident, the others streamed whole through two slots */
    uint32_t layers_kept;
} fixture_case;

static inline void fixture_device_open(const fixture_case *c, ofl_device **out)
{
    char spec[256];
    int used = snprintf(spec, sizeof spec, "sim:vram=%llu,h2d=%.0f,start=%.9f,clock=%s,order=%llu", (unsigned long long)c->vram, c->link, c->start,
                        c->clock ? c->clock : "virtual", (unsigned long long)c->order);
    uint64_t pinnable = c->pinnable_there ? c->pinnable_there : c->pinnable;
    if (pinnable != 0) used += snprintf(spec + used, sizeof spec - (size_t)used, ",pinnable=%llu", (unsigned long long)pinnable);
    if (c->pageable > 0) (void)snprintf(spec + used, sizeof spec - (size_t)used, ",h2d_pageable=%.0f", c->pageable);
    assert_ok(ofl_device_open(spec, out));
}

static inline ofl_status fixture_plan_make(const fixture_case *c, const ofl_model *model, ofl_plan **out)
{
    ofl_machine *machine;
    ofl_compute_point points[1] = {{1, c->compute}};
    ofl_workload workload = {
        .struct_size = sizeof workload, .objective = OFL_LATENCY, .context_tokens = 32, .sequences = 1, .prefill_chunk_tokens = 4, .cut = c->cut,
        .part_bytes = c->part_bytes, .force_headroom = 1, .compute_type = OFL_COMPUTE_F32, .compute_point_count = c->compute > 0,
        .compute_points = points, .host_seconds_per_step = c->host, .ring_bytes = c->ring_bytes,
        .force_layers = c->whole_blocks, .force_resident_layers = c->layers_kept,
    };
    assert_ok(ofl_machine_create("simulated", &machine));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, (double)c->vram, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_HOST, c->host_bytes ? (double)c->host_bytes : 1e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, c->pinnable ? (double)c->pinnable : 1e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, c->link, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_PAGEABLE, c->pageable > 0 ? c->pageable : FIXTURE_NO_TIME, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_COPY_START, c->start, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_FILE, c->file > 0 ? c->file : FIXTURE_NO_TIME, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_DEVICE_BANDWIDTH, 1e15, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_DEVICE_FLOPS, 1e18, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(machine));
    ofl_status status = ofl_plan_make(model, machine, &workload, out);
    ofl_machine_destroy(machine);
    return status;
}

/* The smallest device memory (to 64 KiB) that the model can be planned for. */
static inline uint64_t fixture_least_vram(fixture_case c, const ofl_model *model)
{
    uint64_t low = 0, high = 64u << 20;
    while (high - low > 65536) {
        ofl_plan *plan;
        c.vram = low + (high - low) / 2;
        ofl_status status = fixture_plan_make(&c, model, &plan);
        if (status == OFL_OK) {
            ofl_plan_destroy(plan);
            high = c.vram;
        } else {
            assert_status(status, OFL_ERROR_NO_FIT);
            low = c.vram;
        }
    }
    return high;
}

typedef struct fixture {
    fixture_model *model;
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine;
    ofl_budget budget;
    uint32_t units;
} fixture;

static inline void fixture_open(fixture *f, const fixture_case *c, fixture_model *model, const ofl_engine_options *options)
{
    memset(f, 0, sizeof *f);
    f->model = model;
    f->budget.struct_size = sizeof f->budget;
    assert_ok(fixture_plan_make(c, model->model, &f->plan));
    assert_ok(ofl_plan_budget_get(f->plan, &f->budget));
    fixture_device_open(c, &f->device);
    f->units = ofl_plan_unit_count(f->plan);
    assert_ok(ofl_engine_open(f->plan, model->model, f->device, options, &f->engine));
}

static inline void fixture_device_close(ofl_device *device)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    assert_int_equal(memory.pinned_bytes, 0);
    assert_int_equal(ofl_sim_hasty(device), 0);
    ofl_device_close(device);
}

/* Nothing is left behind, and the plan's word was kept. */
static inline void fixture_close(fixture *f)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_engine_close(f->engine);
    assert_ok(ofl_device_memory_get(f->device, &memory));
    assert_true(memory.peak_bytes <= f->budget.resident_bytes + f->budget.ring_bytes);
    fixture_device_close(f->device);
    ofl_plan_destroy(f->plan);
}

/* Bytes of one acquired unit against the model's own. */
typedef struct fixture_check {
    const fixture_model *model;
    const ofl_view_slice *slices; /* a copy: the engine's own is borrowed until release only */
    uint32_t count;
    uint32_t *wrong;
} fixture_check;

static inline void fixture_check_run(void *context)
{
    const fixture_check *check = context;
    for (uint32_t i = 0; i < check->count; i++) {
        const ofl_view_slice *slice = &check->slices[i];
        const char *source = check->model->data[slice->tensor];
        uint64_t row_bytes = slice->row_count ? slice->bytes / slice->row_count : 0;
        if ((uintptr_t)slice->data % OFL_ALIGNMENT_BYTES != 0 || memcmp(slice->data, source + slice->row_first * row_bytes, slice->bytes) != 0) ++*check->wrong;
    }
}

#endif

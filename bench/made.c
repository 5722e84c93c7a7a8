#include "made.h"

#include <stdio.h>
#include <string.h>

#include "common/app_error.h"

static const char no_bytes[1]; /* stands for all data: planning reads none */

#define PAGE_BYTES 4096u

typedef struct making {
    ofl_model_builder *builder; /* NULL: bytes are only added up */
    const made_kind *kind;
    uint64_t placed;
} making;

/* rows 0: a vector. */
static ofl_status add(making *m, const char *name, ofl_tensor_class tensor_class, ofl_tensor_role role, int32_t block, uint64_t columns, uint64_t rows)
{
    ofl_tensor_source source = {.struct_size = sizeof source, .name = name, .dtype = rows > 0 ? m->kind->dtype : OFL_DTYPE_F32, .tensor_class = tensor_class,
                                .role = role, .block = block, .n_dims = rows > 0 ? 2 : 1, .dims = {columns, rows}, .data = m->kind->data};
    uint64_t bytes = 0;
    ofl_status status = ofl_dtype_bytes(source.dtype, rows > 0 ? columns * rows : columns, &bytes);
    if (status != OFL_OK) return status;
    source.also_lookup = role == OFL_ROLE_EMBEDDING && m->kind->tied;
    if (m->kind->laid) source.data = (const char *)m->kind->data + m->placed;
    m->placed += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return m->builder != NULL ? ofl_model_builder_add_tensor(m->builder, &source) : OFL_OK;
}

static ofl_status add_experts(making *m, const made_shape *s, uint32_t block)
{
    static const struct { const char *name; ofl_tensor_role role; } parts[] = {{"gate", OFL_ROLE_FFN_GATE}, {"up", OFL_ROLE_FFN_UP}, {"down", OFL_ROLE_FFN_DOWN}};
    char name[64];
    ofl_status status = OFL_OK;
    for (uint32_t expert = 0; expert < s->experts; expert++) {
        for (size_t part = 0; status == OFL_OK && part < 3; part++) {
            (void)snprintf(name, sizeof name, "block.%u.expert.%u.%s", block, expert, parts[part].name);
            status = part == 2 ? add(m, name, OFL_CLASS_EXPERT, parts[part].role, (int32_t)block, s->ffn, s->hidden)
                               : add(m, name, OFL_CLASS_EXPERT, parts[part].role, (int32_t)block, s->hidden, s->ffn);
        }
    }
    return status;
}

static ofl_status add_block(making *m, const made_shape *s, uint32_t block)
{
    uint64_t kv = (uint64_t)s->hidden / s->heads * s->kv_heads;
    const struct { const char *name; ofl_tensor_role role; uint64_t columns, rows; } tensors[] = {
        {"attn_norm", OFL_ROLE_ATTN_NORM, s->hidden, 0},
        {"q", OFL_ROLE_ATTN_Q, s->hidden, s->hidden},
        {"k", OFL_ROLE_ATTN_K, s->hidden, kv},
        {"v", OFL_ROLE_ATTN_V, s->hidden, kv},
        {"output", OFL_ROLE_ATTN_OUTPUT, s->hidden, s->hidden},
        {"ffn_norm", OFL_ROLE_FFN_NORM, s->hidden, 0},
        {"gate", OFL_ROLE_FFN_GATE, s->hidden, s->ffn},
        {"up", OFL_ROLE_FFN_UP, s->hidden, s->ffn},
        {"down", OFL_ROLE_FFN_DOWN, s->ffn, s->hidden},
    };
    ofl_status status = OFL_OK;
    for (size_t i = 0; status == OFL_OK && i < (s->experts > 0 ? 6 : 9); i++) {
        char name[64];
        if (m->kind->plain_ffn && tensors[i].role == OFL_ROLE_FFN_GATE) continue;
        (void)snprintf(name, sizeof name, "block.%u.%s", block, tensors[i].name);
        status = add(m, name, OFL_CLASS_DENSE, tensors[i].role, (int32_t)block, tensors[i].columns, tensors[i].rows);
    }
    return status == OFL_OK ? add_experts(m, s, block) : status;
}

static ofl_status add_all(making *m, const made_shape *s)
{
    ofl_status status = OFL_OK;
    int32_t last = (int32_t)s->layers;
    if (!m->kind->tied) status = add(m, "embedding", OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, s->hidden, s->vocabulary);
    for (uint32_t i = 0; status == OFL_OK && i < s->layers; i++) status = add_block(m, s, i);
    if (status == OFL_OK) status = add(m, "final_norm", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT_NORM, last, s->hidden, 0);
    if (status != OFL_OK) return status;
    return m->kind->tied ? add(m, "embedding", OFL_CLASS_DENSE, OFL_ROLE_EMBEDDING, last, s->hidden, s->vocabulary)
                         : add(m, "head", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, last, s->hidden, s->vocabulary);
}

static ofl_status set_kv(ofl_model_builder *builder, const made_shape *s, uint64_t elements)
{
    const ofl_kv_layer kv = {.struct_size = sizeof kv, .kind = OFL_KV_FULL, .head_count_kv = s->kv_heads, .k_elements = elements, .v_elements = elements};
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; elements != 0 && i < s->layers && status == OFL_OK; i++) status = ofl_model_builder_set_kv_layer(builder, i, &kv);
    return status;
}

ofl_status made_model_kind(const made_shape *s, const made_kind *kind, ofl_model **out)
{
    const ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = s->layers, .hidden_size = s->hidden, .head_count = s->heads,
                                   .head_count_kv = s->kv_heads, .head_dim_k = s->hidden / s->heads, .head_dim_v = s->hidden / s->heads, .ffn_size = s->ffn,
                                   .vocab_size = s->vocabulary, .expert_count = s->experts,
                                   .expert_used_count = s->experts == 0 ? 0 : kind->experts_used != 0 ? kind->experts_used : 2,
                                   .tied_output = kind->tied,
                                   .trained_context_tokens = 32768, .norm_epsilon = 1e-5, .rope_dim = s->hidden / s->heads, .rope_freq_base = 10000};
    making m = {.kind = kind};
    ofl_status status = ofl_model_builder_create("made", "llama", &shape, &m.builder);
    if (status != OFL_OK) return app_forward(status);
    status = set_kv(m.builder, s, kind->kv_elements);
    if (status == OFL_OK) status = add_all(&m, s);
    if (status == OFL_OK) return ofl_model_builder_finish(m.builder, out) == OFL_OK ? OFL_OK : app_forward(ofl_diagnostic_get()->status);
    ofl_model_builder_destroy(m.builder);
    return app_forward(status);
}

uint64_t made_bytes(const made_shape *shape, const made_kind *kind)
{
    making m = {.kind = kind};
    return add_all(&m, shape) == OFL_OK ? m.placed : 0;
}

ofl_status made_model_of(const made_shape *shape, const void *data, ofl_model **out)
{
    return made_model_kind(shape, &(made_kind){.dtype = OFL_DTYPE_BF16, .data = data}, out);
}

ofl_status made_model(const made_shape *shape, ofl_model **out) { return made_model_of(shape, no_bytes, out); }

ofl_status made_machine(uint64_t vram_bytes, ofl_machine **out)
{
    ofl_machine *machine = NULL;
    ofl_status status = ofl_machine_create("made up", &machine);
    if (status == OFL_OK) status = ofl_machine_set(machine, OFL_FIGURE_VRAM, (double)vram_bytes, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_set(machine, OFL_FIGURE_LINK, 12e9, OFL_SOURCE_GIVEN);
    if (status == OFL_OK) status = ofl_machine_assume(machine);
    if (status == OFL_OK) *out = machine;
    else ofl_machine_destroy(machine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

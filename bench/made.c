#include "made.h"

#include <stdio.h>
#include <string.h>

#include "common/app_error.h"

static const char no_bytes[1]; /* stands for all data: planning reads none */

typedef struct making { ofl_model_builder *builder; const void *data; } making;

static ofl_status add(const making *m, const char *name, ofl_tensor_class tensor_class, ofl_tensor_role role, int32_t block, uint64_t columns, uint64_t rows)
{
    const ofl_tensor_source source = {.struct_size = sizeof source, .name = name, .dtype = rows > 0 ? OFL_DTYPE_BF16 : OFL_DTYPE_F32, .tensor_class = tensor_class,
                                      .role = role, .block = block, .n_dims = rows > 0 ? 2 : 1, .dims = {columns, rows}, .data = m->data};
    return ofl_model_builder_add_tensor(m->builder, &source);
}

static ofl_status add_experts(const making *m, const made_shape *s, uint32_t block)
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

static ofl_status add_block(const making *m, const made_shape *s, uint32_t block)
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
        (void)snprintf(name, sizeof name, "block.%u.%s", block, tensors[i].name);
        status = add(m, name, OFL_CLASS_DENSE, tensors[i].role, (int32_t)block, tensors[i].columns, tensors[i].rows);
    }
    return status == OFL_OK ? add_experts(m, s, block) : status;
}

static ofl_status add_all(const making *m, const made_shape *s)
{
    ofl_status status = add(m, "embedding", OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, s->hidden, s->vocabulary);
    for (uint32_t i = 0; status == OFL_OK && i < s->layers; i++) status = add_block(m, s, i);
    if (status == OFL_OK) status = add(m, "final_norm", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT_NORM, (int32_t)s->layers, s->hidden, 0);
    return status == OFL_OK ? add(m, "head", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, (int32_t)s->layers, s->hidden, s->vocabulary) : status;
}

ofl_status made_model_of(const made_shape *s, const void *data, ofl_model **out)
{
    const ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = s->layers, .hidden_size = s->hidden, .head_count = s->heads,
                                   .head_count_kv = s->kv_heads, .head_dim_k = s->hidden / s->heads, .head_dim_v = s->hidden / s->heads, .ffn_size = s->ffn,
                                   .vocab_size = s->vocabulary, .expert_count = s->experts, .expert_used_count = s->experts > 0 ? 2 : 0,
                                   .trained_context_tokens = 32768, .norm_epsilon = 1e-5, .rope_dim = s->hidden / s->heads, .rope_freq_base = 10000};
    ofl_model_builder *builder = NULL;
    ofl_status status = ofl_model_builder_create("made", "llama", &shape, &builder);
    if (status != OFL_OK) return app_forward(status);
    status = add_all(&(making){builder, data}, s);
    if (status == OFL_OK) return ofl_model_builder_finish(builder, out) == OFL_OK ? OFL_OK : app_forward(ofl_diagnostic_get()->status);
    ofl_model_builder_destroy(builder);
    return app_forward(status);
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

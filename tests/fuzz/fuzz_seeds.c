/* fuzz_seeds FOLDER: writes the hand-made seeds of each target to FOLDER/<target>/seed-NAME. What a fuzzer found stands beside them. */
#include "plan_models.h"
#include "support/gguf_writer.h"
#include "support/published.h"

#include <sys/stat.h>

#include "base/base.h"

static const char *root;

static const char *seed_path(const char *target, const char *name)
{
    static char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", root, target);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof path, "%s/%s/seed-%s", root, target, name);
    return path;
}

static void text_seed(const char *target, const char *name, const char *text) { test_write(seed_path(target, name), text, strlen(text)); }

/* ---- GGUF: an architecture, and keys as "key=value" (whole numbers), "key=[a,b]" */
typedef struct gguf_seed {
    const char *name, *architecture, *keys;
    const char *tensors; /* names, each F32 [8] */
} gguf_seed;

static void put_array(gguf_writer *writer, const char *key, const char *list)
{
    uint32_t values[64];
    uint64_t count = 0;
    while (*list != '\0' && *list != ']' && count < 64) {
        char *end;
        values[count++] = (uint32_t)strtoul(list, &end, 10);
        list = *end == ',' ? end + 1 : end;
    }
    gguf_key_u32_array(writer, key, values, count);
}

static void put_key(gguf_writer *writer, const char *architecture, const char *entry)
{
    char key[192], full[256];
    const char *equals = strchr(entry, '=');
    assert_non_null(equals);
    (void)snprintf(key, sizeof key, "%.*s", (int)(equals - entry), entry);
    (void)snprintf(full, sizeof full, "%s%s%s", key[0] == '!' ? "" : architecture, key[0] == '!' ? "" : ".", key + (key[0] == '!'));
    if (equals[1] == '[') put_array(writer, full, equals + 2);
    else if (equals[1] == '"') gguf_key_string(writer, full, equals + 2);
    else if (strchr(equals, '.') != NULL) gguf_key_f32(writer, full, (float)strtod(equals + 1, NULL));
    else gguf_key_u32(writer, full, (uint32_t)strtoul(equals + 1, NULL, 10));
}

/* Each word of a list separated by spaces. */
static const char *next_word(const char *list, char *word, size_t room)
{
    while (*list == ' ') list++;
    if (*list == '\0') return NULL;
    size_t length = strcspn(list, " ");
    (void)snprintf(word, room, "%.*s", (int)length, list);
    return list + length;
}

static void write_gguf_seed(const gguf_seed *from)
{
    gguf_writer writer;
    char word[192];
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", from->architecture);
    for (const char *at = next_word(from->keys, word, sizeof word); at != NULL; at = next_word(at, word, sizeof word))
        put_key(&writer, from->architecture, word);
    for (const char *at = next_word(from->tensors, word, sizeof word); at != NULL; at = next_word(at, word, sizeof word))
        gguf_tensor(&writer, word, 0, 1, (const uint64_t[]){8}, NULL, 32);
    gguf_save(&writer, seed_path("gguf", from->name));
    gguf_end(&writer);
}

#define SMALL "block_count=2 embedding_length=64 attention.head_count=4 "

static const gguf_seed gguf_seeds[] = {
    {"llama", "llama",
     SMALL "attention.head_count_kv=2 context_length=128 feed_forward_length=128 !general.name=\"n vocab_size=9 "
           "attention.layer_norm_rms_epsilon=0.00001",
     "token_embd.weight blk.0.attn_q.weight blk.1.ffn_down.weight output.weight output_norm.weight rope_freqs.weight blk.0.odd"},
    {"yarn", "qwen2",
     SMALL "rope.scaling.type=\"yarn rope.scaling.factor=4.0 rope.scaling.yarn_beta_fast=32.0 rope.scaling.original_context_length=64 "
           "rope.freq_base=1000000.0",
     "token_embd.weight"},
    {"rope-unknown", "llama", SMALL "rope.scaling.type=\"odd", "token_embd.weight"},
    {"experts", "llama", SMALL "expert_count=8 expert_used_count=2 expert_feed_forward_length=16",
     "blk.0.ffn_gate_exps.weight blk.0.ffn_up.7.weight blk.0.ffn_gate_inp.weight"},
    {"gemma2", "gemma2", SMALL "attention.sliding_window=16 attn_logit_softcapping=50.0 final_logit_softcapping=30.0", "token_embd.weight"},
    {"gemma3", "gemma3", SMALL "attention.sliding_window=16 attention.key_length=32 attention.value_length=32", "token_embd.weight"},
    {"gemma4", "gemma4",
     SMALL "attention.head_count_kv=[4,1] attention.sliding_window_pattern=[1,0] attention.sliding_window=8 attention.key_length_swa=8 "
           "attention.value_length_swa=8",
     "token_embd.weight"},
    {"period", "gemma2", SMALL "attention.sliding_window=16 attention.sliding_window_pattern=1", "token_embd.weight"},
    {"phi3", "phi3", SMALL "attention.sliding_window=16", "token_embd.weight"},
    {"llama4", "llama4", SMALL "attention.chunk_size=32", "token_embd.weight"},
    {"gemma3n", "gemma3n", SMALL "attention.shared_kv_layers=1", "token_embd.weight per_layer_token_embd.weight"},
    {"shared-all", "gemma3n", SMALL "attention.shared_kv_layers=2", "token_embd.weight"},
    {"latent", "deepseek2", SMALL "attention.kv_lora_rank=512 rope.dimension_count=64 attention.indexer.key_length=8", "token_embd.weight"},
    {"latent-bad", "deepseek2", SMALL "attention.kv_lora_rank=512", "token_embd.weight"},
    {"qwen3next", "qwen3next", SMALL "full_attention_interval=2 ssm.conv_kernel=4 ssm.inner_size=64 ssm.state_size=16 ssm.group_count=2",
     "token_embd.weight blk.0.ssm_in.weight"},
    {"nemotron", "nemotron_h",
     SMALL
     "attention.head_count_kv=[2,0] feed_forward_length=[0,9] ssm.conv_kernel=4 ssm.inner_size=32 ssm.state_size=16 ssm.group_count=1",
     "token_embd.weight"},
    {"falcon", "falcon-h1", SMALL "ssm.conv_kernel=4 ssm.inner_size=32 ssm.state_size=16 ssm.group_count=1", "token_embd.weight"},
    {"mamba", "mamba", "block_count=2 embedding_length=64 ssm.conv_kernel=4 ssm.inner_size=128 ssm.state_size=16", "token_embd.weight"},
    {"state-overflow", "mamba",
     "block_count=2 embedding_length=64 ssm.conv_kernel=4294967295 ssm.inner_size=4294967295 ssm.state_size=4294967295 "
     "ssm.group_count=4294967295",
     "token_embd.weight"},
    {"rwkv", "rwkv6", "block_count=2 embedding_length=64 wkv.head_size=64", "token_embd.weight"},
    {"lfm2", "lfm2", SMALL "attention.head_count_kv=[0,2] shortconv.l_cache=3", "token_embd.weight blk.0.shortconv.conv.weight"},
    {"nextn", "glm4moe", "block_count=3 embedding_length=64 attention.head_count=4 nextn_predict_layers=1",
     "token_embd.weight blk.2.nextn.eh_proj.weight blk.2.attn_q.weight"},
    {"nextn-all", "glm4moe", "block_count=1 embedding_length=64 attention.head_count=4 nextn_predict_layers=1",
     "token_embd.weight blk.0.nextn.eh_proj.weight"},
    {"granite", "granite", SMALL "logit_scale=8.0 embedding_scale=12.0 residual_scale=0.25 attention.scale=0.5", "token_embd.weight"},
    {"vision", "qwen2vl", SMALL, "token_embd.weight v.blk.0.attn_q.weight mm.0.weight"},
    {"kv-heads", "llama", SMALL "attention.head_count_kv=3", "token_embd.weight"},
    {"no-heads", "llama", "block_count=1 embedding_length=64", "token_embd.weight"},
    {"zero-heads", "llama", "block_count=1 embedding_length=64 attention.head_count=0", "token_embd.weight"},
    {"zero-width", "llama", "block_count=1 embedding_length=0 attention.head_count=4", "token_embd.weight"},
    {"no-blocks", "llama", "block_count=0 embedding_length=64", "token_embd.weight"},
    {"many-blocks", "llama", "block_count=4294967295 embedding_length=64", "token_embd.weight"},
    {"short-heads", "llama", "block_count=1 embedding_length=2 attention.head_count=4", "token_embd.weight"},
    {"array-long", "llama", SMALL "attention.head_count_kv=[2,2,2]", "token_embd.weight"},
    {"text-for-number", "llama", "block_count=\"two", "token_embd.weight"},
    {"number-for-text", "llama", SMALL "!general.name=7", "token_embd.weight"},
    {"twice", "llama", SMALL "block_count=1", "token_embd.weight"},
    {"same-name", "llama", SMALL, "token_embd.weight token_embd.weight"},
    {"beyond", "llama", SMALL, "blk.2.attn_q.weight"},
    {"no-tensors", "llama", SMALL, ""},
    {"long-name", "llama", SMALL, "a-name-of-more-than-the-sixty-three-bytes-that-a-tensor-name-may-have"},
    {"part", "llama", SMALL "!split.no=0 !split.count=2 !split.tensors.count=1", "token_embd.weight"},
    {"part-sum", "llama", SMALL "!split.no=0 !split.count=2 !split.tensors.count=3", "token_embd.weight"},
    {"part-wrong", "llama", SMALL "!split.no=1 !split.count=2", "token_embd.weight"},
    {"part-senseless", "llama", SMALL "!split.no=3 !split.count=2", "token_embd.weight"},
    {"alignment", "llama", SMALL "!general.alignment=12", "token_embd.weight"},
    {"alignment-type", "llama", SMALL "!general.alignment=\"32", "token_embd.weight"},
    {"alignment-32", "llama", SMALL "!general.alignment=32", "token_embd.weight output_norm.weight"},
};

static void every_value_type(void)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    gguf_writer writer;
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "llama");
    gguf_key(&writer, "llama.block_count", GGUF_U16);
    gguf_raw_u64(&writer, 1, 2);
    gguf_key(&writer, "llama.embedding_length", GGUF_I64);
    gguf_raw_u64(&writer, 64, 8);
    gguf_key(&writer, "llama.attention.head_count", GGUF_U8);
    gguf_raw_u64(&writer, 4, 1);
    gguf_key(&writer, "llama.rope.freq_base", GGUF_F64);
    gguf_raw_u64(&writer, UINT64_C(0x40c3880000000000), 8);
    for (uint32_t type = 0; type < 13; type++) {
        char key[16];
        (void)snprintf(key, sizeof key, "t%u", (unsigned)type);
        if (sizes[type] == 0) continue;
        gguf_key(&writer, key, type);
        gguf_raw_u64(&writer, UINT64_MAX, sizes[type]);
    }
    gguf_key_string_array(&writer, "tokenizer.ggml.tokens", (const char *const[]){"a", "", "bcd"}, 3);
    gguf_key_u32_array(&writer, "i", (const uint32_t[]){1, 2}, 2);
    gguf_key_bool_array(&writer, "flag", (const unsigned char[]){1, 0}, 2);
    gguf_key(&writer, "nested", GGUF_ARRAY); /* [[], [7]] */
    gguf_raw_u64(&writer, GGUF_ARRAY, 4);
    gguf_raw_u64(&writer, 2, 8);
    for (uint64_t i = 0; i < 2; i++) {
        gguf_raw_u64(&writer, GGUF_U16, 4);
        gguf_raw_u64(&writer, i, 8);
        gguf_raw_u64(&writer, 7, (unsigned)(2 * i));
    }
    gguf_tensor(&writer, "token_embd.weight", 8, 2, (const uint64_t[]){32, 2}, NULL, 68);
    gguf_tensor(&writer, "blk.0.attn_q.weight", 14, 2, (const uint64_t[]){256, 1}, NULL, 210);
    gguf_save(&writer, seed_path("gguf", "types"));
    writer.version = 2;
    gguf_save(&writer, seed_path("gguf", "version-2"));
    writer.version = 1;
    gguf_save(&writer, seed_path("gguf", "version-1"));
    writer.version = 3u << 24;
    gguf_save(&writer, seed_path("gguf", "big-endian"));
    gguf_end(&writer);
}

static void bad_tensor(const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset)
{
    gguf_writer writer;
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "llama");
    gguf_key_u32(&writer, "llama.block_count", 1);
    gguf_key_u32(&writer, "llama.embedding_length", 64);
    gguf_key_u32(&writer, "llama.attention.head_count", 4);
    gguf_tensor_at(&writer, "t.weight", type, n_dims, dims, offset);
    gguf_save(&writer, seed_path("gguf", name));
    gguf_end(&writer);
}

static void bad_tensors(void)
{
    bad_tensor("wraps", 0, 3, (const uint64_t[]){4, 1073741823, 1073741825}, 0);
    bad_tensor("product", 0, 2, (const uint64_t[]){UINT64_C(1) << 40, UINT64_C(1) << 40}, 0);
    bad_tensor("negative", 0, 1, (const uint64_t[]){UINT64_MAX}, 0);
    bad_tensor("dims", 0, 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0);
    bad_tensor("offset", 0, 1, (const uint64_t[]){8}, 64);
    bad_tensor("type", 31, 1, (const uint64_t[]){64}, 0);
    bad_tensor("columns", 8, 1, (const uint64_t[]){33}, 0);
    bad_tensor("cut", 0, 1, (const uint64_t[]){4096}, 0);
}

/* ---- JSON */
static void from_published(void)
{
    cJSON *golden = published_models();
    const cJSON *model;
    cJSON_ArrayForEach (model, golden) {
        const char *full = cJSON_GetObjectItemCaseSensitive(model, "name")->valuestring, *slash = strrchr(full, '/');
        char *config = published_config(model);
        text_seed("config", slash != NULL ? slash + 1 : full, config);
        free(config);
    }
    cJSON_Delete(golden);
}

#define CONFIG "{\"model_type\":\"x\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
#define ENTRY(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define SHAPE "\"shape\":{\"block_count\":2,\"hidden_size\":64,\"head_count\":4,\"head_count_kv\":2,\"head_dim_k\":16,\"head_dim_v\":16"
#define TENSOR "{\"name\":\"q\",\"dtype\":\"Q8_0\",\"dims\":[64,64],\"role\":\"attn_q\",\"block\":0}"
#define DESCRIPTION "{\"schema\":\"ofload.model/1\"," SHAPE "},\"tensors\":[" TENSOR

#define PROBED "{\"schema\":\"ofload.machine/1\",\"probed\":\"2026-09-30T12:00:00Z\","
static const struct {
    const char *target, *name, *text;
} texts[] = {
    {"config", "layer-types",
     CONFIG "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"sliding_window\":8,\"tie_word_embeddings\":false}"},
    {"config", "linear-types", CONFIG "\"layer_types\":[\"linear_attention\",\"chunked_attention\"],\"attention_chunk_size\":8}"},
    {"config", "pattern",
     CONFIG "\"hybrid_override_pattern\":\"M*\",\"mamba_num_heads\":4,\"mamba_head_dim\":8,\"ssm_state_size\":16,\"n_groups\":1,\"conv_"
            "kernel\":4}"},
    {"config", "window-off", CONFIG "\"use_sliding_window\":false,\"sliding_window\":8,\"max_window_layers\":1}"},
    {"config", "window-on",
     "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"use_sliding_window\":true,\"sliding_"
     "window\":8,\"max_window_layers\":1}"},
    {"config", "nested",
     "{\"thinker_config\":{\"text_config\":" CONFIG
     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}},\"x\":[NaN,Infinity,-Infinity]}"},
    {"config", "rope",
     CONFIG
     "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\",\"rope_theta\":1e6,\"factor\":4,\"partial_rotary_factor\":0.5}}}"},
    {"config", "groups", CONFIG "\"quantization_config\":{\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4}}}}}"},
    {"config", "bits", CONFIG "\"quantization_config\":{\"bits\":99}}"},
    {"config", "nul", "{\"model_type\":\"a\\u0000b\"}"},
    {"config", "array", "[1]"},
    {"config", "two-parts", "{\"vision_config\":{\"num_hidden_layers\":3},\"audio_config\":{\"num_hidden_layers\":4}}"},
    {"config", "shared", CONFIG "\"num_kv_shared_layers\":1,\"num_nextn_predict_layers\":1}"},
    {"config", "many", "{\"hidden_size\":64,\"num_hidden_layers\":4294967295,\"num_attention_heads\":4}"},
    {"config", "idxs", CONFIG "\"full_attn_idxs\":[0],\"conv_L_cache\":3}"},
    {"config", "attn-list", CONFIG "\"attn_type_list\":[0,1]}"},
    {"config", "no-window", CONFIG "\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]}"},
    {"safetensors", "plain",
     "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("model.norm.weight", "F32", "[4]", "[0,16]") "," ENTRY("x", "BF16", "[2,3]",
                                                                                                           "[16,28]") "}"},
    {"safetensors", "small",
     "{" ENTRY("a", "F8_E8M0", "[4]", "[0,4]") "," ENTRY("b", "F4", "[2,8]", "[4,12]") "," ENTRY(
         "c", "F6_E2M3", "[4]", "[12,15]") "," ENTRY("d", "C64", "[2]", "[15,31]") "}"},
    {"safetensors", "empty", "{" ENTRY("a", "F32", "[0,5]", "[0,0]") "," ENTRY("b", "F32", "[]", "[0,4]") "}"},
    {"safetensors", "packed",
     "{" ENTRY("model.layers.0.mlp.up_proj.qweight", "I32", "[2,2]", "[0,16]") "," ENTRY("model.layers.0.mlp.up_proj.scales", "F16", "[2]",
                                                                                         "[16,20]") "}"},
    {"safetensors", "roles",
     "{" ENTRY("model.layers.1.mlp.experts.7.w1.weight", "U8", "[1]",
               "[0,1]") "," ENTRY("visual.x", "U8", "[1]", "[1,2]") "," ENTRY("lm_head.weight", "U8", "[1,1]", "[2,3]") "}"},
    {"safetensors", "beyond", "{" ENTRY("model.layers.7.mlp.up_proj.weight", "U8", "[1]", "[0,1]") "}"},
    {"safetensors", "f99", "{" ENTRY("a", "F99", "[4]", "[0,16]") "}"},
    {"safetensors", "overlap", "{" ENTRY("a", "F32", "[4]", "[0,16]") "," ENTRY("b", "F32", "[4]", "[0,16]") "}"},
    {"safetensors", "span", "{" ENTRY("a", "F32", "[4]", "[0,17]") "}"},
    {"safetensors", "half", "{" ENTRY("a", "F4", "[3,1]", "[0,1]") "}"},
    {"safetensors", "outside", "{" ENTRY("a", "F32", "[4]", "[18446744073709551552,18446744073709551615]") "}"},
    {"safetensors", "huge", "{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}"},
    {"safetensors", "missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}"},
    {"safetensors", "twice", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}"},
    {"safetensors", "offsets", "{" ENTRY("a", "F32", "[4]", "[0]") "}"},
    {"safetensors", "unknown-field",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"extra\":{\"x\":[1,\"\\u00e9\\ud83d\\ude00\\n\",null,true,-1.5e3]},\"data_offsets\":[0,1]}}"},
    {"index", "good",
     "{\"metadata\":{\"total_size\":9007199254740993},\"weight_map\":{\"model.norm.weight\":\"a.safetensors\",\"x\":\"b.safetensors\","
     "\"y\":\"b.safetensors\"}}"},
    {"index", "unnamed", "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\",\"x\":\"b.safetensors\"}}"},
    {"index", "doubled", "{\"weight_map\":{\"x\":\"b.safetensors\",\"model.norm.weight\":\"c.safetensors\"}}"},
    {"index", "missing", "{\"weight_map\":{\"x\":\"d.safetensors\"}}"},
    {"index", "not-there", "{\"weight_map\":{\"z\":\"a.safetensors\"}}"},
    {"index", "outside", "{\"weight_map\":{\"x\":\"../b.safetensors\"}}"},
    {"index", "two-maps", "{\"weight_map\":{\"x\":\"b.safetensors\"},\"weight_map\":{}}"},
    {"index", "no-map", "{}"},
    {"description", "plain", DESCRIPTION "]}"},
    {"description", "full",
     "{\"schema\":\"ofload.model/1\",\"name\":\"n\",\"architecture\":\"llama\"," SHAPE
     ",\"norm_epsilon\":1e-5,\"rope_pairing\":\"interleaved\",\"rope_scaling\":\"yarn\"},\"tensors\":["
     "{\"name\":\"e\",\"dtype\":\"BF16\",\"dims\":[64,100],\"class\":\"dense\",\"role\":\"embedding\",\"block\":\"output\",\"also_lookup\":"
     "true}," TENSOR ",{\"name\":\"x\",\"dtype\":\"F4\",\"dims\":[64,8,4],\"class\":\"expert\",\"role\":\"FFN_UP\",\"block\":1},{\"name\":"
                     "\"u\",\"dtype\":\"I8\",\"dims\":[],\"class\":\"unused\",\"block\":\"input\"}],"
     "\"kv\":[{\"first\":1,\"count\":1,\"kind\":\"sliding\",\"head_count_kv\":1,\"k_elements\":16,\"v_elements\":16,\"window_tokens\":8},{"
     "\"kind\":\"none\",\"state_bytes\":64}]}"},
    {"description", "extra", "{\"schema\":\"ofload.model/1\",\"extra\":1}"},
    {"description", "schema", "{\"schema\":\"ofload.model/2\"}"},
    {"description", "shape-field", "{\"schema\":\"ofload.model/1\",\"shape\":{\"blocks\":1}}"},
    {"description", "large", "{\"schema\":\"ofload.model/1\",\"shape\":{\"block_count\":70000},\"tensors\":[" TENSOR "]}"},
    {"description", "no-tensors", "{\"schema\":\"ofload.model/1\"," SHAPE "}}"},
    {"description", "no-shape", "{\"schema\":\"ofload.model/1\",\"tensors\":[" TENSOR "]}"},
    {"description", "same-name", DESCRIPTION "," TENSOR "]}"},
    {"description", "dtype", DESCRIPTION ",{\"name\":\"a\",\"dtype\":\"Q9\",\"dims\":[1],\"block\":0}]}"},
    {"description", "class", DESCRIPTION ",{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":0,\"class\":\"x\"}]}"},
    {"description", "role", DESCRIPTION ",{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":0,\"role\":\"x\"}]}"},
    {"description", "block", DESCRIPTION ",{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":-1}]}"},
    {"description", "kv", DESCRIPTION "],\"kv\":[{\"first\":2}]}"},
    {"description", "window", DESCRIPTION "],\"kv\":[{\"kind\":\"sliding\"}]}"},
    {"description", "not-json", "not JSON"},
    {"machine", "by-hand",
     "{\"schema\":\"ofload.machine/1\",\"device\":\"d\",\"vram_bytes\":24000000000,\"link_bytes_per_second\":2.5e10}"},
    {"machine", "sources", "{\"schema\":\"ofload.machine/1\",\"vram_bytes\":1,\"sources\":{\"vram_bytes\":\"guessed\"}}"},
    {"machine", "fraction", "{\"schema\":\"ofload.machine/1\",\"vram_bytes\":1.5}"},
    {"machine", "negative", "{\"schema\":\"ofload.machine/1\",\"link_bytes_per_second\":-1}"},
    {"machine", "schema", "{\"schema\":\"ofload.machine/2\"}"},
    {"machine", "unknown", "{\"schema\":\"ofload.machine/1\",\"extra\":1}"},
    {"machine", "array", "[]"},
    {"machine", "probed",
     "{\"schema\":\"ofload.machine/"
     "1\",\"vram_bytes\":1,\"probed\":\"2026-09-30T12:00:00Z\",\"link\":{\"generation\":4,\"width\":4,\"most_width\":16,"
     "\"device_node\":-1,\"pinned_node\":0,\"pinned_bytes\":65536},\"paths\":{\"pinned to "
     "device\":{\"start_seconds\":5e-6,\"bytes_per_second\":2e9,"
     "\"points\":[{\"bytes\":65536,\"seconds\":3.8e-5},{\"bytes\":4096,\"seconds\":7e-6}]}},\"notes\":[\"a sentence\"]}"},
    {"machine", "no-time", "{\"schema\":\"ofload.machine/1\",\"paths\":{}}"},
    {"machine", "time", "{\"schema\":\"ofload.machine/1\",\"probed\":\"2026-09-30 12:00:00Z\"}"},
    {"machine", "link", PROBED "\"link\":[]}"},
    {"machine", "link-width", PROBED "\"link\":{\"width\":1e9}}"},
    {"machine", "link-bytes", PROBED "\"link\":{\"pinned_bytes\":0.5}}"},
    {"machine", "paths", PROBED "\"paths\":[]}"},
    {"machine", "path", PROBED "\"paths\":{\"by pigeon\":{}}}"},
    {"machine", "path-fit", PROBED "\"paths\":{\"pinned to device\":{\"start_seconds\":0,\"bytes_per_second\":0,\"points\":[]}}}"},
    {"machine", "path-points", PROBED "\"paths\":{\"pinned to device\":{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[]}}}"},
    {"machine", "path-point",
     PROBED "\"paths\":{\"pinned to device\":{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[{\"bytes\":0,\"seconds\":1}]}}}"},
    {"machine", "notes", PROBED "\"notes\":{}}"},
    {"machine", "note", PROBED "\"notes\":[\"\\u001b\"]}"},
    {"plan", "schema", "{\"schema\":\"ofload.plan/2\"}"},
    {"plan", "array", "[]"},
    {"plan", "schema-number", "{\"schema\":7}"},
};

/* ---- plans and machines as the library writes them */
static void machine_seed(const ofl_machine *machine, const char *name)
{
    char *text = NULL;
    assert_ok(ofl_machine_to_json(machine, &text));
    text_seed("machine", name, text);
    ofl_string_free(text);
}

/* The text with one part replaced: refused, each at another place. */
static void changed_plan(const char *text, const char *name, const char *part, const char *by)
{
    const char *at = strstr(text, part);
    assert_non_null(at);
    char *changed = ofl_format("%.*s%s%s", (int)(at - text), text, by, at + strlen(part));
    assert_non_null(changed);
    text_seed("plan", name, changed);
    ofl_free(changed);
}

static void changed_plans(const char *text)
{
    changed_plan(text, "negative", "\"layers\": 2", "\"layers\": -2");
    changed_plan(text, "fraction", "\"layers\": 2", "\"layers\": 2.5");
    changed_plan(text, "text", "\"copy_start_seconds\": 5e-06", "\"copy_start_seconds\": \"x\"");
    changed_plan(text, "identity", "\"layers\": 2", "\"layers\": 3");
    changed_plan(text, "source", "\"vram_bytes\": \"given\"", "\"vram_bytes\": \"guessed\"");
    changed_plan(text, "no-units", "\"units\"", "\"unity\"");
    changed_plan(text, "cut", "\"units\": [", "\"units\": [[");
}

static void plan_seed(const ofl_model *model, const ofl_machine *machine, const ofl_workload *workload, const char *name)
{
    ofl_plan *plan = NULL;
    char *text = NULL;
    assert_ok(ofl_plan_make(model, machine, workload, &plan));
    assert_ok(ofl_plan_to_json(plan, &text));
    text_seed("plan", name, text);
    if (strcmp(name, "latency") == 0) changed_plans(text);
    ofl_string_free(text);
    ofl_plan_destroy(plan);
}

static void plans(void)
{
    const test_shape shape = {2, 512, 4, 2, 128, 1024, 3000, 0, 0, OFL_DTYPE_BF16};
    test_shape tied = shape;
    tied.tied = 1;
    ofl_model *model = test_model(shape), *other = test_model(tied);
    ofl_machine *machine = test_machine(24e6, 3.26e9, 5e-6, 360e9, 51e12, 0), *narrow = test_machine(9e6, 3.26e9, 5e-6, 360e9, 51e12, 0);
    const ofl_compute_point points[] = {{1, 1e-11}, {64, 2e-11}};
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 64, .prefill_chunk_tokens = 8};
    machine_seed(machine, "given");
    plan_seed(model, machine, &w, "latency");
    plan_seed(other, narrow, &w, "narrow");
    w.objective = OFL_THROUGHPUT;
    w.compute_point_count = OFL_COUNT_OF(points);
    w.compute_points = points;
    w.head_point_count = 1;
    w.head_points = points;
    plan_seed(model, machine, &w, "throughput");
    assert_ok(ofl_machine_assume(narrow));
    machine_seed(narrow, "assumed");
    w = (ofl_workload){.struct_size = sizeof w,
                       .context_tokens = 64,
                       .prefill_chunk_tokens = 8,
                       .force_layers = 1,
                       .force_resident_layers = 1,
                       .kv_type = OFL_KV_Q8_0};
    plan_seed(model, machine, &w, "layers");
    ofl_machine_destroy(machine);
    ofl_machine_destroy(narrow);
    ofl_model_destroy(model);
    ofl_model_destroy(other);
}

static void write_seeds(void **state)
{
    (void)state;
    for (size_t i = 0; i < OFL_COUNT_OF(gguf_seeds); i++) write_gguf_seed(&gguf_seeds[i]);
    every_value_type();
    bad_tensors();
    from_published();
    for (size_t i = 0; i < OFL_COUNT_OF(texts); i++) text_seed(texts[i].target, texts[i].name, texts[i].text);
    plans();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(write_seeds)};
    if (argc != 2) {
        (void)fprintf(stderr, "fuzz_seeds FOLDER\n");
        return 2;
    }
    root = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}

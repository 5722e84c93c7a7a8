/* mkmodel: a GGUF file of any shape with random weights and a byte-level tokenizer, so that ofload-batch can run it; its answers are noise. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "common/whole_file.h"
#include "gguf_write.h"

#define BYTE_TOKENS 256u
#define FIRST_CONTROL (BYTE_TOKENS + 1) /* after one merged token */
#define LEAST_VOCABULARY (FIRST_CONTROL + 3)

static const char *const architectures[] = {"llama", "qwen2", "qwen3"};
static const ofl_dtype types[] = {OFL_DTYPE_BF16, OFL_DTYPE_F16, OFL_DTYPE_F32, OFL_DTYPE_Q8_0};
static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
static const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

typedef struct shape {
    uint32_t architecture, type;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, context, seed;
    int tied, sparse, kv_heads_given, head_dim_given;
    const char *output, *name;
    bench_output printed;
} shape;

typedef struct tensor_list { gguf_tensor *items; size_t count, capacity; } tensor_list;

static void add(tensor_list *list, const char *name, int64_t block, ofl_dtype dtype, uint64_t columns, uint64_t rows, double low, double high)
{
    gguf_tensor *t = &list->items[list->count++];
    if (block >= 0) (void)snprintf(t->name, sizeof t->name, "blk.%lld.%s", (long long)block, name);
    else (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = dtype;
    t->n_dims = rows > 0 ? 2 : 1;
    t->dims[0] = columns;
    t->dims[1] = rows;
    (void)ofl_dtype_bytes(dtype, columns * (rows > 0 ? rows : 1), &t->bytes); /* checked before */
    t->low = low;
    t->high = high;
}

/* Uniform, with the variance 1 / columns. */
static void add_matrix(tensor_list *list, const char *name, int64_t block, const shape *s, uint64_t columns, uint64_t rows)
{
    double most = sqrt(3.0 / (double)columns);
    add(list, name, block, types[s->type], columns, rows, -most, most);
}

static void add_norm(tensor_list *list, const char *name, int64_t block, uint64_t columns) { add(list, name, block, OFL_DTYPE_F32, columns, 0, 0.9, 1.1); }
static void add_bias(tensor_list *list, const char *name, int64_t block, uint64_t columns) { add(list, name, block, OFL_DTYPE_F32, columns, 0, -0.1, 0.1); }

static void add_block(tensor_list *list, const shape *s, int64_t block)
{
    uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    add_norm(list, "attn_norm.weight", block, s->hidden);
    add_matrix(list, "attn_q.weight", block, s, s->hidden, q);
    add_matrix(list, "attn_k.weight", block, s, s->hidden, kv);
    add_matrix(list, "attn_v.weight", block, s, s->hidden, kv);
    if (s->architecture == 1) {
        add_bias(list, "attn_q.bias", block, q);
        add_bias(list, "attn_k.bias", block, kv);
        add_bias(list, "attn_v.bias", block, kv);
    }
    if (s->architecture == 2) {
        add_norm(list, "attn_q_norm.weight", block, s->head_dim);
        add_norm(list, "attn_k_norm.weight", block, s->head_dim);
    }
    add_matrix(list, "attn_output.weight", block, s, q, s->hidden);
    add_norm(list, "ffn_norm.weight", block, s->hidden);
    add_matrix(list, "ffn_gate.weight", block, s, s->hidden, s->ffn);
    add_matrix(list, "ffn_up.weight", block, s, s->hidden, s->ffn);
    add_matrix(list, "ffn_down.weight", block, s, s->ffn, s->hidden);
}

static ofl_status list_tensors(const shape *s, tensor_list *list)
{
    list->items = calloc(3 + (size_t)s->layers * 12, sizeof *list->items);
    if (list->items == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory for %llu layers", (unsigned long long)s->layers);
    add_matrix(list, "token_embd.weight", -1, s, s->hidden, s->vocabulary);
    for (uint64_t i = 0; i < s->layers; i++) add_block(list, s, (int64_t)i);
    add_norm(list, "output_norm.weight", -1, s->hidden);
    if (!s->tied) add_matrix(list, "output.weight", -1, s, s->hidden, s->vocabulary);
    return OFL_OK;
}

/* "{architecture}.NAME" */
static const char *key(const shape *s, const char *name)
{
    static char text[96];
    (void)snprintf(text, sizeof text, "%s.%s", architectures[s->architecture], name);
    return text;
}

static void write_shape(FILE *file, const shape *s)
{
    gguf_text(file, "general.architecture", architectures[s->architecture]);
    gguf_text(file, "general.name", s->name);
    gguf_u32(file, key(s, "block_count"), (uint32_t)s->layers);
    gguf_u32(file, key(s, "context_length"), (uint32_t)s->context);
    gguf_u32(file, key(s, "embedding_length"), (uint32_t)s->hidden);
    gguf_u32(file, key(s, "feed_forward_length"), (uint32_t)s->ffn);
    gguf_u32(file, key(s, "attention.head_count"), (uint32_t)s->heads);
    gguf_u32(file, key(s, "attention.head_count_kv"), (uint32_t)s->kv_heads);
    gguf_u32(file, key(s, "attention.key_length"), (uint32_t)s->head_dim);
    gguf_u32(file, key(s, "attention.value_length"), (uint32_t)s->head_dim);
    gguf_f32(file, key(s, "attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_u32(file, key(s, "rope.dimension_count"), (uint32_t)s->head_dim);
    gguf_f32(file, key(s, "rope.freq_base"), 10000.0f);
    gguf_u32(file, key(s, "vocab_size"), (uint32_t)s->vocabulary);
}

/* The letter that stands for a byte in byte-level vocabularies: printable Latin-1 for itself, the others from U+0100 on. */
static void byte_letter(unsigned byte, char *out)
{
    unsigned code = byte, others = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = itself ? b : 256 + others++;
    }
    if (code < 128) *out++ = (char)code;
    else {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    }
    *out = '\0';
}

static void write_tokens(FILE *file, uint64_t vocabulary)
{
    char text[32];
    gguf_text_array(file, "tokenizer.ggml.tokens", vocabulary);
    for (unsigned i = 0; i < BYTE_TOKENS; i++) {
        byte_letter(i, text);
        gguf_text_item(file, text);
    }
    gguf_text_item(file, "th");
    for (unsigned i = 0; i < 3; i++) gguf_text_item(file, controls[i]);
    for (uint64_t i = LEAST_VOCABULARY; i < vocabulary; i++) {
        (void)snprintf(text, sizeof text, "<|unused_%llu|>", (unsigned long long)(i - LEAST_VOCABULARY));
        gguf_text_item(file, text);
    }
}

static void write_tokenizer(FILE *file, uint64_t vocabulary)
{
    gguf_text(file, "tokenizer.ggml.model", "gpt2");
    gguf_text(file, "tokenizer.ggml.pre", "qwen2");
    write_tokens(file, vocabulary);
    gguf_i32_array(file, "tokenizer.ggml.token_type", vocabulary);
    for (uint64_t i = 0; i < vocabulary; i++) gguf_i32_item(file, i < FIRST_CONTROL ? 1 : i < LEAST_VOCABULARY ? 3 : 5); /* normal, control, unused */
    gguf_text_array(file, "tokenizer.ggml.merges", 1);
    gguf_text_item(file, "t h");
    gguf_u32(file, "tokenizer.ggml.bos_token_id", FIRST_CONTROL);
    gguf_u32(file, "tokenizer.ggml.eos_token_id", FIRST_CONTROL + 2);
    gguf_bool(file, "tokenizer.ggml.add_bos_token", 0);
    gguf_text(file, "tokenizer.chat_template", chatml);
}

#define KEY_COUNT (14u + 9u) /* write_shape and write_tokenizer */

static ofl_status write_file(FILE *file, const shape *s, tensor_list *list)
{
    uint64_t state = s->seed;
    gguf_start(file, list->count, KEY_COUNT);
    write_shape(file, s);
    write_tokenizer(file, s->vocabulary);
    uint64_t bytes = gguf_tensors(file, list->items, list->count);
    if (s->sparse) {
        off_t end = ftello(file) + (off_t)bytes;
        if (fflush(file) != 0 || ftruncate(fileno(file), end) != 0) return app_fail(OFL_ERROR_IO, "%s cannot be written: %s", s->output, strerror(errno));
        return OFL_OK;
    }
    for (size_t i = 0; i < list->count && !ferror(file); i++) gguf_random(file, &list->items[i], &state);
    if (ferror(file)) return app_fail(OFL_ERROR_IO, "%s cannot be written: %s", s->output, strerror(errno));
    return OFL_OK;
}

/* Whole or not at all: a model cut short by a full disk must not look like one. */
static ofl_status write_model(const shape *s, tensor_list *list)
{
    whole_file whole;
    ofl_status status = whole_file_begin(s->output, &whole);
    if (status != OFL_OK) return status;
    FILE *file = fopen(whole.beside, "wb");
    status = file != NULL ? write_file(file, s, list) : app_fail(OFL_ERROR_IO, "%s cannot be written: %s", s->output, strerror(errno));
    if (file != NULL && fclose(file) != 0 && status == OFL_OK)
        status = app_fail(OFL_ERROR_IO, "%s cannot be written: %s", s->output, strerror(errno));
    if (status == OFL_OK) return whole_file_finish(&whole);
    whole_file_cancel(&whole);
    return status;
}

static ofl_status check_range(const char *name, uint64_t value, uint64_t least, uint64_t most)
{
    if (value >= least && value <= most) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s: %llu is not between %llu and %llu", name, (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

static ofl_status check_shape(shape *s)
{
    ofl_status status = check_range("--layers", s->layers, 1, 10000);
    if (status == OFL_OK) status = check_range("--hidden", s->hidden, 1, 1 << 20);
    if (status == OFL_OK) status = check_range("--heads", s->heads, 1, 1 << 16);
    if (status == OFL_OK && !s->kv_heads_given) s->kv_heads = s->heads;
    if (status == OFL_OK) status = check_range("--kv-heads", s->kv_heads, 1, s->heads);
    if (status == OFL_OK && !s->head_dim_given) s->head_dim = s->hidden / s->heads;
    if (status == OFL_OK) status = check_range("--head-dim", s->head_dim, 2, 1 << 14);
    if (status == OFL_OK) status = check_range("--ffn", s->ffn, 1, 1 << 22);
    if (status == OFL_OK) status = check_range("--vocab", s->vocabulary, LEAST_VOCABULARY, 1 << 22);
    if (status == OFL_OK) status = check_range("--context", s->context, 1, 1 << 30);
    if (status != OFL_OK) return status;
    if (s->heads % s->kv_heads != 0) return app_fail(OFL_ERROR_ARGUMENT, "--heads is no multiple of --kv-heads");
    if (s->head_dim % 2 != 0) return app_fail(OFL_ERROR_ARGUMENT, "a head of %llu cannot be turned in pairs; give an even --head-dim", (unsigned long long)s->head_dim);
    if (types[s->type] == OFL_DTYPE_Q8_0 && (s->hidden % 32 != 0 || s->ffn % 32 != 0 || s->heads * s->head_dim % 32 != 0))
        return app_fail(OFL_ERROR_ARGUMENT, "--type q8_0 stores blocks of 32: --hidden, --ffn and heads × head-dim must be multiples of 32");
    if (s->output == NULL) return app_fail(OFL_ERROR_ARGUMENT, "--output FILE is needed");
    return OFL_OK;
}

static ofl_status report_model(const shape *s, const tensor_list *list, bench_report **out)
{
    double parameters = 0, bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        parameters += (double)list->items[i].dims[0] * (double)(list->items[i].n_dims > 1 ? list->items[i].dims[1] : 1);
        bytes += (double)list->items[i].bytes;
    }
    ofl_status status = bench_report_open("mkmodel", NULL, s->printed, out);
    if (status != OFL_OK) return status;
    bench_report_row(*out, s->output);
    bench_report_number(*out, "tensors", (double)list->count);
    bench_report_number(*out, "parameters", parameters);
    bench_report_number(*out, "weight_bytes", bytes);
    return OFL_OK;
}

int bench_mkmodel(int argc, char **argv)
{
    shape s = {.layers = 8, .hidden = 512, .heads = 8, .ffn = 1536, .vocabulary = 512, .context = 4096, .seed = 1, .name = "random"};
    const cli_option options[] = {
        {"--output", CLI_TEXT, &s.output, NULL, "FILE", NULL, "the GGUF file to write"},
        {"--architecture", CLI_CHOICE, &s.architecture, NULL, "llama|qwen2|qwen3", "llama|qwen2|qwen3", "(default: llama)"},
        {"--layers", CLI_COUNT, &s.layers, NULL, "N", NULL, "transformer blocks (default: 8)"},
        {"--hidden", CLI_COUNT, &s.hidden, NULL, "N", NULL, "width (default: 512)"},
        {"--heads", CLI_COUNT, &s.heads, NULL, "N", NULL, "attention heads (default: 8)"},
        {"--kv-heads", CLI_COUNT, &s.kv_heads, &s.kv_heads_given, "N", NULL, "key and value heads (default: as many)"},
        {"--head-dim", CLI_COUNT, &s.head_dim, &s.head_dim_given, "N", NULL, "elements of a head (default: width / heads)"},
        {"--ffn", CLI_COUNT, &s.ffn, NULL, "N", NULL, "width of the feed-forward part (default: 1536)"},
        {"--vocab", CLI_COUNT, &s.vocabulary, NULL, "N", NULL, "tokens: 256 bytes, four more, the rest unused (default: 512)"},
        {"--context", CLI_COUNT, &s.context, NULL, "N", NULL, "trained context to state (default: 4096)"},
        {"--type", CLI_CHOICE, &s.type, NULL, "bf16|f16|f32|q8_0", "bf16|f16|f32|q8_0", "of the matrices (default: bf16)"},
        {"--tied", CLI_FLAG, &s.tied, NULL, NULL, NULL, "no output head of its own: the embedding serves"},
        {"--sparse", CLI_FLAG, &s.sparse, NULL, NULL, NULL, "weights are a hole in the file: all zero, no disk used; to plan, not to run"},
        {"--seed", CLI_COUNT, &s.seed, NULL, "N", NULL, "of the weights (default: 1)"},
        {"--name", CLI_TEXT, &s.name, NULL, "TEXT", NULL, "the model's name (default: random)"},
        BENCH_OUTPUT_OPTIONS(s.printed),
    };
    const cli_program program = {"ofload-bench mkmodel", "--output FILE [options]",
                                 "Writes a GGUF file of any shape with random weights and a byte-level tokenizer. ofload-batch can run it; its answers are noise.", NULL,
                                 options, sizeof options / sizeof options[0]};
    int exit_status = EXIT_DONE;
    tensor_list list = {0};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = check_shape(&s);
    if (status == OFL_OK) status = list_tensors(&s, &list);
    if (status == OFL_OK) status = write_model(&s, &list);
    if (status == OFL_OK) status = report_model(&s, &list, &report);
    free(list.items);
    return bench_report_close(report, &program, status);
}

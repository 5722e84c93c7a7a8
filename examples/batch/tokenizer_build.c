/* What the readers of GGUF files and folders share: tokens, merges and end tokens as files write them. */
#include "batch/tokenizer_parts.h"
#include "common/utf8.h"

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory"); }

/* Byte-level files write each byte as a printable character: itself where it is one, else the next from U+0100 on. */
static bool is_itself(uint32_t byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF); }

static int alphabet_byte(uint32_t code)
{
    if (code < 0x100) return is_itself(code) ? (int)code : -1;
    uint32_t wanted = code - 0x100;
    for (uint32_t byte = 0; byte < 0x100; byte++) {
        if (!is_itself(byte) && wanted-- == 0) return (int)byte;
    }
    return -1;
}

bool tokenizer_from_alphabet(const char *text, size_t bytes, buffer *out, bool *memory_out)
{
    size_t before = out->bytes;
    *memory_out = true;
    for (size_t at = 0; at < bytes;) {
        utf8_char c = utf8_read(text + at, bytes - at);
        int byte = c.whole ? alphabet_byte(c.code) : -1;
        if (byte < 0) {
            out->bytes = before;
            return false;
        }
        char one = (char)byte;
        if (!buffer_add(out, &one, 1)) {
            *memory_out = false;
            return false;
        }
        at += c.bytes;
    }
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>": the byte, or -1. */
static int byte_token(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static ofl_status set_marked(tokenizer *t, int64_t id, token_kind kind, const char *text, size_t bytes)
{
    t->marked.bytes = 0;
    for (size_t at = 0; at < bytes;) {
        bool space = bytes - at >= 3 && memcmp(text + at, SPACE_MARK, 3) == 0;
        if (!buffer_add(&t->marked, space ? " " : text + at, 1)) return no_memory();
        at += space ? 3 : 1;
    }
    return vocabulary_set(&t->words, id, kind, text, bytes, t->marked.data, t->marked.bytes);
}

ofl_status tokenizer_set_token(tokenizer *t, int64_t id, token_kind kind, const char *text, size_t bytes)
{
    bool memory;
    int byte = kind == TOKEN_BYTE || (kind == TOKEN_NORMAL && !t->byte_level) ? byte_token(text, bytes) : -1;
    if (byte >= 0) {
        char shown = (char)byte;
        return vocabulary_set(&t->words, id, TOKEN_BYTE, text, bytes, &shown, 1);
    }
    if (kind == TOKEN_BYTE) return app_fail(OFL_ERROR_FORMAT, "tokenizer: byte token %lld is \"%.*s\", not <0xNN>", (long long)id, bytes > 40 ? 40 : (int)bytes, text);
    if (kind == TOKEN_CONTROL || kind == TOKEN_NONE) return vocabulary_set(&t->words, id, kind, text, bytes, "", 0);
    if (!t->byte_level) return set_marked(t, id, kind, text, bytes);
    if (kind == TOKEN_ADDED) return vocabulary_set(&t->words, id, kind, text, bytes, text, bytes);
    t->composed.bytes = 0;
    if (tokenizer_from_alphabet(text, bytes, &t->composed, &memory))
        return vocabulary_set(&t->words, id, kind, t->composed.data, t->composed.bytes, t->composed.data, t->composed.bytes);
    if (!memory) return no_memory();
    return vocabulary_set(&t->words, id, TOKEN_NONE, "", 0, text, bytes); /* not in the alphabet: no text leads to it, but it can be shown */
}

bool tokenizer_looks_like_control(const char *text, size_t bytes, bool normal)
{
    static const char *const names[] = {"<s>", "</s>", "<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"};
    if (bytes > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + bytes - 2, "|>", 2) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !normal; i++) {
        if (bytes == strlen(names[i]) && memcmp(text, names[i], bytes) == 0) return true;
    }
    return false;
}

void tokenizer_make_control(tokenizer *t, int32_t id)
{
    token *known = &t->words.tokens[id];
    known->kind = TOKEN_CONTROL;
    known->shown_bytes = 0;
}

ofl_status tokenizer_add_merge(tokenizer *t, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    bool memory = true;
    if (!t->byte_level) return bpe_add_merge(&t->merges, rank, left, left_bytes, right, right_bytes);
    t->composed.bytes = 0;
    t->marked.bytes = 0;
    if (tokenizer_from_alphabet(left, left_bytes, &t->composed, &memory) && tokenizer_from_alphabet(right, right_bytes, &t->marked, &memory))
        return bpe_add_merge(&t->merges, rank, t->composed.data, t->composed.bytes, t->marked.data, t->marked.bytes);
    return memory ? OFL_OK : no_memory();
}

ofl_status tokenizer_index(tokenizer *t)
{
    while (t->words.count != 0 && t->words.tokens[t->words.count - 1].kind == TOKEN_NONE && t->words.tokens[t->words.count - 1].shown_bytes == 0) t->words.count--;
    if (t->words.count == 0) return app_fail(OFL_ERROR_FORMAT, "tokenizer: the vocabulary is empty");
    return vocabulary_index(&t->words);
}

ofl_status tokenizer_add_end(tokenizer *t, int64_t id)
{
    if (id < 0 || (uint64_t)id >= t->words.count)
        return app_fail(OFL_ERROR_FORMAT, "tokenizer: end token %lld is not one of the %zu tokens", (long long)id, t->words.count);
    if (tokenizer_is_end(t, (int32_t)id)) return OFL_OK;
    if (t->end_count == TOKENIZER_MAX_ENDS) return app_fail(OFL_ERROR_UNSUPPORTED, "tokenizer: more than %d end tokens", TOKENIZER_MAX_ENDS);
    t->ends[t->end_count++] = (int32_t)id;
    return OFL_OK;
}

ofl_status tokenizer_add_known_ends(tokenizer *t)
{
    static const char *const names[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "</s>", "<|endoftext|>", "<|end_of_text|>"};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && status == OFL_OK; i++) {
        int32_t id = tokenizer_find(t, names[i]);
        if (id >= 0 && t->words.tokens[id].kind == TOKEN_CONTROL) status = tokenizer_add_end(t, id);
    }
    return status;
}
